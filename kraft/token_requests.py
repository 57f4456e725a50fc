"""The clients that may ask for delegation tokens (KIP-48, KIP-373), on brokers and controllers alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.kraft.controller.delegation_tokens import REQUESTER_SINCE, names_users_only, owner_of
from barnabas.kraft.envelope import EnvelopeSlot
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.call import Call
from barnabas.runtime.dispatch import Handler
from barnabas.runtime.identity import ANONYMOUS, Principal

TOKEN_APIS = (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN)
PLAINTEXT = "PLAINTEXT"
NO_TIME_MS = -1


def token_handlers(decide: Callable[[Call], None], protocols: Mapping[str, str]) -> dict[ApiKey, Handler]:
    """The handlers of a controller; `protocols` has the security protocol of each of its listeners."""

    def decide_if_allowed(call: Call) -> None:
        # A broker that forwards a request has checked the protocol of its client.
        is_forwarded = isinstance(call.slot, EnvelopeSlot)
        protocol = None if is_forwarded else protocols.get(call.request.listener_name, PLAINTEXT)
        refused = refused_token_request(call, protocol)
        if refused is None:
            decide(call)
        else:
            call.answer(refused)

    return dict.fromkeys(TOKEN_APIS, decide_if_allowed)


def token_requests_are_allowed(principal: Principal, protocol: str | None) -> bool:
    """A token is for those who proved their name without one. `protocol`: of the listener that the client's request
    came by; None if another node has checked it."""
    if principal.token_authenticated or protocol == PLAINTEXT:
        return False
    return protocol != "SSL" or principal != ANONYMOUS


def refused_token_request(call: Call, protocol: str | None) -> Message | None:
    """The answer to a request to create, renew or expire a token that this client may not make; None if it may."""
    request, requester = call.message, call.request.principal
    if not token_requests_are_allowed(requester, protocol):
        return refusal(call, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if isinstance(request, CreateDelegationTokenRequest):
        owner = owner_of(request, requester)
        is_own = (owner.type, owner.name) == (requester.type, requester.name)
        if not is_own and not call.may(AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner)):
            return refusal(call, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if protocol is not None and not names_users_only(request, owner):
            return refusal(call, ErrorCode.INVALID_PRINCIPAL_TYPE)
    return None


def refusal(call: Call, code: ErrorCode) -> Message:
    """The answer of a node that does not decide."""
    request: Any = call.message
    if isinstance(request, CreateDelegationTokenRequest):
        owner, requester = owner_of(request, call.request.principal), call.request.principal
        response = CreateDelegationTokenResponse(
            error_code=code,
            principal_type=owner.type,
            principal_name=owner.name,
            issue_timestamp_ms=NO_TIME_MS,
            expiry_timestamp_ms=NO_TIME_MS,
            max_timestamp_ms=NO_TIME_MS,
        )
        if call.version >= REQUESTER_SINCE:
            response.token_requester_principal_type = requester.type
            response.token_requester_principal_name = requester.name
        return response
    if isinstance(request, ExpireDelegationTokenRequest):
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME_MS)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME_MS)
