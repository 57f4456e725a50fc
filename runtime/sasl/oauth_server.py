"""OAUTHBEARER of one listener: which tokens it accepts, by the keys `sasl.oauthbearer.…` and the login module."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.protocol.sasl.jwt_claims import ClaimRules, UnsecuredRules
from barnabas.protocol.sasl.oauthbearer import OAuthBearerServer, ValidateToken
from barnabas.runtime.sasl.http_exchange import HttpRequest
from barnabas.runtime.sasl.jwks import FileSource, Jwks, JwksTimes, UrlSource
from barnabas.runtime.sasl.jwt_tokens import SignedTokens, UnsecuredTokens
from barnabas.runtime.sasl.numbers import whole_number
from barnabas.runtime.sasl.oauth_values import (
    KAFKAS,
    PREFIX,
    check_class,
    check_url,
    of_mechanism,
    path_of,
    tls_of,
)
from barnabas.runtime.world import World
from barnabas.settings.errors import SettingsError
from barnabas.settings.oauth import ALLOWED_URLS, UNSECURED_TOKENS

log = logging.getLogger(__name__)

CALLBACK_HANDLER = "sasl.server.callback.handler.class"
UNSECURED_HANDLER = f"{KAFKAS}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SECURED_HANDLERS = (
    f"{KAFKAS}.OAuthBearerValidatorCallbackHandler",
    f"{KAFKAS}.secured.OAuthBearerValidatorCallbackHandler",
)
VALIDATORS = (f"{KAFKAS}.DefaultJwtValidator", f"{KAFKAS}.BrokerJwtValidator")

JWKS_URL = f"{PREFIX}jwks.endpoint.url"


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
    values = of_mechanism(values)
    handler = check_class(values, CALLBACK_HANDLER, (*SECURED_HANDLERS, UNSECURED_HANDLER))
    check_class(values, f"{PREFIX}jwt.validator.class", VALIDATORS)
    url = values.get(JWKS_URL, "").strip()
    if url and handler != UNSECURED_HANDLER:
        keys = Jwks(world, _source(url, values, options, world), _times(values))
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


def _source(url: str, values: Mapping[str, str], options: Mapping[str, str], world: World) -> UrlSource | FileSource:
    check_url(JWKS_URL, url, values.get(ALLOWED_URLS, ""))
    path = path_of(url)
    if path is not None:
        return FileSource(world, path)
    return UrlSource(world, HttpRequest(url, {"Accept": "application/json"}, tls=tls_of(options)))


def _times(values: Mapping[str, str]) -> JwksTimes:
    default = JwksTimes()
    return JwksTimes(
        whole_number(values, f"{PREFIX}jwks.endpoint.refresh.ms", default.refresh_ms, 1),
        whole_number(values, f"{PREFIX}jwks.endpoint.retry.backoff.ms", default.retry_backoff_ms, 1),
        whole_number(values, f"{PREFIX}jwks.endpoint.retry.backoff.max.ms", default.retry_backoff_max_ms, 1),
    )


def _claim_rules(values: Mapping[str, str]) -> ClaimRules:
    audience = values.get(f"{PREFIX}expected.audience", "").split(",")
    rules = ClaimRules(
        expected_audience=frozenset(each.strip() for each in audience if each.strip()),
        expected_issuer=values.get(f"{PREFIX}expected.issuer", "").strip() or None,
        scope_claim=_claim_name(values, f"{PREFIX}scope.claim.name", "scope"),
        sub_claim=_claim_name(values, f"{PREFIX}sub.claim.name", "sub"),
        clock_skew_seconds=whole_number(values, f"{PREFIX}clock.skew.seconds", 30),
    )
    if not rules.expected_audience:
        log.warning("%sexpected.audience is not set: tokens that name an audience are refused", PREFIX)
    if rules.expected_issuer is None:
        log.warning("%sexpected.issuer is not set: the issuer of tokens is not checked", PREFIX)
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
