"""SASL over TLS: the listeners and channels of SASL_SSL."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.runtime.channel import AuthenticationFailed, Channel, ConnectionFailed, NotSent
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism
from barnabas.runtime.sasl.options import ClientSaslOptions
from barnabas.runtime.security import ChannelSecurity
from tests.runtime.conftest import Story, Two
from tests.runtime.sasl_listener import SaslServer
from tests.runtime.tls.stage import certificate, client_security, server_security

Play = Callable[[Story], None]


def sasl_over(inner: ChannelSecurity | None, two: Two, password: str) -> SaslChannelSecurity:
    values = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": password}
    ports = SaslPorts(two.client.chance.randbytes)
    return SaslChannelSecurity(client_mechanism(ClientSaslOptions.of(values), ports), inner)


@pytest.mark.feature("SE-03", "SE-04")
def test_the_principal_is_that_of_sasl(play: Play) -> None:
    async def story(two: Two) -> None:
        tls = server_security(two.server, ssl_client_auth="required")
        node = SaslServer(two.server, {"connections.max.reauth.ms": "1000"}, inner=tls)
        listener = await two.server.network.listen("", 0)

        def channel(security: ChannelSecurity | None) -> Channel:
            return Channel(two.client, nursery, two.host, listener.port, client_id="me", security=security)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.serve, listener, two.host)
            inner = client_security(two.client, certificate("carol", key=2))
            good = channel(sasl_over(inner, two, "alice-secret"))
            for _ in range(3):
                await good.call(MetadataRequest(), timeout_ms=5000)
                await trio.sleep(1.2)
            assert node.principals == ["User:alice"] * 3
            assert node.security.counts.successful_reauthentication == 2
            with pytest.raises(AuthenticationFailed):
                await channel(sasl_over(inner, two, "guess")).call(MetadataRequest(), timeout_ms=5000)
            with pytest.raises(ConnectionFailed):
                await channel(inner).call(MetadataRequest(), timeout_ms=5000)
            with pytest.raises(NotSent):
                await channel(sasl_over(None, two, "alice-secret")).call(MetadataRequest(), timeout_ms=5000)
            assert node.principals == ["User:alice"] * 3
            nursery.cancel_scope.cancel()

    play(story)
