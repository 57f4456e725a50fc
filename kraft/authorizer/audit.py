"""Core: the audit log of access control, in Kafka's words, and decision notes about denials.

Every audited denial is a line at INFO, every audited permission one at DEBUG. A denial is a decision note, too; the
same one is noted again only when it has happened ten, a hundred, a thousand times, and new ones at most
`NOTES_A_MINUTE`: clients cannot displace other decisions.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.runtime.decisions import DecisionKind, Notepad

if TYPE_CHECKING:
    from barnabas.kraft.authorizer.standard import Rule
    from barnabas.runtime.request import Request

log = logging.getLogger("authorizer")

KEPT_DENIALS = 1000
"""Different denials that are counted; the oldest are forgotten."""
NOTES_A_MINUTE = 60
MAX_EARLY = 100
"""Principals that the log names because they came before the ACLs were loaded."""
_MINUTE_MS = 60_000
_KAFKA_NAMES = {
    AclResourceType.TOPIC: "Topic",
    AclResourceType.GROUP: "Group",
    AclResourceType.CLUSTER: "Cluster",
    AclResourceType.TRANSACTIONAL_ID: "TransactionalId",
    AclResourceType.DELEGATION_TOKEN: "DelegationToken",
    AclResourceType.USER: "User",
}
_SUBJECTS = {
    AclResourceType.TOPIC: "topic",
    AclResourceType.GROUP: "group",
    AclResourceType.TRANSACTIONAL_ID: "transaction",
    AclResourceType.DELEGATION_TOKEN: "token",
    AclResourceType.USER: "user",
}

Denial = tuple[str, str, AclOperation, AclResourceType, str]
"""(principal, host, operation, resource type, name)."""


class Audit:
    """The audit of one node."""

    def __init__(self, notepad: Notepad, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the monotonic clock."""
        self._notepad = notepad
        self._now_ms = now_ms
        self._denials: OrderedDict[Denial, int] = OrderedDict()
        self._minute = -1
        self._notes_left = 0
        self._not_noted = 0
        self._early: set[str] = set()

    def denied(
        self, request: Request, operation: AclOperation, resource_type: AclResourceType, name: str, rule: Rule
    ) -> None:
        """A client was refused something that it asked for."""
        if log.isEnabledFor(logging.INFO):
            log.info("%s", _line(request, operation, resource_type, name, rule))
        denial = (str(request.principal), request.peer_host, operation, resource_type, name)
        times = self._denials.pop(denial, 0) + 1
        self._denials[denial] = times
        if len(self._denials) > KEPT_DENIALS:
            self._denials.popitem(last=False)
        if _is_power_of_ten(times) and self._may_note():
            self._note(request, denial, times, rule)

    def allowed(
        self, request: Request, operation: AclOperation, resource_type: AclResourceType, name: str, rule: Rule
    ) -> None:
        """A client gets something that it asked for."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", _line(request, operation, resource_type, name, rule))

    def not_ready(self, request: Request) -> None:
        """Nobody but super users is served yet. The log names each principal once."""
        principal = str(request.principal)
        if principal not in self._early and len(self._early) < MAX_EARLY:
            self._early.add(principal)
            log.warning(
                "%s from %s sends %s before the access control lists are loaded, and is not in super.users;"
                " a quorum of several controllers cannot form unless their principals are",
                _on_one_line(principal),
                request.peer_host,
                _api_name(request),
            )

    def _may_note(self) -> bool:
        minute = self._now_ms() // _MINUTE_MS
        if minute != self._minute:
            self._minute, self._notes_left = minute, NOTES_A_MINUTE
        if not self._notes_left:
            self._not_noted += 1
            return False
        self._notes_left -= 1
        return True

    def _note(self, request: Request, denial: Denial, times: int, rule: Rule) -> None:
        principal, host, operation, resource_type, name = denial
        kind = _SUBJECTS.get(resource_type)
        subject = "cluster" if kind is None else f"{kind} {name}"
        cause = rule.reason
        if self._not_noted:
            cause += f" (and {self._not_noted} other denials were not noted: at most {NOTES_A_MINUTE} a minute are)"
            self._not_noted = 0
        self._notepad.note(
            DecisionKind.ACCESS,
            subject,
            f"{principal} from {host} is denied {operation.name} on {subject} for {_api_name(request)}",
            also=(f"principal {principal}",),
            cause=cause,
            times=times,
        )


def _line(request: Request, operation: AclOperation, resource_type: AclResourceType, name: str, rule: Rule) -> str:
    """The line that Kafka writes to `kafka.authorizer.logger`."""
    return (
        f"Principal = {_on_one_line(str(request.principal))} is {'Allowed' if rule.allows else 'Denied'}"
        f" operation = {operation.name} from host = {request.peer_host}"
        f" on resource = {_KAFKA_NAMES[resource_type]}:LITERAL:{_on_one_line(name)}"
        f" for request = {_api_name(request)} with resourceRefCount = 1 based on rule {_on_one_line(str(rule))}"
    )


def _api_name(request: Request) -> str:
    return API_SPECS[ApiKey(request.api_key)].name


def _on_one_line(text: str) -> str:
    """Names come from clients: what could end a line, or hide it, is escaped."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _is_power_of_ten(times: int) -> bool:
    while times % 10 == 0:
        times //= 10
    return times == 1
