"""Servers and channels over TLS: who may connect, as whom, and the one line that says why not."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from cryptography import x509
from cryptography.x509.oid import NameOID

from barnabas.runtime.channel import Channel, NotSent
from barnabas.runtime.metrics import render
from barnabas.runtime.real import real_world
from barnabas.runtime.refused_peers import QUIET_MS
from barnabas.runtime.security import HANDSHAKE_SECONDS, HandshakeFailed
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.tls.connection import TlsConnection
from barnabas.runtime.tls.contexts import readable
from barnabas.runtime.tls.listener import TlsListenerSecurity, options_of_listener
from barnabas.runtime.tls.metrics import certificate_families, handshake_families
from barnabas.runtime.tls.options import TlsConfigError
from barnabas.runtime.world import Connection, ConnectionLost
from barnabas.security.certificates import Purpose, make_certificate
from tests.runtime.conftest import Two
from tests.runtime.test_server import Peer, request_frame
from tests.runtime.tls.stage import (
    Desk,
    authority,
    certificate,
    client_security,
    expired_certificate,
    make_server,
    server_security,
    spare_key,
)

pytestmark = pytest.mark.feature("SE-02")

Play = Callable[[Callable[[Two], Awaitable[None]]], None]


class Scene:
    """A server with a TLS listener."""

    def __init__(self, two: Two, security: TlsListenerSecurity | None, nursery: trio.Nursery) -> None:
        self.two = two
        self.security = security
        self.desk = Desk()
        self.server = make_server(two.server, self.desk)
        self._nursery = nursery
        self.port = 0

    async def start(self) -> None:
        listener = await self.two.server.network.listen("", 0)
        self.port = listener.port
        self._nursery.start_soon(self.server.serve, listener, "SSL", self.security)

    async def dial(self) -> Connection:
        return await self.two.client.network.dial(self.two.host, self.port)

    async def ask(self, body: bytes = b"?", **options: object) -> bytes:
        """The answer to one request over a connection of its own. Raises HandshakeFailed or ConnectionLost."""
        security = client_security(self.two.client, **options)  # type: ignore[arg-type]
        connection = await self.dial()
        try:
            peer = Peer(await security.secure(connection, self.two.host))
            await peer.ask(request_frame(1, body))
            answer = await peer.answer()
            peer.connection.close()
            return answer[4:]
        finally:
            connection.close()


@asynccontextmanager
async def served(two: Two, **options: object) -> AsyncIterator[Scene]:
    async with trio.open_nursery() as nursery:
        scene = Scene(two, server_security(two.server, **options), nursery)  # type: ignore[arg-type]
        await scene.start()
        yield scene
        nursery.cancel_scope.cancel()


def test_requests_are_answered(play: Play) -> None:
    async def story(two: Two) -> None:
        async with served(two) as scene:
            for size in (1, 60_000, 1_500_000):
                assert await scene.ask(bytes(size)) == bytes(size)
            assert scene.desk.principals == ["User:ANONYMOUS"] * 3
            assert scene.security is not None
            assert scene.security.successful_authentications == 3
            assert scene.security.failed_authentications == 0

    play(story)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_principal_is_the_subject_of_the_clients_certificate(play: Play, version: str) -> None:
    async def story(two: Two) -> None:
        async with served(two, ssl_client_auth="required", ssl_enabled_protocols=version) as scene:
            await scene.ask(own=certificate("alice", key=2))
            assert scene.desk.principals == ["User:CN=alice"]

    play(story)


def test_rules_make_a_short_name_of_the_subject(play: Play) -> None:
    rules = "RULE:^CN=(.*?),OU=ServiceUsers$/$1/L,RULE:^CN=(\\w+)$/only-$1/"

    async def story(two: Two) -> None:
        async with served(two, ssl_client_auth="required", ssl_principal_mapping_rules=rules) as scene:
            units = [(NameOID.ORGANIZATIONAL_UNIT_NAME, "ServiceUsers"), (NameOID.COMMON_NAME, "Duke")]
            subject = x509.Name([x509.NameAttribute(*each) for each in units])
            purpose = Purpose(days=36_500)
            duke = make_certificate(authority(), subject, 946_684_800_000, purpose=purpose, key=spare_key(2))
            await scene.ask(own=duke)
            await scene.ask(own=certificate("bob", key=2))
            assert scene.desk.principals == ["User:duke", "User:only-bob"]
            with pytest.raises((ConnectionLost, HandshakeFailed)):
                await scene.ask(own=certificate("no match", key=2))
            assert scene.security is not None
            assert scene.security.failed_authentications == 1

    play(story)


def test_a_wrong_rule_is_refused_at_the_start(play: Play) -> None:
    async def story(two: Two) -> None:
        with pytest.raises(TlsConfigError, match=r"^ssl.principal.mapping.rules: 'RULE:a' is no rule"):
            server_security(two.server, ssl_principal_mapping_rules="RULE:a")

    play(story)


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_certificate_is_ignored_requested_or_required(
    play: Play, auth: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(two: Two) -> None:
        async with served(two, ssl_client_auth=auth, ssl_enabled_protocols=version) as scene:
            await scene.ask(own=certificate("alice", key=2))
            assert scene.desk.principals == ["User:ANONYMOUS" if auth == "none" else "User:CN=alice"]
            caplog.clear()
            if auth != "required":
                await scene.ask()
                assert scene.desk.principals[1:] == ["User:ANONYMOUS"]
                return
            with pytest.raises((ConnectionLost, HandshakeFailed), match=r"handshake failure|wants a certificate"):
                await scene.ask()
            assert one_line(caplog) == "the peer sent no certificate, and ssl.client.auth is required"

    play(story)


def one_line(caplog: pytest.LogCaptureFixture) -> str:
    """The one warning that was logged, without the name of the peer."""
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.exc_info is None
    before, _, reason = record.getMessage().partition(": ")
    assert before.startswith("closing the connection from ")
    assert "\n" not in reason
    return reason


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_certificate_of_another_authority_is_refused(play: Play, auth: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(two: Two) -> None:
        caplog.clear()
        async with served(two, ssl_client_auth=auth) as scene:
            stranger = certificate("stranger", signer="another authority", key=2)
            with pytest.raises((ConnectionLost, HandshakeFailed), match="does not trust our certificate"):
                await scene.ask(own=stranger)
            reason = "the peer's certificate was refused: unable to get local issuer certificate"
            assert one_line(caplog) == reason
            assert scene.security is not None
            assert scene.security.failed_authentications == 1

    play(story)


def test_a_client_refuses_a_server_that_it_does_not_trust(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def story(two: Two) -> None:
        caplog.clear()
        async with served(two) as scene:
            with pytest.raises(HandshakeFailed, match="refused: self-signed certificate in certificate chain"):
                await scene.ask(trusted=authority("another authority"))
            while scene.server.connections:
                await trio.sleep(0.001)
            assert one_line(caplog) == "the peer does not trust our certificate (alert unknown ca)"

    play(story)


@pytest.mark.parametrize("names", [("elsewhere",), ("10.9.8.7",), ()])
def test_a_client_refuses_a_server_of_another_name(play: Play, names: tuple[str, ...]) -> None:
    async def story(two: Two) -> None:
        async with served(two, own=certificate("elsewhere", names)) as scene:
            with pytest.raises(HandshakeFailed, match=r"(Hostname|IP address) mismatch, certificate is not valid for"):
                await scene.ask()
            assert await scene.ask(ssl_endpoint_identification_algorithm="") == b"?"

    play(story)


@pytest.mark.parametrize("option", ["own", "trusted"])
def test_a_certificate_that_has_expired_is_refused(play: Play, option: str) -> None:
    async def story(two: Two) -> None:
        with pytest.raises(TlsConfigError, match=r"^the certificate of 'CN=broker' has expired on 20"):
            server_security(two.server, own=expired_certificate())

    async def remote(two: Two) -> None:
        context = server_security(two.server)._holder.server_context().ssl
        expired = expired_certificate()
        with readable(expired.key_store_pem) as path:
            context.load_cert_chain(path)
        async with trio.open_nursery() as nursery:
            security = server_security(two.server)
            object.__setattr__(security._holder.server_context(), "ssl", context)
            scene = Scene(two, security, nursery)
            await scene.start()
            with pytest.raises(HandshakeFailed, match="refused: certificate has expired"):
                await scene.ask()
            nursery.cancel_scope.cancel()

    if option == "own":
        trio.run(story, here())
    else:
        play(remote)


def here() -> Two:
    return Two(real_world(), real_world(), "127.0.0.1")


@pytest.mark.parametrize(("server", "client"), [("TLSv1.2", "TLSv1.3"), ("TLSv1.3", "TLSv1.2")])
def test_ends_without_a_common_version_say_so(
    play: Play, server: str, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(two: Two) -> None:
        caplog.clear()
        async with served(two, ssl_enabled_protocols=server) as scene:
            with pytest.raises(HandshakeFailed, match="no version that is enabled here"):
                await scene.ask(ssl_enabled_protocols=client, ssl_protocol=client)
            assert "version of TLS that is enabled here (ssl.enabled.protocols)" in one_line(caplog)

    play(story)


def test_suites_of_java_are_understood_and_enforced(play: Play) -> None:
    async def story(two: Two) -> None:
        suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        async with served(two, ssl_cipher_suites=suite) as scene:
            channel = client_security(two.client)
            tls = await channel.secure(await scene.dial(), two.host)
            assert (tls.version, tls.cipher_suite) == ("TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384")  # type: ignore[attr-defined]
            tls.close()
        async with served(two, ssl_cipher_suites=f"TLS_AES_256_GCM_SHA384,{suite}") as scene:
            assert await scene.ask() == b"?"
            assert await scene.ask(ssl_protocol="TLSv1.2") == b"?"
            assert scene.security is not None
            options = scene.security._holder.server_context().ssl.options
            assert options & ssl.OP_CIPHER_SERVER_PREFERENCE
        async with served(two, ssl_cipher_suites="TLS_AES_128_GCM_SHA256") as scene:
            with pytest.raises((ConnectionLost, HandshakeFailed)):
                await scene.ask()
            assert scene.security is not None
            assert scene.security.failed_authentications == 1
        with pytest.raises(TlsConfigError, match="'TLS_NONSENSE' is not a cipher suite of this machine's OpenSSL"):
            server_security(two.server, ssl_cipher_suites="TLS_NONSENSE")

    play(story)


@pytest.mark.parametrize("first", [request_frame(1), b"\0", b"GET / HTTP/1.1\r\n\r\n"])
def test_plaintext_on_a_tls_port_is_one_line(play: Play, first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def story(two: Two) -> None:
        caplog.clear()
        async with served(two) as scene:
            peer = Peer(await scene.dial())
            await peer.ask(first)
            await peer.closed()
            if first.startswith(b"GET"):
                assert one_line(caplog) == "the peer speaks plain HTTP; this is a TLS port of the Kafka protocol"
            else:
                expected = "the peer does not speak TLS, and this is a TLS port; set security.protocol at the peer"
                assert one_line(caplog) == expected

    play(story)


def test_a_channel_without_tls_names_the_mistake(play: Play) -> None:
    async def story(two: Two) -> None:
        async with served(two) as scene, trio.open_nursery() as nursery:
            channel = Channel(two.client, nursery, two.host, scene.port, client_id="me")
            with pytest.raises(NotSent, match="the server speaks TLS on this port; use security"):
                await channel.connect(timeout_ms=5000)
            channel.close()

    play(story)


def test_tls_on_a_plaintext_port_is_one_line(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def story(two: Two) -> None:
        caplog.clear()
        async with trio.open_nursery() as nursery:
            scene = Scene(two, None, nursery)
            await scene.start()
            with pytest.raises(ConnectionLost, match="during the handshake, as a server does that does not speak TLS"):
                await scene.ask()
            assert one_line(caplog) == "the peer speaks TLS, and this is a port without it"
            nursery.cancel_scope.cancel()

    play(story)


def test_a_handshake_has_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    async def story(universe: object) -> None:
        two = Two(make_world("server", universe), make_world("client", universe), "server")
        async with served(two) as scene:
            began = trio.current_time()
            silent, halting = Peer(await scene.dial()), Peer(await scene.dial())
            await halting.ask(b"\x16\x03\x01")
            await silent.closed()
            await halting.closed()
            assert trio.current_time() - began == pytest.approx(HANDSHAKE_SECONDS, abs=0.1)
            assert scene.server.connections == 0
            assert scene.security is not None
            assert scene.security.failed_authentications == 2
            lines = {record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING}
            assert lines == {"closing the connection from client: the TLS handshake took longer than 10 s"}

    run_simulation(5, story)


def client_hello(two: Two) -> bytes:
    """The first record of a client."""
    context = client_security(two.client)._holder.client_context().ssl
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="server").do_handshake()
    return outgoing.read()


def test_half_open_handshakes_keep_nobody_out(play: Play) -> None:
    """Hundreds of peers say hello and nothing more; others are served meanwhile, old connections and new ones."""

    async def story(two: Two) -> None:
        async with trio.open_nursery() as nursery:
            security = TlsListenerSecurity(server_security(two.server)._holder, most_under_way=50)
            scene = Scene(two, security, nursery)
            await scene.start()
            old = Peer(await client_security(two.client).secure(await scene.dial(), two.host))
            hello = client_hello(two)
            half_open = []
            for _ in range(150):
                peer = Peer(await scene.dial())
                await peer.ask(hello)
                half_open.append(peer)
            for number in range(20):
                await old.ask(request_frame(number))
                await old.answer()
            assert await scene.ask(b"new") == b"new"
            assert security.handshakes_under_way <= 50
            await half_open[0].closed()
            assert security.failed_authentications >= 100
            nursery.cancel_scope.cancel()

    play(story)


def test_ten_thousand_peers_with_half_a_hello_keep_nobody_out() -> None:
    """Until a hello is whole, a connection has no TLS at all."""

    async def story(universe: Universe) -> None:
        two = Two(make_world("server", universe), make_world("client", universe), "server")
        async with trio.open_nursery() as nursery:
            scene = Scene(two, server_security(two.server), nursery)
            await scene.start()
            half = client_hello(two)[:100]
            half_open = [await scene.dial() for _ in range(10_000)]
            for connection in half_open:
                connection.send_now([half])
            assert await scene.ask(b"new") == b"new"
            assert scene.security is not None and scene.security.handshakes_under_way == 0
            await trio.sleep(HANDSHAKE_SECONDS + 1)
            assert all(connection.has_ended() for connection in half_open)
            assert scene.security.failed_authentications == 10_000
            assert await scene.ask(b"newer") == b"newer"
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


def test_no_hello_of_a_hostile_peer_is_more_than_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Hellos that are cut off, damaged, repeated, or followed by nonsense."""

    async def story(universe: Universe) -> None:
        two = Two(make_world("server", universe), make_world("client", universe), "server")
        chance = universe.stream("hostile")
        async with served(two, ssl_client_auth="required") as scene:
            hello = client_hello(two)
            for number in range(60):
                bad = bytearray(hello)
                for _ in range(chance.randint(1, 4)):
                    bad[chance.randrange(0, len(bad))] = chance.randrange(0, 256)
                bad = [bad, hello + bad, hello + hello, hello + chance.randbytes(500), bad[: len(bad) // 2]][number % 5]
                await trio.sleep(QUIET_MS / 1000)
                connection = await scene.dial()
                connection.send_now([bytes(bad)])
                caplog.clear()
                with pytest.raises(ConnectionLost):
                    while True:
                        await connection.receive_into(memoryview(bytearray(10_000)))
                connection.close()
                while scene.server.connections:
                    await trio.sleep(0.01)
                one_line(caplog)
            assert scene.desk.principals == []
            assert await scene.ask(own=certificate("alice", key=2)) == b"?"

    run_simulation(11, story)


def test_handshakes_take_turns_with_other_tasks() -> None:
    """No two steps of handshakes run in one pass of the event loop."""

    async def story(two: Two) -> None:
        async with served(two) as scene:
            hello = client_hello(two)
            steps: list[int] = []
            passes = 0

            async def count() -> None:
                nonlocal passes
                while True:
                    passes += 1
                    await trio.lowlevel.checkpoint()

            original = TlsConnection.step

            def counted(self: TlsConnection) -> bool:
                steps.append(passes)
                return original(self)

            connections = [await scene.dial() for _ in range(100)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TlsConnection, "step", counted)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(count)
                    for connection in connections:
                        connection.send_now([hello])
                    while len(steps) < 100:
                        await trio.lowlevel.checkpoint()
                    nursery.cancel_scope.cancel()
            # Within a pass, the count may come before the step or after it.
            assert all(later > earlier for earlier, later in zip(steps, steps[2:], strict=False))

    trio.run(story, here())


@pytest.mark.parametrize(
    ("protocol", "own", "expected"),
    [("SSL", None, "required"), ("SASL_SSL", None, "none"), ("SASL_SSL", "requested", "requested")],
)
def test_client_auth_of_a_node_holds_for_listeners_without_sasl(protocol: str, own: str | None, expected: str) -> None:
    raw = {"ssl.client.auth": "required", "ssl.keystore.location": "/node", "ssl.truststore.location": "/all"}
    raw["listener.name.internal.ssl.keystore.location"] = "/internal"
    if own is not None:
        raw["listener.name.internal.ssl.client.auth"] = own
    options = options_of_listener(raw, "INTERNAL", protocol)
    assert options.ssl_client_auth == expected
    assert (options.ssl_keystore_location, options.ssl_truststore_location) == ("/internal", "/all")


def test_handshakes_and_certificates_are_measured(play: Play) -> None:
    async def story(two: Two) -> None:
        async with served(two) as scene:
            await scene.ask()
            with pytest.raises(HandshakeFailed):
                await scene.ask(trusted=authority("another authority"))
            while scene.server.connections:
                await trio.sleep(0.001)
            assert scene.security is not None
            families = [
                *handshake_families({"SSL": scene.security}),
                *certificate_families({"SSL": scene.security._holder}),
            ]
            page = b"".join(stretch for family in families for stretch in render(family)).decode()
            assert (scene.security.successful_authentications, scene.security.failed_authentications) == (1, 1)
            assert 'barnabas_tls_handshakes{listener="SSL"} 0.0' in page
            found = re.search(r'^barnabas_tls_certificate_expiry_seconds{name="SSL"} (\S+)$', page, re.MULTILINE)
            assert found is not None
            assert float(found[1]) == 946_684_800 + 36_500 * 86_400

    play(story)
