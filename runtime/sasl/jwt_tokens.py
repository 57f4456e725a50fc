"""Judges the bearer tokens of clients: by signature and claims; by claims alone where unsigned tokens are allowed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from barnabas.protocol.sasl.jwt_claims import ClaimRules, Jwt, UnsecuredRules, check_claims, check_unsecured
from barnabas.protocol.sasl.oauthbearer import BearerToken, TokenRefused
from barnabas.runtime.sasl.jwks import Jwks
from barnabas.runtime.sasl.verification_keys import is_asymmetric
from barnabas.runtime.world import Clock


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """Accepts tokens that the provider signed, by its public keys."""

    keys: Jwks
    rules: ClaimRules
    wall_clock: Clock

    def __call__(self, token: str) -> BearerToken:
        jwt = Jwt.parse(token)
        if not is_asymmetric(jwt.algorithm):
            raise TokenRefused("its algorithm has no public key")
        if "crit" in jwt.header:
            raise TokenRefused("its header has 'crit', which nobody here understands")
        key = self.keys.find(jwt)
        if key is None:
            raise TokenRefused("no key of the provider fits its 'kid' and 'alg'")
        if not key.verifies(jwt):
            raise TokenRefused("the signature is wrong")
        return replace(check_claims(jwt.claims, self.rules, self.wall_clock.now_ms()), value=token)


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Accepts tokens that nobody signed, and so every client that wants to be somebody: for tests."""

    rules: UnsecuredRules
    wall_clock: Clock

    def __call__(self, token: str) -> BearerToken:
        return replace(check_unsecured(Jwt.parse(token), self.rules, self.wall_clock.now_ms()), value=token)
