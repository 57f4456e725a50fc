"""Tokens without their signatures: malformed ones, and the claims that Kafka checks."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.sasl.jwt_claims import (
    ClaimRules,
    Jwt,
    UnsecuredRules,
    check_claims,
    check_unsecured,
    encode_unsecured,
    unverified,
)
from barnabas.protocol.sasl.oauthbearer import TokenRefused

pytestmark = pytest.mark.feature("SE-05")

NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1000
GOOD = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 3600}


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


EMPTY = part({})


def with_claims(claims: bytes) -> str:
    return f"{EMPTY}.{part(claims)}."


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


@given(st.text() | st.lists(st.binary().map(part), min_size=3, max_size=3).map(".".join))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    try:
        Jwt.parse(text)
    except TokenRefused:
        pass


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=2)
)


@given(st.dictionaries(st.sampled_from(["sub", "iat", "exp", "nbf", "aud", "iss", "scope"]), json_values))
def test_any_claims_are_accepted_or_refused(claims: dict[str, Any]) -> None:
    for check in (
        lambda: check_claims(claims, ClaimRules(), NOW_MS),
        lambda: check_unsecured(Jwt({"alg": "none"}, claims, b"", b""), UnsecuredRules(), NOW_MS),
    ):
        try:
            token = check()
        except TokenRefused:
            continue
        assert token.principal.strip() and token.expires_ms is not None and token.expires_ms > NOW_MS - 30_000


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "..",
        "a.b.c",
        f"{EMPTY}.{EMPTY}",
        f"{EMPTY}.{EMPTY}..",
        f"{EMPTY}.{EMPTY}.ü",
        f"{EMPTY}.{EMPTY}.a+b/",  # base64, but not for URLs
        with_claims(b"[]"),
        with_claims(b"[" * 20_000),  # deep
        with_claims(b'{"exp":' + b"9" * 10_000 + b"}"),
        with_claims(b'{"exp":NaN}'),
        with_claims(b'{"sub":"alice","sub":"bob"}'),
        with_claims(b"\xff"),
        with_claims(b'{"x":"' + b"x" * 100_000 + b'"}'),
    ],
)
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        Jwt.parse(token)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        (without("exp"), "no claim 'exp'"),
        (without("iat"), "no claim 'iat'"),
        (without("sub"), "no name in the claim 'sub'"),
        (GOOD | {"sub": " "}, "no name"),
        (GOOD | {"sub": 7}, "no name"),
        (GOOD | {"sub": "a\nINFO all is well"}, "printed"),
        (GOOD | {"sub": "\ud800"}, "printed"),
        (GOOD | {"exp": "tomorrow"}, "not a number"),
        (GOOD | {"exp": True}, "not a number"),
        (GOOD | {"exp": float("inf")}, "not a time"),
        (GOOD | {"exp": 10**400}, "not a time"),
        (GOOD | {"exp": -1}, "not a time"),
        (GOOD | {"iat": NOW - 60, "exp": NOW - 30}, "expired 30 s ago"),
        (GOOD | {"iat": NOW + 31}, "valid only in 31 s"),
        (GOOD | {"nbf": NOW + 31}, "valid only in 31 s"),
        (GOOD | {"exp": NOW + 5, "iat": NOW + 10}, "before 'iat'"),
        (GOOD | {"exp": NOW + 5, "nbf": NOW + 10}, "before 'iat' or 'nbf'"),
        (GOOD | {"aud": "kafka"}, "audience"),
        (GOOD | {"aud": []}, "audience"),
        (GOOD | {"scope": ""}, "empty or repeated"),
        (GOOD | {"scope": ["a", "a"]}, "empty or repeated"),
        (GOOD | {"scope": [1]}, "list of strings"),
    ],
)
def test_a_token_with_bad_claims_is_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        check_claims(claims, ClaimRules(), NOW_MS)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW - 29},  # within the skew of the clocks
        {"iat": NOW + 30},
        {"nbf": NOW + 30},
        {"exp": NOW + 0.9, "iat": NOW - 0.9},
        {"scope": "a b"},
        {"scope": ["a", "b"]},
        {"scope": 7},
        {"iss": "anybody"},
    ],
)
def test_a_token_with_good_claims_is_accepted(claims: dict[str, Any]) -> None:
    early = {"iat": NOW - 100}
    assert check_claims(GOOD | early | claims, ClaimRules(), NOW_MS).principal == "alice"


def test_the_result_is_what_the_claims_say() -> None:
    token = check_claims(GOOD | {"sub": " alice ", "scope": ["a", " b"]}, ClaimRules(), NOW_MS)
    assert (token.principal, token.expires_ms, token.starts_ms) == ("alice", (NOW + 3600) * 1000, (NOW - 10) * 1000)
    assert token.scope == {"a", "b"}


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ({"aud": "kafka", "iss": "us"}, True),
        ({"aud": ["other", "kafka"], "iss": "us"}, True),
        ({"aud": "kafka"}, False),
        ({"aud": "kafka", "iss": "them"}, False),
        ({"iss": "us"}, False),
        ({"aud": ["other"], "iss": "us"}, False),
        ({"aud": {"kafka": 1}, "iss": "us"}, False),
    ],
)
def test_audience_and_issuer_are_checked_if_they_are_set(claims: dict[str, Any], fits: bool) -> None:
    rules = ClaimRules(expected_audience=frozenset({"kafka", "events"}), expected_issuer="us")
    if fits:
        check_claims(GOOD | claims, rules, NOW_MS)
    else:
        with pytest.raises(TokenRefused):
            check_claims(GOOD | claims, rules, NOW_MS)


def test_other_claims_may_hold_subject_and_scope() -> None:
    rules = ClaimRules(scope_claim="scp", sub_claim="azp")
    token = check_claims(GOOD | {"azp": "app", "scp": ["x"]}, rules, NOW_MS)
    assert (token.principal, token.scope) == ("app", {"x"})


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        (without("exp"), "no claim 'exp'"),
        (without("sub"), "no name"),
        (GOOD | {"exp": NOW}, "expired"),
        (GOOD | {"iat": NOW + 1}, "in the future"),
        (GOOD | {"iat": NOW - 5, "exp": NOW - 5}, "expired"),
    ],
)
def test_an_unsecured_token_with_bad_claims_is_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        check_unsecured(Jwt.parse(encode_unsecured(claims)), UnsecuredRules(), NOW_MS)


def test_an_unsecured_token_needs_the_scope_of_the_listener() -> None:
    rules = UnsecuredRules(required_scope=("a", "b"))
    enough = Jwt.parse(encode_unsecured(GOOD | {"scope": ["a", "b", "c"]}))
    assert check_unsecured(enough, rules, NOW_MS).scope == set("abc")
    with pytest.raises(TokenRefused) as refused:
        check_unsecured(Jwt.parse(encode_unsecured(GOOD | {"scope": "a"})), rules, NOW_MS)
    assert refused.value.error == '{"status":"insufficient_scope", "scope":"[a, b]"}'


@pytest.mark.parametrize(("algorithm", "signature"), [("RS256", ""), ("none", "AAAA"), ("None", ""), (None, "")])
def test_an_unsecured_token_claims_no_signature(algorithm: str | None, signature: str) -> None:
    header = part({"alg": algorithm})
    token = f"{header}.{part(GOOD)}.{signature}"
    with pytest.raises(TokenRefused, match="signature"):
        check_unsecured(Jwt.parse(token), UnsecuredRules(), NOW_MS)


def test_a_client_reads_its_own_token() -> None:
    token = unverified(f"{EMPTY}.{part(GOOD)}.AAAA")
    assert (token.principal, token.expires_ms) == ("alice", (NOW + 3600) * 1000)
    with pytest.raises(TokenRefused):
        unverified("opaque")
