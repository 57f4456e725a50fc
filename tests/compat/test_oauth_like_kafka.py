"""OAUTHBEARER frames to Apache Kafka and to our listener: the same answers, to the byte, and the same ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
import trio

from barnabas.cluster.ports import free_base_port
from barnabas.protocol.sasl.jwt_claims import encode_unsecured
from barnabas.protocol.sasl.oauthbearer import ClientFirstMessage
from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.mechanisms import SaslPorts
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
from barnabas.settings.oauth import UNSECURED_TOKENS
from tests.compat.apache import ApacheKafka
from tests.compat.available import kafka_libs
from tests.compat.test_sasl_like_kafka import ENDED, METADATA, dialogue, prove, shake
from tests.runtime.sasl_listener import SaslServer

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("apache-kafka"), pytest.mark.feature("SE-05")]

OPTIONS = (
    'unsecuredLoginStringClaim_sub="kafka" unsecuredValidatorRequiredScope="a b"'
    ' unsecuredValidatorAllowableClockSkewMs="3000"'
)
VALUES = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    f" {OPTIONS};",
}
NOW = time.time()
CLAIMS = {"sub": "alice", "iat": NOW, "exp": NOW + 3600, "scope": ["a", "b"]}


def first(authorization_id: str = "", **claims: object) -> bytes:
    token = encode_unsecured({name: value for name, value in (CLAIMS | claims).items() if value is not None})
    return ClientFirstMessage(token, authorization_id, {"traceId": "7"}).encode()


def refused(message: bytes) -> Sequence[bytes]:
    """The client acknowledges the error, and goes on."""
    return [shake("OAUTHBEARER"), prove(message), prove(b"\x01"), METADATA]


def malformed(message: bytes) -> Sequence[bytes]:
    return [shake("OAUTHBEARER"), prove(message), METADATA]


DIALOGUES: dict[str, Sequence[bytes]] = {
    "a good token": [shake("OAUTHBEARER"), prove(first(), 0)],
    "a good token of its own name": [shake("OAUTHBEARER"), prove(first("alice"), 0)],
    "a bare token": [shake("OAUTHBEARER", 0), first()],
    "fractions": [shake("OAUTHBEARER"), prove(first(exp=NOW + 60.5), 0)],
    "a claim that nobody knows": [shake("OAUTHBEARER"), prove(first(groups=["x"], level=7, deep={"a": [1]}), 0)],
    "expired within the skew": [shake("OAUTHBEARER"), prove(first(exp=NOW - 1, iat=NOW - 100), 0)],
    "the name of another": malformed(first("bob")),
    "a token without the scope": refused(first(scope=["a"])),
    "scopes in one text": refused(first(scope="a b")),
    "an expired token": refused(first(exp=NOW - 100, iat=NOW - 200)),
    "a token of the future": refused(first(iat=NOW + 100_000)),
    "a token without an end": refused(first(exp=None)),
    "a token without a name": refused(first(sub=None)),
    "a blank name": refused(first(sub="  ")),
    "a number as the name": refused(first(sub=7)),
    "a text as the end": refused(first(exp="soon")),
    "an end before the beginning": refused(first(iat=NOW + 1, exp=NOW - 1)),
    "nonsense as the token": refused(ClientFirstMessage("x").encode()),
    "no JSON in the token": refused(ClientFirstMessage("eA.eA.").encode()),
    "a signature": refused(ClientFirstMessage(encode_unsecured(CLAIMS) + "AAAA").encode()),
    "an error in a bare token": [shake("OAUTHBEARER", 0), first(scope=["a"]), b"\x01", METADATA],
    "nothing": malformed(b""),
    "an acknowledgement of nothing": malformed(b"\x01"),
    "no token": malformed(b"n,,\x01x=y\x01\x01"),
    "channel binding": malformed(b"y,,\x01auth=Bearer x\x01\x01"),
    "another end": malformed(b"n,,\x01auth=Bearer x\x01"),
    "a bad name of an extension": malformed(b"n,,\x01auth=Bearer x\x01a1=b\x01\x01"),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    libs = kafka_libs()
    assert libs is not None
    port = free_base_port((0, 1, 2))
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{port + 1}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{port + 2}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        **{f"listener.name.sasl.{key}": value for key, value in VALUES.items()},
    }
    node = ApacheKafka(libs, tmp_path_factory.mktemp("kafka"), (port, port + 2), settings)
    node.start()
    yield node
    node.stop()


async def ours(dialogues: dict[str, Sequence[bytes]]) -> dict[str, list[bytes]]:
    world = real_world()
    ports = SaslPorts(world.chance.randbytes, servers=ProviderMechanisms(world).servers)
    server = SaslServer(world, {**VALUES, UNSECURED_TOKENS: "true"}, ports=ports)
    listener = await world.network.listen("127.0.0.1", 0)
    answers = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        for name, frames in dialogues.items():
            answers[name] = await trio.to_thread.run_sync(dialogue, listener.port, frames)
        nursery.cancel_scope.cancel()
    return answers


OTHER_SCHEME = malformed(b"n,,\x01auth=Basic x\x01\x01")
"""Kafka fails while it words the error for it, and closes the connection."""


def test_another_scheme_is_answered(kafka: ApacheKafka) -> None:
    assert len(dialogue(kafka.port + 1, OTHER_SCHEME)) == 2
    [_shaken, error, end] = trio.run(ours, {"other": OTHER_SCHEME})["other"]
    assert b"invalid credentials" in error and end == ENDED


def test_the_answers_are_those_of_kafka(kafka: ApacheKafka) -> None:
    theirs = {name: dialogue(kafka.port + 1, frames) for name, frames in DIALOGUES.items()}
    assert trio.run(ours, DIALOGUES) == theirs
