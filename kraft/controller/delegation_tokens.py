"""Core: delegation tokens are created, renewed, expired and swept (KIP-48, KIP-373).

Whether a principal may ask at all is decided before: `kraft/token_requests.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from copy import copy

from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.controller.token_sweep import is_expired, note_token
from barnabas.kraft.metadata.delegation_tokens import token_hmac
from barnabas.kraft.metadata.features import DELEGATION_TOKENS_SINCE
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.metadata_log import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.protocol.primitives import INT64_MAX, uuid_to_string
from barnabas.runtime.identity import USER, Principal
from barnabas.runtime.uuids import random_uuid

REQUESTER_SINCE = 3
"""Version of CreateDelegationToken with the requester in its response."""


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """The owner of the token that is asked for: the requester, unless the request names another."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_name, request.owner_principal_type or "")


def names_users_only(request: CreateDelegationTokenRequest, owner: Principal) -> bool:
    """The owner and all renewers are users. A login with a token has the owner's name alone, so an owner of another
    type would log in as the user of that name."""
    return owner.type == USER and all(it.principal_type == USER for it in request.renewers)


def create_delegation_token(
    state: ControllerState, request: CreateDelegationTokenRequest, version: int
) -> ControllerResult[CreateDelegationTokenResponse]:
    """A new token of the requester, or of the owner that it names."""
    requester, now_ms, defaults = state.asked.by, state.asked.at_ms, state.defaults
    owner = owner_of(request, requester)
    response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name)
    if version >= REQUESTER_SINCE:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    try:
        _check_enabled(state)
        if not names_users_only(request, owner):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except KafkaError as error:
        response.error_code = error.code
        return ControllerResult(response)
    lifetime_ms = defaults.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    response.issue_timestamp_ms = now_ms
    response.max_timestamp_ms = _sum(now_ms, lifetime_ms)
    response.expiry_timestamp_ms = min(
        response.max_timestamp_ms, _sum(now_ms, defaults.delegation_token_expiry_time_ms)
    )
    response.token_id = uuid_to_string(random_uuid(state.chance))
    response.hmac = token_hmac(defaults.delegation_token_secret_key, response.token_id)
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[str(Principal(it.principal_name, it.principal_type)) for it in request.renewers],
        issue_timestamp=response.issue_timestamp_ms,
        max_timestamp=response.max_timestamp_ms,
        expiration_timestamp=response.expiry_timestamp_ms,
        token_id=response.token_id,
    )
    note_token(state, record, "is created")
    return ControllerResult(response, [record])


def renew_delegation_token(
    state: ControllerState, request: RenewDelegationTokenRequest, version: int
) -> Steps[ControllerResult[RenewDelegationTokenResponse]]:
    """A later expiry, at most the token's last day."""
    now_ms = state.asked.at_ms
    try:
        token = yield from _token(state, bytes(request.hmac))
        if is_expired(token, now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_may_renew(token, state.asked.by)
    except KafkaError as error:
        return ControllerResult(RenewDelegationTokenResponse(error_code=error.code))
    period_ms = state.defaults.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry_ms = min(token.max_timestamp, _sum(now_ms, period_ms))
    note_token(state, token, "is renewed")
    return ControllerResult(
        RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms), [_with_expiry(token, expiry_ms)]
    )


def expire_delegation_token(
    state: ControllerState, request: ExpireDelegationTokenRequest, version: int
) -> Steps[ControllerResult[ExpireDelegationTokenResponse]]:
    """Another expiry; a negative period removes the token at once."""
    now_ms = state.asked.at_ms
    try:
        token = yield from _token(state, bytes(request.hmac))
        _check_may_renew(token, state.asked.by)
        if request.expiry_time_period_ms < 0:
            note_token(state, token, "is removed")
            return ControllerResult(
                ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms),
                [RemoveDelegationTokenRecord(token_id=token.token_id)],
            )
        if is_expired(token, now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    except KafkaError as error:
        return ControllerResult(ExpireDelegationTokenResponse(error_code=error.code))
    expiry_ms = min(token.max_timestamp, _sum(now_ms, request.expiry_time_period_ms))
    note_token(state, token, "gets another expiry")
    return ControllerResult(
        ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms), [_with_expiry(token, expiry_ms)]
    )


def _check_enabled(state: ControllerState) -> None:
    """Raises KafkaError if this cluster has no delegation tokens."""
    if not state.defaults.delegation_token_secret_key:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if state.image.features.metadata_version < DELEGATION_TOKENS_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _token(state: ControllerState, hmac: bytes) -> Generator[None, object, DelegationTokenRecord]:
    """The token with this HMAC. Raises KafkaError."""
    _check_enabled(state)
    tokens = state.image.others.delegation_tokens
    for _ in state.token_index.follow(tokens, state.defaults.delegation_token_secret_key):
        state.pace.steps += 1
        yield None
    token_id = state.token_index.token_id(hmac)
    if token_id is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return tokens[token_id]


def _check_may_renew(token: DelegationTokenRecord, principal: Principal) -> None:
    """Raises KafkaError unless the principal owns the token or is among its renewers."""
    if str(principal) != token.owner and str(principal) not in token.renewers:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _with_expiry(token: DelegationTokenRecord, expiry_ms: int) -> DelegationTokenRecord:
    changed = copy(token)
    changed.expiration_timestamp = expiry_ms
    return changed


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)
