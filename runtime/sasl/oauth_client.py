"""OAUTHBEARER of a client or channel: its tokens by the keys `sasl.oauthbearer.…` and the login module."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barnabas.protocol.sasl.oauthbearer import MECHANISM, BearerToken, OAuthBearerClient, check_extensions
from barnabas.runtime.sasl.assertions import FILE as ASSERTION_FILE
from barnabas.runtime.sasl.assertions import ISSUER, assertions_of
from barnabas.runtime.sasl.http_exchange import CONNECT_SECONDS, EXCHANGE_SECONDS, HttpRequest
from barnabas.runtime.sasl.numbers import fraction, whole_number
from barnabas.runtime.sasl.oauth_values import (
    KAFKAS,
    PREFIX,
    check_class,
    check_url,
    of_mechanism,
    path_of,
    tls_of,
)
from barnabas.runtime.sasl.prepared import NotPrepared
from barnabas.runtime.sasl.provider_accounts import ClientAssertion, ClientSecret, JwtBearer, ProviderAccount
from barnabas.runtime.sasl.token_providers import (
    CallbackTokens,
    Claims,
    EndpointTokens,
    FileTokens,
    RefreshingTokens,
    RetryTimes,
    TokenProvider,
    UnsecuredLogin,
)
from barnabas.runtime.sasl.token_refresh import RefreshRules
from barnabas.runtime.world import World
from barnabas.settings.errors import SettingsError
from barnabas.settings.oauth import ALLOWED_FILES, ALLOWED_URLS

TOKEN_URL = f"{PREFIX}token.endpoint.url"
CLIENT_ID = f"{PREFIX}client.credentials.client.id"
CLIENT_SECRET = f"{PREFIX}client.credentials.client.secret"

RETRIEVER = f"{PREFIX}jwt.retriever.class"
HANDLERS = (
    f"{KAFKAS}.OAuthBearerLoginCallbackHandler",
    f"{KAFKAS}.secured.OAuthBearerLoginCallbackHandler",
    f"{KAFKAS}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
JWT_BEARER = f"{KAFKAS}.JwtBearerJwtRetriever"
RETRIEVERS: Mapping[str, bool | None] = {
    f"{KAFKAS}.DefaultJwtRetriever": None,
    f"{KAFKAS}.ClientCredentialsJwtRetriever": False,
    f"{KAFKAS}.FileJwtRetriever": True,
    JWT_BEARER: False,
}
"""True for those that want the URL of a file, False for those that want that of an endpoint."""

TokenCallback = Callable[[], BearerToken | Awaitable[BearerToken]]

_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION_OPTIONS = ("extension_", "unsecuredLoginExtension_")
_MINUTE_SECONDS = 60
MOST_NUMBER = 1e15


class OAuthLogin:
    """Begins exchanges with the tokens of a provider: a ClientMechanismFactory."""

    def __init__(self, provider: TokenProvider, extensions: Mapping[str, str] | None = None) -> None:
        self._provider = provider
        self._extensions = dict(extensions or {})
        check_extensions(self._extensions)

    def __call__(self, _host: str) -> OAuthExchange:
        return OAuthExchange(self._provider, self._extensions)

    async def run(self) -> None:
        """Replace tokens before they expire, until cancelled. Without it, they are replaced when they are wanted."""
        if isinstance(self._provider, RefreshingTokens):
            await self._provider.run()


class OAuthExchange:
    """The client's side of one exchange: a ClientMechanism and a PreparedMechanism."""

    name = MECHANISM

    def __init__(self, provider: TokenProvider, extensions: Mapping[str, str]) -> None:
        self._provider = provider
        self._extensions = extensions
        self._exchange: OAuthBearerClient | None = None

    async def prepare(self) -> None:
        """Get the token. Raises NotPrepared."""
        token = await self._provider.token()
        if not _TOKEN.fullmatch(token.value):
            raise NotPrepared("the token has characters that a bearer token cannot have")
        self._exchange = OAuthBearerClient(token, self._extensions)

    @property
    def complete(self) -> bool:
        return self._exchange is not None and self._exchange.complete

    def first(self) -> bytes:
        return self._prepared().first()

    def receive(self, challenge: bytes) -> bytes | None:
        return self._prepared().receive(challenge)

    def _prepared(self) -> OAuthBearerClient:
        assert self._exchange is not None, "prepare() comes first"
        return self._exchange


def oauth_login(
    values: Mapping[str, str],
    options: Mapping[str, str],
    world: World,
    *,
    callback: TokenCallback | None = None,
    allowed: str | None = None,
) -> OAuthLogin:
    """The login of a client by its values and by the options of its OAuthBearerLoginModule; or by `callback`, a
    function of the application that returns a token. Raises SettingsError.

    `allowed`: the only URLs that a token, and files that an assertion may come from, if the values do not say so
    themselves; None: all.
    """
    values = of_mechanism(values)
    provider = CallbackTokens(callback) if callback else _provider(values, options, world, allowed)
    extensions = {
        name.removeprefix(prefix): text
        for name, text in options.items()
        for prefix in _EXTENSION_OPTIONS
        if name.startswith(prefix)
    }
    try:
        return OAuthLogin(RefreshingTokens(provider, world, _refresh_rules(values)), extensions)
    except ValueError as error:
        raise SettingsError(str(error), "sasl.jaas.config") from None


def _provider(
    values: Mapping[str, str], options: Mapping[str, str], world: World, allowed: str | None
) -> TokenProvider:
    check_class(values, "sasl.login.callback.handler.class", HANDLERS)
    retriever = check_class(values, RETRIEVER, tuple(RETRIEVERS)) or next(iter(RETRIEVERS))
    url = values.get(TOKEN_URL, "").strip()
    if not url:
        return _unsecured(options, world)
    check_url(TOKEN_URL, url, values.get(ALLOWED_URLS, allowed))
    claims = Claims(
        values.get(f"{PREFIX}scope.claim.name", "").strip() or "scope",
        values.get(f"{PREFIX}sub.claim.name", "").strip() or "sub",
    )
    path = path_of(url)
    if RETRIEVERS[retriever] not in (None, path is not None):
        raise SettingsError(f"not a URL for {retriever}", TOKEN_URL, url)
    if path is not None:
        return FileTokens(world, path, claims)
    base = HttpRequest(
        url,
        tls=tls_of(options),
        seconds=whole_number(values, "sasl.login.read.timeout.ms", EXCHANGE_SECONDS * 1000, 1) / 1000,
        connect_seconds=whole_number(values, "sasl.login.connect.timeout.ms", CONNECT_SECONDS * 1000, 1) / 1000,
    )
    allowed_files = values.get(ALLOWED_FILES, allowed)
    if retriever == JWT_BEARER:
        scope = values.get(f"{PREFIX}scope", "").strip() or None
        account: ProviderAccount = JwtBearer(assertions_of(values, world, allowed_files), scope)
    else:
        account = _account(values, options, world, allowed_files)
    return EndpointTokens(world, base, account, claims, _retry_times(values))


def _account(
    values: Mapping[str, str], options: Mapping[str, str], world: World, allowed_files: str | None
) -> ProviderAccount:
    """A file of assertions goes before assertions that are made here, and those before a secret."""
    client_id = (values.get(CLIENT_ID) or options.get("clientId") or "").strip()
    scope = (values.get(f"{PREFIX}scope") or options.get("scope") or "").strip() or None
    if values.get(ASSERTION_FILE, "").strip() or ISSUER in values:
        return ClientAssertion(assertions_of(values, world, allowed_files), client_id or None, scope)
    secret = (values.get(CLIENT_SECRET) or options.get("clientSecret") or "").strip()
    if not client_id or not secret:
        raise SettingsError("missing, and the token endpoint needs it", CLIENT_SECRET if client_id else CLIENT_ID)
    url_encode = values.get(f"{PREFIX}header.urlencode", "").strip().lower() == "true"
    return ClientSecret(client_id, secret, scope, url_encode)


def _unsecured(options: Mapping[str, str], world: World) -> UnsecuredLogin:
    principal_claim = options.get("unsecuredLoginPrincipalClaimName", "").strip() or "sub"
    claims: dict[str, Any] = {}
    for name, text in options.items():
        kind, _, claim = name.partition("_")
        if claim in ("iat", "exp"):
            raise SettingsError(f"the claim {claim!r} is set by the lifetime", "sasl.jaas.config")
        if kind == "unsecuredLoginStringClaim":
            claims[claim] = text
        elif kind == "unsecuredLoginNumberClaim":
            claims[claim] = fraction(options, name, 0, -MOST_NUMBER, MOST_NUMBER)
        elif kind == "unsecuredLoginListClaim":
            claims[claim] = text[1:].split(text[0]) if len(text) > 1 else []
    if principal_claim not in claims:
        raise SettingsError(
            f"no token: neither a token endpoint, nor an option unsecuredLoginStringClaim_{principal_claim}", TOKEN_URL
        )
    lifetime_seconds = whole_number(options, "unsecuredLoginLifetimeSeconds", 3600, 1)
    return UnsecuredLogin(claims, world.wall_clock, lifetime_seconds=lifetime_seconds, principal_claim=principal_claim)


def _retry_times(values: Mapping[str, str]) -> RetryTimes:
    return RetryTimes(
        max(1, whole_number(values, "sasl.login.retry.backoff.ms", 100)),
        whole_number(values, "sasl.login.retry.backoff.max.ms", 10_000),
    )


def _refresh_rules(values: Mapping[str, str]) -> RefreshRules:
    return RefreshRules(
        fraction(values, "sasl.login.refresh.window.factor", 0.8, 0.5, 1.0),
        fraction(values, "sasl.login.refresh.window.jitter", 0.05, 0.0, 0.25),
        min(whole_number(values, "sasl.login.refresh.min.period.seconds", _MINUTE_SECONDS), 15 * _MINUTE_SECONDS),
        min(whole_number(values, "sasl.login.refresh.buffer.seconds", 5 * _MINUTE_SECONDS), 60 * _MINUTE_SECONDS),
    )
