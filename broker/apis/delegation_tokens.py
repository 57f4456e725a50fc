"""Create, Renew, Expire and DescribeDelegationToken (38 to 41, KIP-48, KIP-373).

The first three are checked here, because only this broker knows how its client authenticated, and decided by the
controller.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.kraft.metadata.delegation_tokens import belongs_to, principal_of, token_hmac
from barnabas.kraft.token_requests import PLAINTEXT, refused_token_request, token_requests_are_allowed
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.metadata_log import DelegationTokenRecord
from barnabas.runtime.dispatch import Call
from barnabas.runtime.identity import Principal
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.server import Steps

REQUESTER_SINCE = 3


@dataclass(frozen=True, slots=True)
class TokenPorts:
    metadata: MetadataCache
    forward: Callable[[Call], None]
    protocols: Mapping[str, str]
    """Security protocols of listeners."""
    secret_key: str = field(repr=False)
    """`delegation.token.secret.key`; empty: there are no tokens."""

    def protocol_of(self, call: Call) -> str:
        return self.protocols.get(call.request.listener_name, PLAINTEXT)


def change_delegation_token(ports: TokenPorts, call: Call) -> None:
    """Create, renew or expire one."""
    refused = refused_token_request(call, ports.protocol_of(call))
    if refused is None:
        ports.forward(call)
    else:
        call.answer(refused)


def describe_delegation_token(ports: TokenPorts, call: Call) -> Steps:
    """The tokens of the owners that are named, or all, as far as the client may see them."""
    response = DescribeDelegationTokenResponse()
    try:
        if not token_requests_are_allowed(call.request.principal, ports.protocol_of(call)):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if not ports.secret_key:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        response.tokens = yield from _described(ports, call)
    except KafkaError as error:
        response.error_code = error.code
    call.answer(response)


def _described(ports: TokenPorts, call: Call) -> Generator[None, None, list[DescribedDelegationToken]]:
    """Raises KafkaError."""
    request: DescribeDelegationTokenRequest = call.message
    owners: dict[str, None] | None = None
    if request.owners is not None:
        owners = {str(Principal(it.principal_name, it.principal_type)): None for it in request.owners}
    described: list[DescribedDelegationToken] = []
    meter = Meter(call)
    for token in () if owners == {} else ports.metadata.image.others.delegation_tokens.values():
        if _may_see(call, token, owners):
            if meter.is_full:
                raise KafkaError(ANSWER_TOO_LARGE)
            described.append(_describe(token, ports.secret_key, call.version))
            meter.answer_grows(1 + len(token.renewers), 2 * len(token.owner) + sum(map(len, token.renewers)))
        if meter.step_ends(2 + len(token.renewers)):
            yield None
    return described


def _may_see(call: Call, token: DelegationTokenRecord, owners: Mapping[str, None] | None) -> bool:
    """The client asked for the token, and it is its own or one that it may describe."""
    if owners is not None and not any(name in owners for name in (token.owner, token.requester, *token.renewers)):
        return False
    if belongs_to(token, call.request.principal):
        return True
    return call.may(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id) or call.may(
        AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner
    )


def _describe(token: DelegationTokenRecord, secret_key: str, version: int) -> DescribedDelegationToken:
    owner, requester = principal_of(token.owner), principal_of(token.requester)
    described = DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
    )
    if version >= REQUESTER_SINCE:
        described.token_requester_principal_type = requester.type
        described.token_requester_principal_name = requester.name
    for name in token.renewers:
        renewer = principal_of(name)
        described.renewers.append(
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
        )
    return described
