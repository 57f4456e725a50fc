"""Core: JSON Web Tokens (RFC 7519) without their signatures: their parts, and the claims that Kafka checks."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.protocol.sasl.oauthbearer import MOST_TOKEN_CHARACTERS, BearerToken, TokenRefused

NONE = "none"
"""The `alg` of a token without a signature."""

_BASE64URL = re.compile(r"[-_A-Za-z0-9]*={0,2}")
_LATEST_SECONDS = 253402300799
"""The end of the year 9999: a later time is a mistake, or wants to overflow something."""


@dataclass(frozen=True, slots=True)
class Jwt:
    """A token in compact serialization, with its parts decoded. Nobody has checked the signature."""

    header: Mapping[str, Any] = field(repr=False)
    claims: Mapping[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    """The bytes under the signature."""
    signature: bytes = field(repr=False)

    @property
    def algorithm(self) -> str:
        algorithm = self.header.get("alg")
        return algorithm if isinstance(algorithm, str) else ""

    @property
    def key_id(self) -> str | None:
        key_id = self.header.get("kid")
        return key_id if isinstance(key_id, str) else None

    @classmethod
    def parse(cls, token: str) -> Jwt:
        """Raises TokenRefused."""
        parts = token.split(".", 3) if len(token) <= MOST_TOKEN_CHARACTERS else []
        if len(parts) != 3:
            raise TokenRefused("not three parts, separated by dots")
        header, claims, signature = (_decoded(part) for part in parts)
        return cls(_members(header), _members(claims), f"{parts[0]}.{parts[1]}".encode(), signature)


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The claims a signed token must have, by the settings `sasl.oauthbearer.…`."""

    expected_audience: frozenset[str] = frozenset()
    """One of them must be in `aud`. Empty: tokens with an `aud` are refused."""
    expected_issuer: str | None = None
    scope_claim: str = "scope"
    sub_claim: str = "sub"
    clock_skew_seconds: int = 30


@dataclass(frozen=True, slots=True)
class UnsecuredRules:
    """The claims an unsigned token must have, by the options `unsecuredValidator…` of the login module."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


def check_claims(claims: Mapping[str, Any], rules: ClaimRules, now_ms: int) -> BearerToken:
    """Return what the claims of a token with a good signature say; `value` is empty. Raises TokenRefused."""
    expires, issued = _seconds(claims, "exp"), _seconds(claims, "iat")
    if expires is None or issued is None:
        raise TokenRefused("no claim 'exp'" if expires is None else "no claim 'iat'")
    starts = max(issued, _seconds(claims, "nbf") or 0)
    if expires < starts:
        raise TokenRefused("'exp' is before 'iat' or 'nbf'")
    now = now_ms // 1000
    if now - rules.clock_skew_seconds >= expires:
        raise TokenRefused(f"it expired {now - expires} s ago")
    if starts - now > rules.clock_skew_seconds:
        raise TokenRefused(f"it is valid only in {starts - now} s, by 'iat' or 'nbf'")
    _check_audience(claims.get("aud"), rules.expected_audience)
    if rules.expected_issuer is not None and claims.get("iss") != rules.expected_issuer:
        raise TokenRefused("'iss' is not the expected issuer")
    subject = _name(claims, rules.sub_claim).strip()
    return BearerToken("", subject, expires * 1000, issued * 1000, _scope(claims, rules.scope_claim))


def check_unsecured(jwt: Jwt, rules: UnsecuredRules, now_ms: int) -> BearerToken:
    """Return what an unsigned token says; `value` is empty. Raises TokenRefused."""
    if jwt.algorithm != NONE or jwt.signature:
        raise TokenRefused("it has a signature, or an algorithm other than 'none'")
    expires_ms, issued_ms = _time_ms(jwt.claims, "exp"), _time_ms(jwt.claims, "iat")
    if expires_ms is None:
        raise TokenRefused("no claim 'exp'")
    if now_ms - rules.clock_skew_ms >= expires_ms:
        raise TokenRefused(f"it expired {now_ms - expires_ms} ms ago")
    if issued_ms is not None and issued_ms > now_ms + rules.clock_skew_ms:
        raise TokenRefused(f"it was issued {issued_ms - now_ms} ms in the future")
    if issued_ms is not None and expires_ms <= issued_ms:
        raise TokenRefused("'exp' is not after 'iat'")
    principal = _name(jwt.claims, rules.principal_claim)
    scope = frozenset(each.strip() for each in _strings(jwt.claims, rules.scope_claim) if each.strip())
    if not scope.issuperset(rules.required_scope):
        raise TokenRefused("a required scope is missing", missing_scope=f"[{', '.join(rules.required_scope)}]")
    return BearerToken("", principal, expires_ms, issued_ms, scope)


def unverified(token: str, *, scope_claim: str = "scope", sub_claim: str = "sub") -> BearerToken:
    """Return a client's own token with what it says about itself. Raises TokenRefused if it is no token for Kafka."""
    claims = Jwt.parse(token).claims
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenRefused("no claim 'exp'")
    return BearerToken(
        token, _name(claims, sub_claim).strip(), expires_ms, _time_ms(claims, "iat"), _scope(claims, scope_claim)
    )


def encode_unsecured(claims: Mapping[str, Any]) -> str:
    """A token without a signature."""
    return ".".join([*(_encoded({"alg": NONE}), _encoded(claims)), ""])


def encode_signed(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A token with its signature by `sign`."""
    signed = f"{_encoded(header)}.{_encoded(claims)}"
    return f"{signed}.{urlsafe_b64encode(sign(signed.encode())).rstrip(b'=').decode()}"


def json_object(data: bytes | str) -> dict[str, Any]:
    """Parse a JSON object of somebody else. Raises ValueError."""
    try:
        value = json.loads(data, parse_constant=_no_constant, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _members(part: bytes) -> dict[str, Any]:
    try:
        return json_object(part)
    except ValueError:
        raise TokenRefused("a part is not a JSON object") from None


def _decoded(part: str) -> bytes:
    if not _BASE64URL.fullmatch(part) or len(part.rstrip("=")) % 4 == 1:
        raise TokenRefused("a part is not base64url")
    part = part.rstrip("=")
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _encoded(members: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(members, separators=(",", ":")).encode()).rstrip(b"=").decode()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member occurs twice")
    return members


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A time in whole seconds, as Kafka reads it where tokens are signed."""
    time_ms = _time_ms(claims, name)
    return None if time_ms is None else time_ms // 1000


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TokenRefused(f"{name!r} is not a number")
    if not 0 <= seconds <= _LATEST_SECONDS:
        raise TokenRefused(f"{name!r} is not a time")
    return int(seconds * 1000)


def _name(claims: Mapping[str, Any], claim: str) -> str:
    """The name of a principal. It goes into logs and messages: control characters and halves of characters do not."""
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"no name in the claim {claim!r}")
    if not name.isprintable():
        raise TokenRefused(f"the claim {claim!r} has characters that cannot be printed")
    return name


def _strings(claims: Mapping[str, Any], name: str) -> list[str]:
    """A claim that is one string or a list of strings; empty if it is something else."""
    value = claims.get(name)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        if not all(isinstance(each, str) for each in value):
            raise TokenRefused(f"{name!r} is not a list of strings")
        return value
    return []


def _scope(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    values = [each.strip() for each in _strings(claims, name)]
    if not all(values) or len(set(values)) != len(values):
        raise TokenRefused(f"{name!r} has an empty or repeated value")
    return frozenset(values)


def _check_audience(audience: Any, expected: frozenset[str]) -> None:
    if audience is None and not expected:
        return
    named = {audience} if isinstance(audience, str) else set(_strings({"aud": audience}, "aud"))
    if not named & expected:
        raise TokenRefused("'aud' is not the expected audience")
