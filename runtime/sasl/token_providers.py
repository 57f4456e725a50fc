"""Where a client's bearer tokens come from: a value, a file, the application, an OAuth provider.

Each call gets a token; `RefreshingTokens` keeps it until most of its lifetime is over.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from barnabas.protocol.sasl.jwt_claims import encode_unsecured, json_object, unverified
from barnabas.protocol.sasl.oauthbearer import MOST_TOKEN_CHARACTERS, BearerToken, TokenRefused
from barnabas.runtime.backoff import doubled_ms
from barnabas.runtime.sasl.http_exchange import HttpFailed, HttpRequest, exchange
from barnabas.runtime.sasl.prepared import NotPrepared
from barnabas.runtime.sasl.provider_accounts import ProviderAccount
from barnabas.runtime.sasl.token_refresh import RETRY_MS, RefreshRules, refresh_ms
from barnabas.runtime.world import Clock, World

log = logging.getLogger(__name__)


class TokenProvider(Protocol):
    """Gets bearer tokens."""

    async def token(self) -> BearerToken:
        """Raises NotPrepared if there is none. The caller bounds the time."""


class CallbackTokens:
    """Tokens of the application: a function that returns a BearerToken, or a coroutine function."""

    def __init__(self, callback: Callable[[], BearerToken | Awaitable[BearerToken]]) -> None:
        self._callback = callback

    async def token(self) -> BearerToken:
        try:
            made = self._callback()
            return await made if inspect.isawaitable(made) else made
        except Exception as error:  # the application's own code
            # The text of its error may contain the token.
            raise NotPrepared(f"the application has no token: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Claims:
    """The names of claims: `sasl.oauthbearer.….claim.name`."""

    scope: str = "scope"
    sub: str = "sub"

    def read(self, token: str, place: str) -> BearerToken:
        """Raises NotPrepared."""
        try:
            return unverified(token, scope_claim=self.scope, sub_claim=self.sub)
        except TokenRefused as refused:
            raise NotPrepared(f"{place}: no token for Kafka: {refused}") from None


class FileTokens:
    """The token in a file, which another program replaces from time to time."""

    def __init__(self, world: World, path: str, claims: Claims) -> None:
        self._world = world
        self._path = path
        self._claims = claims

    async def token(self) -> BearerToken:
        try:
            text = await self._world.run_blocking(self._read)
        except (OSError, ValueError) as error:
            raise NotPrepared(f"{self._path}: {error if isinstance(error, OSError) else 'not a token'}") from None
        return self._claims.read(text, self._path)

    def _read(self) -> str:
        if self._world.disk.size(self._path) > 2 * MOST_TOKEN_CHARACTERS:
            raise ValueError("too long")
        return self._world.disk.read_bytes(self._path).decode("ascii").strip()


class UnsecuredLogin:
    """Tokens that nobody signs, made here: for tests. By the options `unsecuredLogin…` of the login module."""

    def __init__(
        self, claims: Mapping[str, Any], wall_clock: Clock, *, lifetime_seconds: int, principal_claim: str
    ) -> None:
        self._claims = claims
        self._wall_clock = wall_clock
        self._lifetime_seconds = lifetime_seconds
        self._principal = str(claims[principal_claim])

    async def token(self) -> BearerToken:
        now_ms = self._wall_clock.now_ms()
        expires_ms = now_ms + 1000 * self._lifetime_seconds
        claims = {"exp": expires_ms / 1000, "iat": now_ms / 1000, **self._claims}
        return BearerToken(encode_unsecured(claims), self._principal, expires_ms, now_ms)


@dataclass(frozen=True, slots=True)
class RetryTimes:
    """`sasl.login.retry.backoff.…`"""

    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    """After this time, an attempt to get a token is given up."""


class EndpointTokens:
    """Tokens of the provider's token endpoint."""

    def __init__(
        self, world: World, base: HttpRequest, account: ProviderAccount, claims: Claims, retry: RetryTimes
    ) -> None:
        """`base` has the URL, the TLS and the times."""
        self._world = world
        self._base = base
        self._account = account
        self._claims = claims
        self._retry = retry

    async def token(self) -> BearerToken:
        end_ms = self._world.monotonic.now_ms() + self._retry.backoff_max_ms
        failures = 0
        request = await self._account.request(self._base)
        while True:
            try:
                response = await self._world.run_blocking(lambda: exchange(request))
                return self._claims.read(_access_token(response, request.url), request.url)
            except HttpFailed as error:
                left_ms = end_ms - self._world.monotonic.now_ms()
                if error.final or left_ms <= 0:
                    raise NotPrepared(str(error)) from None
                wait_ms = doubled_ms(self._retry.backoff_ms, left_ms, failures)
                failures += 1
            await trio.sleep(wait_ms / 1000)


class RefreshingTokens:
    """Keeps the token of another provider until most of its lifetime is over.

    The token is replaced when it is wanted and due, and with `run` also in between. If no new one can be had, the old
    one is used to its end.
    """

    def __init__(self, provider: TokenProvider, world: World, rules: RefreshRules) -> None:
        self._provider = provider
        self._world = world
        self._rules = rules
        self._token: BearerToken | None = None
        self._due_ms: int | None = None
        """On the wall clock; None: never."""
        self._one_at_a_time = trio.Lock()

    async def token(self) -> BearerToken:
        async with self._one_at_a_time:
            if self._token is None or self._is_due():
                await self._replace()
            assert self._token is not None
            return self._token

    async def run(self) -> None:
        """Replace the token whenever it is due, until cancelled."""
        while True:
            try:
                await self.token()
                wait_ms = RETRY_MS if self._due_ms is None else self._due_ms - self._world.wall_clock.now_ms()
            except NotPrepared as error:
                log.warning("no token for OAUTHBEARER: %s", error)
                wait_ms = RETRY_MS
            await trio.sleep(max(wait_ms, 1) / 1000)

    def _is_due(self) -> bool:
        return self._due_ms is not None and self._world.wall_clock.now_ms() >= self._due_ms

    async def _replace(self) -> None:
        old = self._token
        try:
            self._token = await self._provider.token()
        except NotPrepared as error:
            now_ms = self._world.wall_clock.now_ms()
            if old is None or old.expires_ms is None or old.expires_ms <= now_ms:
                raise
            log.warning("no new token for OAUTHBEARER: %s", error)
            self._due_ms = now_ms + RETRY_MS
            return
        self._due_ms = refresh_ms(self._token, self._world.wall_clock.now_ms(), self._rules, self._world.chance)


def _access_token(response: bytes, place: str) -> str:
    """The token in the JSON of a token endpoint."""
    try:
        members = json_object(response)
    except ValueError as error:
        raise NotPrepared(f"{place}: no JSON: {error}") from None
    for name in ("access_token", "id_token"):
        value = members.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
    raise NotPrepared(f"{place}: no token in the response")
