"""SASL between channels and listeners, on this machine's network and on the simulated one."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl.session import SessionRules
from barnabas.runtime.channel import AuthenticationFailed, Channel, ConnectionFailed, NotSent
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.sasl.mechanisms import SaslPorts, TokenCredential, client_mechanism
from barnabas.runtime.sasl.options import ClientSaslOptions
from barnabas.runtime.sasl.server import MAX_DELAYED, AuthenticationCounts, authentication_families
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.world import Connection, ConnectionLost
from tests.runtime.conftest import Story, Two
from tests.runtime.sasl_listener import PLAIN_JAAS, SaslServer, Users

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SCRAM_JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}"{};'

Play = Callable[[Story], None]


class Scene:
    """A listener with SASL, and channels to it."""

    def __init__(self, two: Two, nursery: trio.Nursery, node: SaslServer, port: int) -> None:
        self.two = two
        self.nursery = nursery
        self.node = node
        self.port = port
        self.counts = node.security.counts

    def channel(self, values: dict[str, str]) -> Channel:
        two = self.two
        begin = client_mechanism(ClientSaslOptions.of(values), SaslPorts(two.client.chance.randbytes))
        return Channel(
            two.client, self.nursery, two.host, self.port, client_id="me", security=SaslChannelSecurity(begin)
        )

    def channel_of(self, mechanism: str, user: str = "alice", password: str = "alice-secret") -> Channel:
        return self.channel({"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password})

    async def dial(self) -> Connection:
        return await self.two.client.network.dial(self.two.host, self.port)


@asynccontextmanager
async def scene_of(two: Two, values: dict[str, str] | None = None, users: Users | None = None) -> AsyncIterator[Scene]:
    node = SaslServer(two.server, values, users)
    listener = await two.server.network.listen("", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.serve, listener, two.host)
        yield Scene(two, nursery, node, listener.port)
        nursery.cancel_scope.cancel()


async def ask(channel: Channel) -> None:
    answer = await channel.call(MetadataRequest(), timeout_ms=5000)
    assert [topic.name for topic in answer.topics] == ["secrets"]


async def send(connection: Connection, *frames: bytes) -> None:
    rest = memoryview(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    while rest:
        rest = rest[connection.send_now([rest]) :]
        if rest:
            await connection.wait_writable()


async def receive_all(scene: Scene, connection: Connection) -> bytes:
    """The bytes until the server closes the connection, its only one. The notice of that may be lost."""
    received, piece = b"", bytearray(4096)
    while True:
        count = 0
        with trio.move_on_after(1):
            try:
                count = await connection.receive_into(memoryview(piece))
            except ConnectionLost:
                break
        received += piece[:count]
        if not count and not scene.node.server.connections:
            break
    while scene.node.server.connections:
        await trio.sleep(0.001)
    return received


def handshake_frame(mechanism: str, version: int) -> bytes:
    name = mechanism.encode()
    return struct.pack(">hhihh", 17, version, 7, -1, len(name)) + name


METADATA_FRAME = struct.pack(">hhihi", 3, 1, 8, -1, -1)


# Authentication


@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_channel_proves_who_is_calling(play: Play, mechanism: str) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two) as scene:
            channel = scene.channel_of(mechanism)
            await ask(channel)
            await ask(channel)
            assert scene.node.principals == ["User:alice"] * 2
            assert (scene.counts.successful, scene.counts.failed, scene.counts.successful_no_reauth) == (1, 0, 0)

    play(story)


@pytest.mark.feature("SE-03", "SE-04")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(play: Play, mechanism: str, user: str) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two) as scene:
            with pytest.raises(AuthenticationFailed) as failure:
                await ask(scene.channel_of(mechanism, user, "guess"))
            assert failure.value.error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert failure.value.error.message == (
                "Authentication failed: Invalid username or password"
                if mechanism == "PLAIN"
                else "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + mechanism
            )
            assert scene.node.principals == []
            assert (scene.counts.successful, scene.counts.failed) == (0, 1)

    play(story)


@pytest.mark.feature("SE-03")
def test_a_mechanism_that_is_not_enabled(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN"}) as scene:
            with pytest.raises(AuthenticationFailed, match="enabled: SCRAM-SHA-512, PLAIN") as failure:
                await ask(scene.channel_of("SCRAM-SHA-256"))
            assert failure.value.error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM

    play(story)


@pytest.mark.feature("SE-04")
def test_a_delegation_token_stands_for_its_owner(play: Play) -> None:
    users = Users()

    async def story(two: Two) -> None:
        now_ms = two.server.wall_clock.now_ms()
        users.tokens["token-1"] = TokenCredential(b"hmac", "alice", now_ms + 60_000)
        users.tokens["token-2"] = TokenCredential(b"hmac", "alice", now_ms)
        async with scene_of(two, None, users) as scene:

            def channel_with(token_id: str, extension: str = " tokenauth=true") -> Channel:
                jaas = SCRAM_JAAS.format(token_id, "aG1hYw==", extension)
                return scene.channel({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas})

            await ask(channel_with("token-1"))
            await ask(channel_with("token-1"))
            assert scene.node.principals == ["User:alice"] * 2
            assert scene.node.token_authenticated == [True, True]
            for refused in (channel_with("token-1", ""), channel_with("token-2"), channel_with("token-3")):
                with pytest.raises(AuthenticationFailed, match="invalid credentials"):
                    await ask(refused)

    play(story)


@pytest.mark.feature("SE-03")
def test_the_jaas_configuration_of_a_node_serves_both_ends(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two) as scene:
            options = ClientSaslOptions.of_listener({"plain.sasl.jaas.config": PLAIN_JAAS}, "PLAIN")
            security = SaslChannelSecurity(client_mechanism(options, SaslPorts(two.client.chance.randbytes)))
            await ask(Channel(two.client, scene.nursery, two.host, scene.port, client_id="me", security=security))
            assert scene.node.principals == ["User:alice"]

    play(story)


# The edges of an authentication


@pytest.mark.feature("SE-03")
@pytest.mark.parametrize(
    "frames",
    [
        [METADATA_FRAME],
        [handshake_frame("PLAIN", 0), b"\0alice\0guess", METADATA_FRAME],
        [b"\x60\x82\x02\x50"],
        [b"x" * 600_000],
    ],
)
def test_no_request_gets_past_a_listener(play: Play, frames: list[bytes]) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two) as scene:
            connection = await scene.dial()
            await _send_if_open(connection, *frames)
            answers = await receive_all(scene, connection)
            assert len(answers) == (0 if len(frames) == 1 else 4 + 4 + 2 + 4 + 7 + 15 + 15)
            assert scene.node.principals == []

    play(story)


async def _send_if_open(connection: Connection, *frames: bytes) -> None:
    try:
        await send(connection, *frames)
    except ConnectionLost:
        pass


def test_a_first_handshake_may_be_followed_at_once_by_all_the_rest(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two) as scene:
            connection = await scene.dial()
            await send(connection, handshake_frame("PLAIN", 0), b"\0alice\0alice-secret", METADATA_FRAME)
            while not scene.node.principals:
                await trio.sleep(0.001)
            assert scene.node.principals == ["User:alice"]
            assert scene.counts.successful_no_reauth == 1
            connection.close()

    play(story)


@pytest.mark.feature("SE-03")
def test_a_refusal_is_answered_after_the_delay_and_then_the_connection_closes(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"connection.failed.authentication.delay.ms": "300"}) as scene:
            connection = await scene.dial()
            began = trio.current_time()
            await send(connection, handshake_frame("GSSAPI", 1), METADATA_FRAME)
            answer = await receive_all(scene, connection)
            assert trio.current_time() - began >= 0.3
            assert answer[8:10] == struct.pack(">h", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            assert len(answer) == 4 + int.from_bytes(answer[:4], "big"), "one answer"
            assert scene.node.security.delayed == 0

    play(story)


def test_many_refusals_do_not_wait(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"connection.failed.authentication.delay.ms": "3600000"}) as scene:
            scene.node.security.delayed = MAX_DELAYED
            connection = await scene.dial()
            await send(connection, handshake_frame("GSSAPI", 1))
            answer = await receive_all(scene, connection)
            assert answer[8:10] == struct.pack(">h", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            assert scene.node.security.delayed == MAX_DELAYED

    play(story)


@pytest.mark.feature("SE-03")
def test_a_listener_without_sasl_refuses_it(play: Play) -> None:
    async def story(two: Two) -> None:
        node = SaslServer(two.server)
        listener = await two.server.network.listen("", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: node.serve(listener, two.host, secured=False))
            channel = Channel(two.client, nursery, two.host, listener.port, client_id="me")
            shaken = await channel.call(SaslHandshakeRequest(mechanism="PLAIN"), timeout_ms=5000)
            assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
            proven = await channel.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), timeout_ms=5000)
            assert proven.error_code == ErrorCode.ILLEGAL_SASL_STATE
            await ask(channel)
            assert node.principals == ["User:ANONYMOUS"]
            nursery.cancel_scope.cancel()

    play(story)


def test_a_mechanism_that_breaks_lets_no_one_in(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        result = None

        def receive(self, token: bytes) -> bytes:
            raise RuntimeError("a mistake")

    async def story(two: Two) -> None:
        async with scene_of(two) as scene:
            scene.node.security.rules = SessionRules({"PLAIN": Broken}, {})
            connection = await scene.dial()
            await send(connection, handshake_frame("PLAIN", 1), token_frame(RIGHT, 1), METADATA_FRAME)
            await receive_all(scene, connection)
            assert scene.node.principals == []
            with pytest.raises(NotSent):
                await ask(scene.channel_of("PLAIN"))

    play(story)
    assert "a mistake" in caplog.text
    assert "alice-secret" not in caplog.text


# Re-authentication (KIP-368)


class Earliest(Random):
    """Draws the earliest renewal."""

    def random(self) -> float:
        return 0.0


def punctual(two: Two) -> Two:
    """On this machine's network, a client that renews 15 % of the session before its end: a busy machine is late."""
    return replace(two, client=replace(two.client, chance=Earliest())) if two.host == "127.0.0.1" else two


@pytest.mark.feature("SE-06")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_channel_renews_its_session_in_time(play: Play, mechanism: str) -> None:
    async def story(two: Two) -> None:
        async with scene_of(punctual(two), {"connections.max.reauth.ms": "3000"}) as scene:
            channel = scene.channel_of(mechanism)
            until = trio.current_time() + 6.5
            while trio.current_time() < until:
                await ask(channel)
                await trio.sleep(0.05)
            assert scene.counts.successful == 1, "one connection"
            assert scene.counts.successful_reauthentication >= 2
            assert scene.counts.failed_reauthentication == 0
            assert scene.counts.expired_connections_killed == 0
            assert set(scene.node.principals) == {"User:alice"}

    play(story)


@pytest.mark.feature("SE-06")
def test_calls_under_way_survive_a_renewal(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(punctual(two), {"scram-sha-256.connections.max.reauth.ms": "3000"}) as scene:
            channel = scene.channel_of("SCRAM-SHA-256")
            answered: list[object] = []

            async def ask_for(seconds: float) -> None:
                until = trio.current_time() + seconds
                while trio.current_time() < until:
                    await ask(channel)

            async def ask_now_for(seconds: float) -> None:
                """By the way of producers and fetchers, which cannot wait."""
                until = trio.current_time() + seconds
                sent = 0
                while trio.current_time() < until:
                    channel.send_now(MetadataRequest(), answered.append, timeout_ms=5000)
                    sent += 1
                    await trio.sleep(0.002)
                while len(answered) < sent:
                    await trio.sleep(0.01)

            await ask(channel)
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(ask_for, 6.5)
                nursery.start_soon(ask_now_for, 6.5)
            assert [each for each in answered if isinstance(each, Exception)] == []
            assert (scene.counts.successful, scene.counts.failed_reauthentication) == (1, 0)
            assert scene.counts.successful_reauthentication >= 2

    play(story)


@pytest.mark.feature("SE-06")
def test_an_idle_channel_renews_its_session_at_the_next_call(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"connections.max.reauth.ms": "500"}) as scene:
            channel = scene.channel_of("PLAIN")
            for _ in range(3):
                await ask(channel)
                await trio.sleep(1)
            assert (scene.counts.successful, scene.counts.successful_reauthentication) == (1, 2)
            assert scene.counts.expired_connections_killed == 0

    play(story)


@pytest.mark.feature("SE-06")
def test_a_client_that_does_not_renew_its_session_is_cut_off(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"connections.max.reauth.ms": "300"}) as scene:
            connection = await scene.dial()
            await send(connection, handshake_frame("PLAIN", 0), b"\0alice\0alice-secret", METADATA_FRAME)
            while not scene.node.principals:
                await trio.sleep(0.001)
            await trio.sleep(0.4)
            await send(connection, METADATA_FRAME)
            await receive_all(scene, connection)
            assert len(scene.node.principals) == 1
            assert scene.counts.expired_connections_killed == 1

    play(story)


@pytest.mark.feature("SE-06")
def test_a_password_that_changed_ends_the_session_at_its_renewal(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"connections.max.reauth.ms": "300"}) as scene:
            channel = scene.channel_of("SCRAM-SHA-512")
            await ask(channel)
            scene.node.users.add("alice", "new secret")
            await trio.sleep(0.4)
            with pytest.raises(NotSent):
                await ask(channel)
            with pytest.raises(AuthenticationFailed):
                await ask(channel)
            assert scene.counts.failed_reauthentication == 1
            assert scene.counts.expired_connections_killed == 0

    play(story)


@pytest.mark.feature("SE-06")
def test_requests_without_an_answer_wait_for_a_renewal(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"connections.max.reauth.ms": "400"}) as scene:
            channel = scene.channel_of("PLAIN")
            for _ in range(3):
                await ask(channel)
                await trio.sleep(0.5)
                for _ in range(3):
                    await channel.send_unanswered(ProduceRequest(acks=0, timeout_ms=1), timeout_ms=5000)
            await ask(channel)
            assert scene.node.produced == 9
            assert (scene.counts.successful, scene.counts.expired_connections_killed) == (1, 0)
            assert scene.counts.successful_reauthentication >= 2

    play(story)


def test_a_renewal_that_breaks_ends_the_connection_only(play: Play) -> None:
    class Forgetful:
        """Knows the password once per connection."""

        name = "PLAIN"
        begun = 0

        def __init__(self) -> None:
            self.complete = False

        def first(self) -> bytes:
            Forgetful.begun += 1
            if Forgetful.begun == 2:
                raise RuntimeError("a mistake")
            return RIGHT

        def receive(self, challenge: bytes) -> bytes | None:
            self.complete = True
            return None

    async def story(two: Two) -> None:
        Forgetful.begun = 0
        async with scene_of(two, {"connections.max.reauth.ms": "300"}) as scene:
            security = SaslChannelSecurity(lambda host: Forgetful())
            channel = Channel(two.client, scene.nursery, two.host, scene.port, client_id="me", security=security)
            await ask(channel)
            await trio.sleep(0.4)
            with pytest.raises(NotSent):
                await ask(channel)
            await ask(channel)
            assert scene.counts.successful == 2

    play(story)


def test_requests_that_wait_for_a_renewal_were_not_sent_if_the_channel_closes(play: Play) -> None:
    async def story(two: Two) -> None:
        async with scene_of(two, {"connections.max.reauth.ms": "100"}) as scene:
            channel = scene.channel_of("PLAIN")
            outcomes: list[object] = []
            for _ in range(2):  # the second renewal waits until a second is over
                await ask(channel)
                await trio.sleep(0.2)
            channel.send_now(MetadataRequest(), outcomes.append, timeout_ms=5000)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_expect, NotSent, lambda: ask(channel))
                nursery.start_soon(
                    _expect, NotSent, lambda: channel.send_unanswered(MetadataRequest(), timeout_ms=5000)
                )
                await trio.sleep(0.1)
                channel.close()
            assert [type(each) for each in outcomes] == [NotSent]
            assert not any(isinstance(each, ConnectionFailed) for each in outcomes)

    play(story)


async def _expect(kind: type[Exception], call: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(kind):
        await call()


@pytest.mark.feature("SE-03", "SE-06")
def test_the_counts_are_metrics() -> None:
    counts = AuthenticationCounts(1, 2, 3, 4, 5, 6)
    families = {family.name: family for family in authentication_families({"CLIENTS": counts})}
    assert {
        name.removeprefix("kafka_server_socketservermetrics_"): each.samples for name, each in families.items()
    } == {
        "successful_authentication": [(["CLIENTS"], 1)],
        "failed_authentication": [(["CLIENTS"], 2)],
        "successful_reauthentication": [(["CLIENTS"], 3)],
        "failed_reauthentication": [(["CLIENTS"], 4)],
        "successful_authentication_no_reauth": [(["CLIENTS"], 5)],
        "expired_connections_killed_count": [(["CLIENTS"], 6)],
    }


# Any peer

VERSIONS_FRAME = struct.pack(">hhih", 18, 0, 5, -1)
RIGHT, WRONG = b"\0alice\0alice-secret", b"\0alice\0guess"


def token_frame(token: bytes, version: int) -> bytes:
    return struct.pack(">hhihi", 36, version, 9, -1, len(token)) + token


FRAMES = [
    METADATA_FRAME,
    VERSIONS_FRAME,
    *(handshake_frame(mechanism, version) for mechanism in ("PLAIN", "SCRAM-SHA-256", "NOPE") for version in (0, 1)),
    *(token_frame(token, version) for token in (RIGHT, WRONG, b"n,,n=alice,r=abc") for version in (0, 1)),
    RIGHT,
    WRONG,
    b"",
]


@pytest.mark.feature("SE-03")
@pytest.mark.parametrize("seed", range(10))
def test_no_order_of_frames_lets_anyone_in_without_the_password(seed: int) -> None:
    """Sequences are mostly those of a client, with some frame in the wrong place."""
    served = refused = 0

    async def visit(scene: Scene, chance: Random) -> None:
        nonlocal served, refused
        frames = [VERSIONS_FRAME, handshake_frame("PLAIN", 1), token_frame(RIGHT, 1), METADATA_FRAME, METADATA_FRAME]
        for _ in range(chance.randrange(0, 3)):
            place = chance.randrange(0, len(frames))
            frames[place : place + chance.randrange(0, 2)] = [FRAMES[chance.randrange(0, len(FRAMES))]]
        before = len(scene.node.principals)
        connection = await scene.dial()
        for frame in frames:
            await _send_if_open(connection, frame)
            await trio.sleep(0.01 * chance.randrange(0, 3))
        await trio.sleep(1)
        connection.close()
        principals = scene.node.principals[before:]
        proofs = [number for number, frame in enumerate(frames) if frame.endswith(RIGHT)]
        allowed = frames[proofs[0] :].count(METADATA_FRAME) if proofs else 0
        assert principals == ["User:alice"] * len(principals), frames
        assert len(principals) <= allowed, frames
        served += bool(principals)
        refused += not principals

    async def story(universe: object) -> None:
        async with scene_of(Two(make_world("server", universe), make_world("client", universe), "server")) as scene:
            chance = Random(seed)
            for _ in range(40):
                await visit(scene, chance)

    run_simulation(seed, story)
    assert served and refused
