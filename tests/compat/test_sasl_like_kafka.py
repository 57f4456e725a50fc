"""The same frames to Apache Kafka and to our listener: the same answers, to the byte, and the same ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import pytest
import trio

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.client_exchange import RequestEncoder
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.real import real_world
from tests.compat.apache import ApacheKafka
from tests.compat.available import kafka_libs
from tests.runtime.sasl_listener import SaslServer

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("apache-kafka")]

PORT = 21310
ENDED = b"the connection ended"
ENABLED = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
PLAIN_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";'
)
LISTENERS = {"SASL": "0", "REAUTH": "60000"}
"""Values of connections.max.reauth.ms."""


def settings_of(listener: str, max_reauth_ms: str) -> dict[str, str]:
    values = {"sasl.enabled.mechanisms": ENABLED, "connections.max.reauth.ms": max_reauth_ms}
    values |= {"plain.sasl.jaas.config": PLAIN_JAAS}
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        values[f"{mechanism}.sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {f"listener.name.{listener.lower()}.{key}": value for key, value in values.items()}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    libs = kafka_libs()
    assert libs is not None
    names = ["PLAINTEXT", *LISTENERS]
    listeners = [f"{name}://127.0.0.1:{PORT + number}" for number, name in enumerate(names)]
    controller = f"CONTROLLER://127.0.0.1:{PORT + len(names)}"
    settings = {
        "listeners": ",".join([*listeners, controller]),
        "advertised.listeners": ",".join(listeners),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,"
        "REAUTH:SASL_PLAINTEXT",
    }
    for name, max_reauth_ms in LISTENERS.items():
        settings |= settings_of(name, max_reauth_ms)
    node = ApacheKafka(libs, tmp_path_factory.mktemp("kafka"), (PORT, PORT + len(names)), settings)
    node.start()
    yield node
    node.stop()


def dialogue(port: int, frames: Sequence[bytes]) -> list[bytes]:
    """The answer to each frame, until the connection ends."""
    answers: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection, connection.makefile("rb") as received:
        for frame in frames:
            try:
                connection.sendall(len(frame).to_bytes(4, "big") + frame)
                size = received.read(4)
            except ConnectionError:
                size = b""
            if len(size) < 4:
                return [*answers, ENDED]
            answers.append(received.read(int.from_bytes(size, "big")))
    return answers


def frame_of(request: Message, version: int, claimed: int | None = None) -> bytes:
    """`claimed` is the version that the header has."""
    frame = b"".join(RequestEncoder("me").encode(API_SPECS[ApiKey(request.API_KEY)], version, request)[1])
    return frame if claimed is None else frame[:2] + claimed.to_bytes(2, "big") + frame[4:]


def shake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame_of(SaslHandshakeRequest(mechanism=mechanism), version)


def prove(token: bytes, version: int = 2) -> bytes:
    return frame_of(SaslAuthenticateRequest(auth_bytes=token), version)


VERSIONS = frame_of(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
METADATA = frame_of(MetadataRequest(topics=[]), 1)
ALICE = b"\0alice\0alice-secret"

DIALOGUES: dict[str, Sequence[bytes]] = {
    "an unknown mechanism": [shake("NOPE"), METADATA],
    "an unknown mechanism, version 0": [shake("NOPE", 0), METADATA],
    "the right password": [shake(), prove(ALICE)],
    "the right password, version 0": [shake(), prove(ALICE, 0)],
    "the right password, version 1": [shake(), prove(ALICE, 1)],
    "a bare token": [shake(version=0), ALICE],
    "a wrong password": [shake(), prove(b"\0alice\0guess"), METADATA],
    "a wrong password, version 0": [shake(), prove(b"\0alice\0guess", 0), METADATA],
    "a wrong password in a bare token": [shake(version=0), b"\0alice\0guess", METADATA],
    "an unknown user": [shake(), prove(b"\0mallory\0alice-secret"), METADATA],
    "no user": [shake(), prove(b"\0\0alice-secret"), METADATA],
    "no password": [shake(), prove(b"\0alice\0"), METADATA],
    "too few parts": [shake(), prove(b"alice\0alice-secret"), METADATA],
    "too many parts": [shake(), prove(ALICE + b"\0"), METADATA],
    "the user as the authorization id": [shake(), prove(b"alice" + ALICE)],
    "another authorization id": [shake(), prove(b"bob" + ALICE), METADATA],
    "a first message that is no SCRAM": [shake("SCRAM-SHA-256"), prove(b"hello"), METADATA],
    "channel binding": [shake("SCRAM-SHA-512"), prove(b"p=tls-unique,,n=alice,r=abc"), METADATA],
    "a request before the handshake": [METADATA],
    "a token before the handshake": [prove(ALICE)],
    "an unknown version of the handshake": [frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1, 2)],
    "an unknown version of the token": [shake(), frame_of(SaslAuthenticateRequest(auth_bytes=ALICE), 2, 3)],
    "a token of GSSAPI": [b"\x60\x82\x02\x50"],
    "an empty frame": [b""],
    "SASL after the authentication": [shake(), prove(ALICE), shake(), prove(ALICE), shake("NOPE", 0)],
}
RENEWALS: dict[str, Sequence[bytes]] = {
    "the same user": [shake(), prove(ALICE), shake(), prove(ALICE)],
    "a second renewal at once": [shake(), prove(ALICE), shake(), prove(ALICE), shake(), prove(ALICE)],
    "another user": [shake(), prove(ALICE), shake(), prove(b"\0bob\0bob-secret"), METADATA],
    "a wrong password": [shake(), prove(ALICE), shake(), prove(b"\0alice\0guess"), METADATA],
    "bare tokens": [shake(), prove(ALICE), shake(version=0), ALICE, shake()],
}
CLOSED_BY_KAFKA: dict[str, Sequence[bytes]] = {
    "an unknown mechanism": [shake(), prove(ALICE), shake("NOPE"), METADATA],
    "another mechanism": [shake(), prove(ALICE), shake("SCRAM-SHA-256"), prove(b"n,,n=alice,r=abc"), METADATA],
}
"""Renewals that Kafka ends without an answer to the last request but one. Ours says why."""


async def _ours(values: dict[str, str], dialogues: dict[str, Sequence[bytes]]) -> dict[str, list[bytes]]:
    world = real_world()
    server = SaslServer(world, values)
    listener = await world.network.listen("127.0.0.1", 0)
    answers = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        for name, frames in dialogues.items():
            answers[name] = await trio.to_thread.run_sync(dialogue, listener.port, frames)
        nursery.cancel_scope.cancel()
    return answers


def mechanisms_of(answer: bytes) -> str:
    """The names in the answer to a handshake, in their order. Kafka has them in that of a hash table."""
    return ",".join(sorted(ENABLED.split(","), key=lambda name: answer.index(name.encode())))


@pytest.mark.feature("SE-03", "SE-04", "SE-06")
@pytest.mark.parametrize(("listener", "dialogues"), [("SASL", DIALOGUES), ("REAUTH", RENEWALS)])
def test_the_answers_are_those_of_kafka(
    kafka: ApacheKafka, listener: str, dialogues: dict[str, Sequence[bytes]]
) -> None:
    port = kafka.port + 1 + list(LISTENERS).index(listener)
    theirs = {name: dialogue(port, frames) for name, frames in dialogues.items()}
    enabled = mechanisms_of(dialogue(port, [shake()])[0])
    values = {
        "sasl.enabled.mechanisms": enabled,
        "plain.sasl.jaas.config": PLAIN_JAAS,
        "connections.max.reauth.ms": LISTENERS[listener],
    }
    assert trio.run(_ours, values, dialogues) == theirs


@pytest.mark.feature("SE-03")
def test_versions_may_be_asked_for_before_the_authentication(kafka: ApacheKafka) -> None:
    dialogues = {"versions": [VERSIONS, shake(), prove(ALICE)], "versions twice": [VERSIONS, VERSIONS]}
    theirs = {name: dialogue(kafka.port + 1, frames) for name, frames in dialogues.items()}
    ours = trio.run(_ours, {}, dialogues)
    assert [len(ours[name]) for name in dialogues] == [len(theirs[name]) for name in dialogues] == [3, 2]
    assert ours["versions"][2] == theirs["versions"][2]
    assert ours["versions twice"][1] == theirs["versions twice"][1] == ENDED


@pytest.mark.feature("SE-06")
def test_a_renewal_that_kafka_only_ends_is_answered(kafka: ApacheKafka) -> None:
    theirs = {name: dialogue(kafka.port + 2, frames) for name, frames in CLOSED_BY_KAFKA.items()}
    ours = trio.run(_ours, {"connections.max.reauth.ms": LISTENERS["REAUTH"]}, CLOSED_BY_KAFKA)
    codes = {"an unknown mechanism": 33, "another mechanism": 58}
    for name, frames in CLOSED_BY_KAFKA.items():
        assert len(theirs[name]) == len(frames) - 1
        assert len(ours[name]) == len(frames)
        assert theirs[name][-1] == ours[name][-1] == ENDED
        assert codes[name].to_bytes(2, "big") in ours[name][-2][4:8]
