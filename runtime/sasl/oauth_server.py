"""OAUTHBEARER of one listener: which tokens it accepts, by the keys `sasl.oauthbearer.…` and the login module."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from barnabas.protocol.sasl.jwt_claims import ClaimRules, UnsecuredRules
from barnabas.protocol.sasl.oauthbearer import OAuthBearerServer, ValidateToken
from barnabas.runtime.sasl.http_exchange import HttpRequest
from barnabas.runtime.sasl.jwks import FileSource, Jwks, JwksTimes, UrlSource
from barnabas.runtime.sasl.jwt_tokens import SignedTokens, UnsecuredTokens
from barnabas.runtime.world import World
from barnabas.settings.errors import SettingsError

log = logging.getLogger(__name__)

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""In Kafka, a property of the Java virtual machine."""
UNSECURED_TOKENS = "barnabas.oauthbearer.unsecured.tokens"
"""A key that Kafka does not have: `true` accepts tokens without signatures, as Kafka does by default."""

CALLBACK_HANDLER = "sasl.server.callback.handler.class"
_KAFKAS = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_HANDLER = f"{_KAFKAS}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SECURED_HANDLERS = (
    f"{_KAFKAS}.OAuthBearerValidatorCallbackHandler",
    f"{_KAFKAS}.secured.OAuthBearerValidatorCallbackHandler",
)

_PREFIX = "sasl.oauthbearer."
JWKS_URL = f"{_PREFIX}jwks.endpoint.url"


@dataclass(frozen=True, slots=True)
class OAuthListener:
    """OAUTHBEARER of one listener."""

    validate: ValidateToken
    keys: Jwks | None
    """None: unsigned tokens are accepted."""

    def mechanism(self) -> OAuthBearerServer:
        """Begin an exchange."""
        return OAuthBearerServer(self.validate)

    async def run(self) -> None:
        """Keep the keys of the provider until cancelled. Returns at once if there are none."""
        if self.keys is not None:
            await self.keys.run()


def oauth_listener(values: Mapping[str, str], options: Mapping[str, str], world: World) -> OAuthListener:
    """OAUTHBEARER by the values that hold for a listener and by the options of its OAuthBearerLoginModule. Raises
    SettingsError. A value for this mechanism alone (`oauthbearer.sasl.…`) takes precedence."""
    values = {
        **values,
        **{key.removeprefix("oauthbearer."): text for key, text in values.items() if key.startswith("oauthbearer.")},
    }
    handler = values.get(CALLBACK_HANDLER, "").strip()
    if handler and handler != UNSECURED_HANDLER and handler not in SECURED_HANDLERS:
        raise SettingsError(
            "unknown class", CALLBACK_HANDLER, handler, ", ".join((*SECURED_HANDLERS, UNSECURED_HANDLER))
        )
    url = values.get(JWKS_URL, "").strip()
    if url and handler != UNSECURED_HANDLER:
        keys = Jwks(world, _source(url, values, world), _times(values))
        return OAuthListener(SignedTokens(keys, _claim_rules(values), world.wall_clock), keys)
    if handler in SECURED_HANDLERS or values.get(UNSECURED_TOKENS, "").strip().lower() != "true":
        raise SettingsError(
            "OAUTHBEARER needs the keys of the provider, to check the signatures of tokens. "
            f"For tests, {UNSECURED_TOKENS}=true accepts tokens without signatures",
            JWKS_URL,
            url or None,
            "an http, https or file URL",
        )
    log.warning("%s=true: every client of this listener may be any user", UNSECURED_TOKENS)
    return OAuthListener(UnsecuredTokens(_unsecured_rules(options), world.wall_clock), None)


def check_url(key: str, url: str, allowed: str | None) -> None:
    """Raises SettingsError if `url` is not one of the allowed URLs, a list with commas; None: all are."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise SettingsError(str(error), key, url) from None
    if scheme not in ("http", "https", "file"):
        raise SettingsError("not a URL that can be used", key, url, "http, https or file")
    if allowed is not None and url not in [each.strip() for each in allowed.split(",")]:
        raise SettingsError(f"the URL is not in {ALLOWED_URLS}", key, url, allowed or "none")


def path_of(url: str) -> str | None:
    """The path of a file URL; None for other URLs."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def whole_number(values: Mapping[str, str], key: str, default: int, least: int = 0) -> int:
    """Raises SettingsError."""
    text = values.get(key, "").strip()
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise SettingsError("not a whole number in the range", key, text, f"{least} or more")
    return number


def _source(url: str, values: Mapping[str, str], world: World) -> UrlSource | FileSource:
    check_url(JWKS_URL, url, values.get(ALLOWED_URLS, ""))
    path = path_of(url)
    return (
        FileSource(world, path)
        if path is not None
        else UrlSource(world, HttpRequest(url, {"Accept": "application/json"}))
    )


def _times(values: Mapping[str, str]) -> JwksTimes:
    default = JwksTimes()
    return JwksTimes(
        whole_number(values, f"{_PREFIX}jwks.endpoint.refresh.ms", default.refresh_ms, 1),
        whole_number(values, f"{_PREFIX}jwks.endpoint.retry.backoff.ms", default.retry_backoff_ms, 1),
        whole_number(values, f"{_PREFIX}jwks.endpoint.retry.backoff.max.ms", default.retry_backoff_max_ms, 1),
    )


def _claim_rules(values: Mapping[str, str]) -> ClaimRules:
    audience = values.get(f"{_PREFIX}expected.audience", "").split(",")
    rules = ClaimRules(
        expected_audience=frozenset(each.strip() for each in audience if each.strip()),
        expected_issuer=values.get(f"{_PREFIX}expected.issuer", "").strip() or None,
        scope_claim=_claim_name(values, f"{_PREFIX}scope.claim.name", "scope"),
        sub_claim=_claim_name(values, f"{_PREFIX}sub.claim.name", "sub"),
        clock_skew_seconds=whole_number(values, f"{_PREFIX}clock.skew.seconds", 30),
    )
    if not rules.expected_audience:
        log.warning("%sexpected.audience is not set: tokens that name an audience are refused", _PREFIX)
    if rules.expected_issuer is None:
        log.warning("%sexpected.issuer is not set: the issuer of tokens is not checked", _PREFIX)
    return rules


def _claim_name(values: Mapping[str, str], key: str, default: str) -> str:
    name = values.get(key, default).strip()
    if not name:
        raise SettingsError("empty", key, allowed="the name of a claim")
    return name


def _unsecured_rules(options: Mapping[str, str]) -> UnsecuredRules:
    return UnsecuredRules(
        principal_claim=options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub",
        scope_claim=options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope",
        required_scope=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
        clock_skew_ms=whole_number(options, "unsecuredValidatorAllowableClockSkewMs", 0),
    )
