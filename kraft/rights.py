"""Checks the rights on the cluster before a handler sees its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.kraft.authorizer.requirements import Requirements
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.refusals import refusal_of
from barnabas.protocol.schema import Message
from barnabas.runtime.access import AuthorizerNotReady
from barnabas.runtime.call import Call, Execution
from barnabas.runtime.dispatch import Handler
from barnabas.runtime.steps import Steps

_IN_KAFKAS_WORDS = frozenset(
    {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""Requests whose refusal has Kafka's text."""


def with_rights(
    handlers: Mapping[ApiKey, Handler], requirements: Requirements, execution: Execution
) -> dict[ApiKey, Handler]:
    """The handlers, behind their checks. Without an authorizer they are returned as they are."""
    if execution.authorizer is None:
        return dict(handlers)
    return {
        key: partial(_check, requirements[key], handle) if key in requirements else handle
        for key, handle in handlers.items()
    }


def _check(operations: tuple[AclOperation, ...], handle: Handler, call: Call) -> Steps | None:
    try:
        # The last operation is the one that is audited: the others need not be denied.
        may = not operations or any(call.may_on_cluster(it, audited=it is operations[-1]) for it in operations)
        if not operations:
            call.may_on_cluster(AclOperation.DESCRIBE, audited=False)
    except AuthorizerNotReady as error:
        return refuse(call, error.code, str(error.message))
    if not may:
        needed = " or ".join(it.name for it in operations)
        message = f"{call.api} needs {needed} on the cluster"
        if call.request.api_key in _IN_KAFKAS_WORDS:
            message = str(refusal_on(AclResourceType.CLUSTER).message)
        return refuse(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
    return handle(call)


def refuse(call: Call, code: ErrorCode, message: str) -> Steps | None:
    """Refuse the whole request; a large one in steps."""
    refusal = partial(refusal_of, call.message, call.version, code, message)
    if call.is_large and call.message is not None:
        return _refuse_large(call, refusal)
    call.answer(refusal())
    return None


def _refuse_large(call: Call, refusal: Callable[[], Message]) -> Steps:
    call.answer((yield refusal))
