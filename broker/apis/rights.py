"""Questions of handlers about many resources: what the client of a request may do on each of them.

A resource that a request names many times is asked for once. Without an authorizer nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import cache, partial
from typing import Any

from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.runtime.call import Call
from barnabas.runtime.meter import Meter

May = Callable[[str], bool]
"""True for the name of a resource on which the client may do what was asked."""


def may_on_topics(call: Call, operation: AclOperation, *, audited: bool = True) -> May:
    return _may_on(call, operation, AclResourceType.TOPIC, audited)


def may_on_groups(call: Call, operation: AclOperation, *, audited: bool = True) -> May:
    return _may_on(call, operation, AclResourceType.GROUP, audited)


def may_on_transactions(call: Call, operation: AclOperation) -> May:
    """The names are transactional ids."""
    return _may_on(call, operation, AclResourceType.TRANSACTIONAL_ID, True)


def parted(names: Iterable[str], may: May, meter: Meter) -> Generator[Any, Any, tuple[list[str], list[str]]]:
    """The names for which `may` is true, and the others, each in their order."""
    if may is _anything:
        return list(names), []
    allowed: list[str] = []
    denied: list[str] = []
    for name in names:
        (allowed if may(name) else denied).append(name)
        if meter.step_ends():
            yield None
    return allowed, denied


def _may_on(call: Call, operation: AclOperation, resource_type: AclResourceType, audited: bool) -> May:
    if not call.has_authorizer:
        return _anything
    return cache(partial(call.may, operation, resource_type, audited=audited))


def _anything(_: str) -> bool:
    return True
