"""Delegation tokens: secrets with which a client acts for a user for a limited time (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from barnabas.client.admin.calls import Part
from barnabas.client.admin.results import refusal
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import create_delegation_token as creating
from barnabas.protocol.messages import describe_delegation_token as describing
from barnabas.protocol.messages import expire_delegation_token as expiring
from barnabas.protocol.messages import renew_delegation_token as renewing


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A principal: a type, mostly `User`, and a name."""

    name: str
    principal_type: str = "User"

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Times are milliseconds since the epoch; it can be renewed until `max_timestamp_ms`."""

    token_id: str
    hmac: bytes = field(repr=False)
    """The secret, which identifies the token in every other call."""
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


class DelegationTokens(Part):
    """Methods for delegation tokens. On a connection without authentication, or authenticated by a token, every call
    raises UnsupportedByAuthenticationException; DelegationTokenDisabledException if the cluster has none.
    """

    async def create_delegation_token(
        self,
        *,
        owner: KafkaPrincipal | None = None,
        renewers: Iterable[KafkaPrincipal] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """A new token, for the caller or for `owner`; -1 takes the cluster's maximum lifetime. A first attempt whose
        response was lost may leave a token that nobody knows.
        """
        allowed = tuple(renewers)

        def ask(_: int) -> creating.CreateDelegationTokenRequest:
            return creating.CreateDelegationTokenRequest(
                owner_principal_type="" if owner is None else owner.principal_type,
                owner_principal_name="" if owner is None else owner.name,
                renewers=[
                    creating.CreatableRenewers(principal_type=it.principal_type, principal_name=it.name)
                    for it in allowed
                ],
                max_lifetime_ms=max_lifetime_ms,
            )

        def read(it: creating.CreateDelegationTokenResponse) -> DelegationToken | KafkaError:
            return refusal(it.error_code, None, "the token") or DelegationToken(
                it.token_id,
                it.hmac,
                KafkaPrincipal(it.principal_name, it.principal_type),
                KafkaPrincipal(it.token_requester_principal_name, it.token_requester_principal_type),
                allowed,
                it.issue_timestamp_ms,
                it.expiry_timestamp_ms,
                it.max_timestamp_ms,
            )

        return await self._calls.one("the token", ask, read)

    async def renew_delegation_token(self, hmac: bytes, *, renew_time_period_ms: int = -1) -> int:
        """Extend a token's lifetime (-1: by the cluster's default); returns its new expiry time.
        DelegationTokenNotFoundException, DelegationTokenExpiredException, DelegationTokenOwnerMismatchException.
        """

        def ask(_: int) -> renewing.RenewDelegationTokenRequest:
            return renewing.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_time_period_ms)

        def read(response: renewing.RenewDelegationTokenResponse) -> int | KafkaError:
            error = refusal(response.error_code, None, "the token")
            return response.expiry_timestamp_ms if error is None else error

        return await self._calls.one("the token", ask, read)

    async def expire_delegation_token(self, hmac: bytes, *, expiry_time_period_ms: int = -1) -> int:
        """Let a token expire after a period (-1: now); returns its expiry time. Raises as `renew_delegation_token`."""

        def ask(_: int) -> expiring.ExpireDelegationTokenRequest:
            return expiring.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_time_period_ms)

        def read(response: expiring.ExpireDelegationTokenResponse) -> int | KafkaError:
            error = refusal(response.error_code, None, "the token")
            return response.expiry_timestamp_ms if error is None else error

        return await self._calls.one("the token", ask, read)

    async def describe_delegation_token(self, owners: Iterable[KafkaPrincipal] | None = None) -> list[DelegationToken]:
        """Tokens of these owners, or all that the caller may see."""
        wanted = None
        if owners is not None:
            wanted = [
                describing.DescribeDelegationTokenOwner(principal_type=it.principal_type, principal_name=it.name)
                for it in owners
            ]

        def ask(_: int) -> describing.DescribeDelegationTokenRequest:
            return describing.DescribeDelegationTokenRequest(owners=wanted)

        def read(response: describing.DescribeDelegationTokenResponse) -> list[DelegationToken] | KafkaError:
            return refusal(response.error_code, None, "tokens") or [
                DelegationToken(
                    it.token_id,
                    it.hmac,
                    KafkaPrincipal(it.principal_name, it.principal_type),
                    KafkaPrincipal(it.token_requester_principal_name, it.token_requester_principal_type),
                    tuple(KafkaPrincipal(each.principal_name, each.principal_type) for each in it.renewers),
                    it.issue_timestamp,
                    it.expiry_timestamp,
                    it.max_timestamp,
                )
                for it in response.tokens
            ]

        return await self._calls.one("tokens", ask, read)
