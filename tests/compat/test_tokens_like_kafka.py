"""Tokens are judged as by a broker of Apache Kafka, but for the differences that docs/security.md lists."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio

from barnabas.protocol.sasl.oauthbearer import TokenRefused
from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.oauth_server import JWKS_URL, oauth_listener
from barnabas.settings.oauth import ALLOWED_URLS
from tests.compat.available import kafka_libs
from tests.runtime.sasl.provider import ec_key, public_jwk, rsa_key, signed

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("java"), pytest.mark.feature("SE-05")]

PROGRAM = Path(__file__).parent / "java-tools" / "TokenJudge.java"
NOW = int(time.time())
GOOD = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 3600, "aud": "kafka", "iss": "us"}


@dataclass(frozen=True)
class Case:
    name: str
    token: str
    differs: bool = False
    """Kafka accepts it, and Barnabas does not."""


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


def with_claims(name: str, claims: dict[str, Any], *, differs: bool = False) -> Case:
    return Case(name, signed(rsa_key("one"), claims), differs)


def part(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


GOOD_FOR_ANYBODY = with_claims("no audience, other issuer", without("aud") | {"iss": "them"})

HEADER, BODY, SIGNATURE = signed(rsa_key("one"), GOOD).split(".")

CASES = [
    with_claims("good", GOOD),
    *[with_claims(f"without {name}", without(name)) for name in GOOD],
    with_claims("sub with spaces", GOOD | {"sub": " alice "}),
    with_claims("empty sub", GOOD | {"sub": ""}),
    with_claims("blank sub", GOOD | {"sub": "  "}),
    with_claims("other audience", GOOD | {"aud": "other"}),
    with_claims("one audience of several", GOOD | {"aud": ["other", "kafka"]}),
    with_claims("no audience of several", GOOD | {"aud": ["other"]}),
    with_claims("other issuer", GOOD | {"iss": "them"}),
    with_claims("expired", GOOD | {"exp": NOW - 120, "iat": NOW - 600}),
    with_claims("expired within the skew", GOOD | {"exp": NOW - 5}),
    with_claims("not valid yet", GOOD | {"nbf": NOW + 600}),
    with_claims("not valid yet, within the skew", GOOD | {"nbf": NOW + 15}),
    with_claims("expires before it is valid", GOOD | {"nbf": NOW + 20, "exp": NOW + 10}),
    with_claims("expires before it was issued", GOOD | {"iat": NOW + 20, "exp": NOW + 10}),
    with_claims("issued in the future", GOOD | {"iat": NOW + 600}, differs=True),
    with_claims("fractions", GOOD | {"exp": NOW + 3600.75, "iat": NOW - 0.5}),
    with_claims("one scope", GOOD | {"scope": "a b"}),
    with_claims("scopes", GOOD | {"scope": ["a", "b"]}),
    with_claims("repeated scope", GOOD | {"scope": ["a", "a"]}),
    with_claims("empty scope", GOOD | {"scope": ""}),
    with_claims("empty scope of several", GOOD | {"scope": ["a", " "]}),
    with_claims("no scopes", GOOD | {"scope": []}),
    with_claims("strange scope", GOOD | {"scope": 7}),
    with_claims("a line break in the name", GOOD | {"sub": "al\nice"}, differs=True),
    Case("another key", signed(rsa_key("two"), GOOD)),
    Case("another key's id", signed(rsa_key("one"), GOOD, key_id="curve")),
    Case("an unknown id", signed(rsa_key("one"), GOOD, key_id="unknown")),
    Case("no id", signed(ec_key(), GOOD, algorithm="ES256", key_id=None)),
    Case("elliptic curve", signed(ec_key(), GOOD, algorithm="ES256", key_id="curve")),
    Case("PS384", signed(rsa_key("one"), GOOD, algorithm="PS384")),
    Case("none", jwt.encode(GOOD, None, "none", headers={"kid": "one"})),
    Case("an algorithm that the key is not for", signed(rsa_key("strict"), GOOD, key_id="strict"), differs=True),
    Case("critical header", jwt.encode(GOOD, rsa_key("one"), "RS256", headers={"kid": "one", "crit": ["x"], "x": 1})),
    Case("no signature", f"{HEADER}.{BODY}."),
    Case("two parts", f"{HEADER}.{BODY}"),
    Case("other claims", f"{HEADER}.{part(json.dumps(GOOD | {'sub': 'bob'}).encode())}.{SIGNATURE}"),
    Case("no token", "nonsense"),
]


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
@pytest.mark.parametrize(("audience", "issuer"), [("kafka", "us"), ("", "")], ids=["expected", "any"])
def test_tokens_are_judged_as_by_kafka(tmp_path: Path, audience: str, issuer: str) -> None:
    keys = tmp_path / "keys.json"
    strict = {**public_jwk("RS256", rsa_key("strict"), "strict"), "alg": "RS512"}
    rsa, curve = public_jwk("RS256", rsa_key("one"), "one"), public_jwk("ES256", ec_key(), "curve")
    keys.write_text(json.dumps({"keys": [rsa, curve, strict]}))
    cases = CASES
    if not audience:
        # A token for somebody is refused by a listener that has no audience, so most cases would say little.
        cases = [GOOD_FOR_ANYBODY, *[case for case in CASES if case.name in ("good", "without aud", "other issuer")]]
    arguments = (keys.as_uri(), audience, issuer)
    theirs = judged_by_kafka(*arguments, [case.token for case in cases])
    ours = trio.run(judged_here, *arguments, [case.token for case in cases])
    differences = []
    for case, kafkas, mine in zip(cases, theirs, ours, strict=True):
        if (kafkas != mine) != case.differs or (case.differs and not kafkas.startswith("accepted")):
            differences.append(f"{case.name}: Kafka {kafkas!r}, Barnabas {mine!r}")
    assert not differences, "\n".join(differences)


def judged_by_kafka(url: str, audience: str, issuer: str, tokens: list[str]) -> list[str]:
    command = ["java", f"-D{ALLOWED_URLS}={url}", "-cp", f"{kafka_libs()}/*", str(PROGRAM), url, audience, issuer]
    done = subprocess.run(command, input="\n".join(tokens), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.split()[0] in ("accepted", "refused", "failed")]
    return [line if line.startswith("accepted") else "refused" for line in lines]


async def judged_here(url: str, audience: str, issuer: str, tokens: list[str]) -> list[str]:
    values = {
        JWKS_URL: url,
        ALLOWED_URLS: url,
        "sasl.oauthbearer.expected.audience": audience,
        "sasl.oauthbearer.expected.issuer": issuer,
    }
    listener = oauth_listener(values, {}, real_world())
    assert listener.keys is not None
    await listener.keys.load()
    judged = []
    for token in tokens:
        try:
            accepted = listener.validate(token)
            judged.append(f"accepted {accepted.principal} {accepted.expires_ms}")
        except TokenRefused:
            judged.append("refused")
    return judged
