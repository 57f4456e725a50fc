"""OAUTHBEARER over connections, real and simulated: a channel logs in, is refused, and is sent away at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.sasl.jwt_claims import encode_unsecured
from barnabas.protocol.sasl.mechanism import ClientMechanismFactory
from barnabas.protocol.sasl.oauthbearer import BearerToken
from barnabas.runtime.channel import AuthenticationFailed, Channel, ConnectionFailed
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism
from barnabas.runtime.sasl.options import ClientSaslOptions
from barnabas.runtime.sasl.prepared import NotPrepared
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms
from barnabas.runtime.world import World
from barnabas.settings.oauth import UNSECURED_TOKENS
from tests.runtime.conftest import Story, Two
from tests.runtime.sasl_listener import TOPIC, SaslServer

pytestmark = pytest.mark.feature("SE-05")

Play = Callable[[Story], None]

SKEW = 'unsecuredValidatorAllowableClockSkewMs="60000"'
"""The clocks of simulated nodes differ."""
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LISTENER = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": f"{MODULE} {SKEW};",
    UNSECURED_TOKENS: "true",
}
TIMEOUT_MS = 10_000


def ports(world: World, mechanisms: ProviderMechanisms) -> SaslPorts:
    return SaslPorts(world.chance.randbytes, servers=mechanisms.servers, clients=mechanisms.clients)


async def serve(two: Two, nursery: trio.Nursery, **values: str) -> tuple[SaslServer, int]:
    mechanisms = ProviderMechanisms(two.server)
    server = SaslServer(two.server, LISTENER | values, ports=ports(two.server, mechanisms))
    listener = await two.server.network.listen(two.host, 0)
    nursery.start_soon(mechanisms.run)
    nursery.start_soon(server.serve, listener, two.host)
    return server, listener.port


def login(world: World, jaas_options: str) -> ClientMechanismFactory:
    values = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{MODULE} {jaas_options};"}
    return client_mechanism(ClientSaslOptions.of(values), ports(world, ProviderMechanisms(world)))


def channel_to(two: Two, nursery: trio.Nursery, port: int, begin: ClientMechanismFactory) -> Channel:
    security = SaslChannelSecurity(begin)
    return Channel(two.client, nursery, two.host, port, client_id="test", security=security)


def test_a_channel_with_a_token_is_its_subject(play: Play) -> None:
    async def story(two: Two) -> None:
        async with trio.open_nursery() as nursery:
            server, port = await serve(two, nursery)
            channel = channel_to(two, nursery, port, login(two.client, 'unsecuredLoginStringClaim_sub="alice"'))
            answer = await channel.call(MetadataRequest(topics=None), timeout_ms=TIMEOUT_MS)
            assert [topic.name for topic in answer.topics] == [TOPIC]
            assert server.principals == ["User:alice"]
            nursery.cancel_scope.cancel()

    play(story)


def test_a_channel_with_a_token_that_is_refused_is_nobody(play: Play) -> None:
    async def story(two: Two) -> None:
        async with trio.open_nursery() as nursery:
            jaas = f'{MODULE} {SKEW} unsecuredValidatorRequiredScope="admin";'
            server, port = await serve(two, nursery, **{"oauthbearer.sasl.jaas.config": jaas})
            channel = channel_to(two, nursery, port, login(two.client, 'unsecuredLoginStringClaim_sub="alice"'))
            with pytest.raises(AuthenticationFailed) as failed:
                await channel.call(MetadataRequest(topics=None), timeout_ms=TIMEOUT_MS)
            assert failed.value.error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "insufficient_scope" in str(failed.value)
            assert server.principals == [] and server.security.counts.failed == 1
            nursery.cancel_scope.cancel()

    play(story)


def test_a_channel_without_a_token_says_so(play: Play) -> None:
    async def fails() -> BearerToken:
        raise NotPrepared("no")

    async def story(two: Two) -> None:
        async with trio.open_nursery() as nursery:
            server, port = await serve(two, nursery)
            mechanisms = ProviderMechanisms(two.client, token_callback=fails)
            begin = client_mechanism(
                ClientSaslOptions.of({"sasl.mechanism": "OAUTHBEARER"}), ports(two.client, mechanisms)
            )
            channel = channel_to(two, nursery, port, begin)
            with pytest.raises((AuthenticationFailed, ConnectionFailed, KafkaError), match="has no token"):
                await channel.call(MetadataRequest(topics=None), timeout_ms=TIMEOUT_MS)
            assert server.principals == []
            nursery.cancel_scope.cancel()

    play(story)


def test_a_session_ends_with_its_token_unless_the_channel_brings_a_new_one(play: Play) -> None:
    async def story(two: Two) -> None:
        made = []

        def token() -> BearerToken:
            made.append(len(made))
            now_ms = two.client.wall_clock.now_ms()
            claims = {"sub": "alice", "jti": len(made), "iat": now_ms / 1000, "exp": now_ms / 1000 + 2}
            return BearerToken(encode_unsecured(claims), "alice", now_ms + 2000, now_ms)

        async with trio.open_nursery() as nursery:
            # The skew is for the clocks of simulated nodes, and makes no session longer than its token.
            server, port = await serve(two, nursery)
            mechanisms = ProviderMechanisms(two.client, token_callback=token)
            options = ClientSaslOptions.of({"sasl.mechanism": "OAUTHBEARER"})
            channel = channel_to(two, nursery, port, client_mechanism(options, ports(two.client, mechanisms)))
            until = trio.current_time() + 5
            while trio.current_time() < until:
                await channel.call(MetadataRequest(topics=None), timeout_ms=TIMEOUT_MS)
                await trio.sleep(0.05)
            assert set(server.principals) == {"User:alice"} and len(made) >= 3
            assert server.security.counts.successful_reauthentication >= 2
            nursery.cancel_scope.cancel()

    play(story)
