"""Certificates change while a node runs: new connections use the new ones, and a broken file changes nothing."""

from __future__ import annotations

import logging
import re
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas.runtime.real import real_world
from barnabas.runtime.security import HandshakeFailed
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.tls import reload
from barnabas.runtime.tls.channel import TlsChannelSecurity
from barnabas.runtime.tls.connection import TlsConnection
from barnabas.runtime.tls.listener import TlsListenerSecurity
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import World
from barnabas.security.certificates import Certificate, Purpose, make_certificate
from tests.runtime.conftest import Two
from tests.runtime.tls.stage import (
    HOSTS,
    LONG_AGO_MS,
    authority,
    certificate,
    client_security,
    server_security,
    spare_key,
    values,
)

pytestmark = pytest.mark.feature("SE-02")

T = TypeVar("T")
KEYS, TRUST = "/data/keys.pem", "/data/trust.pem"
STORES = {
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.keystore.location": KEYS,
    "ssl.truststore.location": TRUST,
}


def put(world: World, path: str, data: bytes) -> None:
    """Write a file as a careful operator does: under another name first."""
    file = world.disk.open(path + ".new", create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()
    world.disk.rename(path + ".new", path)


def play(story: Callable[[World, World], Awaitable[None]]) -> None:
    async def simulated(universe: object) -> None:
        server, client = make_world("server", universe), make_world("client", universe)
        for world in (server, client):
            world.disk.make_directories("/data")
            put(world, KEYS, certificate().key_store_pem)
            put(world, TRUST, authority().certificate_pem)
        await story(server, client)

    run_simulation(3, simulated)


def holder(world: World, *, client: bool = False, **others: str) -> TlsHolder:
    texts = STORES | {key.replace("_", "."): text for key, text in others.items()}
    return TlsHolder(TlsOptions.of(texts), world, server=not client, client=client, name="listener SSL")


async def shown(server: World, held: TlsHolder, client: World, trusted: Certificate | None = None) -> bytes | None:
    """The certificate that a client is shown by the server now. Raises HandshakeFailed."""
    listener = await server.network.listen("", 0)
    security = TlsListenerSecurity(held)
    found: list[bytes | None] = []

    async def accept() -> None:
        accepted = await listener.accept()
        try:
            await security.secure(accepted)
        except HandshakeFailed:
            accepted.close()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            connection = await client.network.dial("server", listener.port)
            tls = await client_security(client, trusted=trusted).secure(connection, "server")
            assert isinstance(tls, TlsConnection)
            found.append(tls.peer_certificate)
            tls.close()
    except* HandshakeFailed as group:
        raise group.exceptions[0] from None
    finally:
        listener.close()
    return found[0]


def der(own: Certificate) -> bytes:
    return own.certificate.public_bytes(Encoding.DER)


def test_a_file_that_changes_is_used_for_new_connections() -> None:
    async def story(server: World, client: World) -> None:
        held = holder(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held.run)
            assert await shown(server, held, client) == der(certificate())
            before = held.server_context()
            await trio.sleep(reload.POLL_SECONDS * 3)
            assert held.server_context() is before, "nothing changed"
            renewed = certificate(key=2)
            put(server, KEYS, renewed.key_store_pem)
            await trio.sleep(reload.POLL_SECONDS + 1)
            assert await shown(server, held, client) == der(renewed)
            assert (held.reloads, held.failed_reloads) == (1, 0)
            nursery.cancel_scope.cancel()

    play(story)


def test_a_client_reads_its_changed_trust_store() -> None:
    async def story(server: World, client: World) -> None:
        stranger = certificate(signer="another authority")
        put(server, KEYS, stranger.key_store_pem)
        held, trusting = holder(server), holder(client, client=True)
        security, channel = TlsListenerSecurity(held), TlsChannelSecurity(trusting)
        listener = await server.network.listen("", 0)

        async def accept() -> None:
            while True:
                accepted = await listener.accept()
                try:
                    await security.secure(accepted)
                except HandshakeFailed:
                    accepted.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            nursery.start_soon(trusting.run)
            with pytest.raises(HandshakeFailed):
                await channel.secure(await client.network.dial("server", listener.port), "server")
            put(client, TRUST, authority().certificate_pem + authority("another authority").certificate_pem)
            await trio.sleep(reload.POLL_SECONDS + 1)
            await channel.secure(await client.network.dial("server", listener.port), "server")
            nursery.cancel_scope.cancel()

    play(story)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (b"", "0 private keys found"),
        (certificate().key_store_pem[:2_000], "private keys? found|no certificate found"),
        (certificate().key_pem + certificate(key=2).chain_pem, "the private key does not fit"),
        (None, "cannot be read: No such file"),
        (certificate("another").key_store_pem, "the subject of the new certificate is 'CN=another'.*ssl.allow.dn"),
        (certificate(names=("server",)).key_store_pem, "lacks the alternative names .*ssl.allow.san.changes"),
    ],
)
def test_a_broken_file_changes_nothing_and_is_reported_once(
    broken: bytes | None, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(server: World, client: World) -> None:
        held = holder(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held.run)
            if broken is None:
                server.disk.remove(KEYS)
            else:
                put(server, KEYS, broken)
            await trio.sleep(reload.POLL_SECONDS * 5)
            assert await shown(server, held, client) == der(certificate())
            assert (held.reloads, held.failed_reloads) == (0, 1)
            [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert line.startswith("listener SSL: the changed certificates cannot be used, and the old ones stay: ")
            assert re.search(problem, line)
            put(server, KEYS, certificate(key=2).key_store_pem)
            await trio.sleep(reload.POLL_SECONDS + 1)
            assert await shown(server, held, client) == der(certificate(key=2))
            nursery.cancel_scope.cancel()

    play(story)


def test_a_file_that_changes_while_it_is_looked_at_is_used_once_it_is_whole() -> None:
    async def story(server: World, client: World) -> None:
        renewed = certificate(key=2).key_store_pem

        async def run_blocking(work: Callable[[], T]) -> T:
            """Somebody writes right after the first look."""
            result = await server.run_blocking(work)
            if contents:
                put(server, KEYS, contents.pop())
            return result

        contents: list[bytes] = []
        held = holder(replace(server, run_blocking=run_blocking))
        put(server, KEYS, renewed)
        contents.append(b"half of a file")
        await held.look()
        put(server, KEYS, renewed)
        await held.look()
        assert await shown(server, held, client) == der(certificate(key=2))

    play(story)


def test_a_file_that_is_broken_twice_is_reported_twice(caplog: pytest.LogCaptureFixture) -> None:
    async def story(server: World, client: World) -> None:
        held = holder(server)
        for contents in (b"", certificate().key_store_pem, b""):
            put(server, KEYS, contents)
            await held.look()
        assert (held.reloads, held.failed_reloads) == (0, 2)

    play(story)


def test_the_same_path_is_read_again_when_options_are_set() -> None:
    """It works as with `kafka-configs --alter --add-config listener.name.ssl.ssl.keystore.location=…` (KIP-226)."""

    async def story(server: World, client: World) -> None:
        held = holder(server)
        put(server, KEYS, certificate(key=2).key_store_pem)
        held.adopt(await held.prepare_aside(STORES))
        assert await shown(server, held, client) == der(certificate(key=2))
        put(server, "/data/other.pem", certificate("another").key_store_pem)
        other = STORES | {"ssl.keystore.location": "/data/other.pem"}
        with pytest.raises(TlsConfigError, match=r"unless ssl.allow.dn.changes=true"):
            held.adopt(held.prepare(other))
        with pytest.raises(TlsConfigError, match="the key store cannot be removed from a running listener") as caught:
            TlsHolder(TlsOptions.of(STORES), server, client=True).prepare({})
        assert "\n" not in str(caught.value)
        assert held.options.ssl_keystore_location == KEYS
        assert await shown(server, held, client) == der(certificate(key=2))
        held.prepare(STORES)
        assert held.reloads == 1, "preparing changes nothing"

    play(story)


def test_names_may_change_if_that_is_allowed() -> None:
    async def story(server: World, client: World) -> None:
        held = holder(server, ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
        other = certificate("another", names=("server",))
        put(server, KEYS, other.key_store_pem)
        held.adopt(held.prepare(STORES))
        assert await shown(server, held, client) == der(other)

    play(story)


def test_a_certificate_may_gain_names() -> None:
    async def story(server: World, client: World) -> None:
        held = holder(server)
        wider = certificate(names=(*HOSTS, "another.example.org"))
        put(server, KEYS, wider.key_store_pem)
        held.adopt(held.prepare(STORES))
        assert await shown(server, held, client) == der(wider)

    play(story)


@pytest.mark.parametrize("auth", ["none", "required"])
def test_nodes_with_the_same_options_must_be_able_to_connect(auth: str) -> None:
    async def story(server: World, client: World) -> None:
        options = TlsOptions.of(STORES | {"ssl.client.auth": auth})
        both = TlsHolder(options, server, server=True, client=True)
        assert both.client_context().ssl.check_hostname
        put(server, KEYS, certificate(signer="another authority").key_store_pem)
        with pytest.raises(TlsConfigError, match=r"^a node with these certificates could not connect to one with the"):
            TlsHolder(options, server, server=True, client=True)
        with pytest.raises(TlsConfigError, match="could not connect"):
            both.adopt(both.prepare(STORES))
        serves_only = Purpose(client=False, days=36_500)
        one_sided = make_certificate(
            authority(), "broker", LONG_AGO_MS, names=HOSTS, purpose=serves_only, key=spare_key()
        )
        put(server, KEYS, one_sided.key_store_pem)
        if auth == "none":
            TlsHolder(options, server, server=True, client=True)
        else:
            with pytest.raises(TlsConfigError, match="refused: unsuitable certificate purpose"):
                TlsHolder(options, server, server=True, client=True)

    play(story)


def test_a_session_from_before_a_change_is_not_resumed() -> None:
    """Otherwise a client would stay authenticated whose authority is not trusted any longer."""
    world = real_world()
    security = server_security(world, ssl_client_auth="required")
    trusting = client_security(world, own=certificate("alice", key=2))._holder.client_context().ssl

    def reused(session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting.wrap_bio(back, there, server_hostname="localhost", session=session)
        server = security._holder.server_context().ssl.wrap_bio(there, back, server_side=True)
        for end in (client, server, client, server, client):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        with suppress(ssl.SSLWantReadError):
            client.read(1)
        return bool(client.session_reused), client.session

    _, session = reused(None)
    assert reused(session)[0]
    security._holder.adopt(security._holder.prepare(values(certificate(), authority())))
    assert not reused(session)[0]


def test_only_stores_can_be_reconfigured() -> None:
    async def story(server: World, client: World) -> None:
        held = holder(server)
        held.adopt(held.prepare(STORES | {"ssl.client.auth": "required", "ssl.allow.dn.changes": "true"}))
        assert held.options == TlsOptions.of(STORES)

    play(story)


def test_a_link_of_kubernetes_that_is_swapped_is_noticed(tmp_path: Path) -> None:
    """Kubernetes changes all files of a secret at once, by a symbolic link to another directory."""

    async def story() -> None:
        world = real_world()
        for number, own in enumerate([certificate(), certificate(key=2)]):
            directory = tmp_path / f"..{number}"
            directory.mkdir()
            (directory / "keys.pem").write_bytes(own.key_store_pem)
            (directory / "trust.pem").write_bytes(authority().certificate_pem)
        (tmp_path / "..data").symlink_to("..0")
        for name in ("keys.pem", "trust.pem"):
            (tmp_path / name).symlink_to(f"..data/{name}")
        places = {"ssl.keystore.location": f"{tmp_path}/keys.pem", "ssl.truststore.location": f"{tmp_path}/trust.pem"}
        held = TlsHolder(TlsOptions.of(STORES | places), world, server=True)
        before = held.server_context()
        await held.look()
        assert held.server_context() is before
        (tmp_path / "..new").symlink_to("..1")
        (tmp_path / "..new").rename(tmp_path / "..data")
        await held.look()
        assert held.server_context() is not before
        assert held.reloads == 1
        assert await shown_here(world, held) == der(certificate(key=2))

    trio.run(story)


async def shown_here(world: World, held: TlsHolder) -> bytes | None:
    two = Two(world, world, "localhost")
    listener = await two.server.network.listen("", 0)
    security = TlsListenerSecurity(held)

    async def accept() -> None:
        await security.secure(await listener.accept())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        tls = await client_security(world).secure(await world.network.dial("localhost", listener.port), "localhost")
    assert isinstance(tls, TlsConnection)
    tls.close()
    listener.close()
    return tls.peer_certificate


def test_a_certificate_that_expires_soon_is_a_warning_a_day(caplog: pytest.LogCaptureFixture) -> None:
    async def story(server: World, client: World) -> None:
        now_ms = server.wall_clock.now_ms()
        short = make_certificate(authority(), "broker", now_ms, names=HOSTS, purpose=Purpose(days=16), key=spare_key())
        put(server, KEYS, short.key_store_pem)
        held = holder(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held.run)
            await trio.sleep(1.5 * 86_400)
            assert not caplog.records
            await trio.sleep(3 * 86_400)
            put(server, KEYS, certificate().key_store_pem)
            await trio.sleep(3 * 86_400)
            nursery.cancel_scope.cancel()
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert warnings == [
            f"listener SSL: the certificate expires in {days} days; replace its file, a restart is not needed"
            for days in (13, 12, 11)
        ]

    play(story)


def test_nodes_without_tls_do_not_load_cryptography() -> None:
    modules = "barnabas.runtime.tls.listener, barnabas.runtime.tls.channel, barnabas.runtime.tls.metrics"
    check = f"import sys, {modules}; assert 'cryptography' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
