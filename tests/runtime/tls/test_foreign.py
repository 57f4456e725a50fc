"""Foreign ends of TLS over real sockets: Python's own `ssl`, and `openssl`."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from barnabas.runtime.identity import ANONYMOUS
from barnabas.runtime.real import real_world
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.tls.contexts import readable
from barnabas.runtime.tls.listener import TlsListenerSecurity
from tests.runtime.test_server import request_frame
from tests.runtime.tls.stage import Desk, authority, certificate, client_security, server_security

pytestmark = pytest.mark.feature("SE-02")

OPENSSL = shutil.which("openssl")


def trusting(**others: object) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().certificate_pem.decode())
    for name, value in others.items():
        setattr(context, name, value)
    return context


def serve(visit: Callable[[int], object], security: TlsListenerSecurity) -> Desk:
    """Serve over TLS while `visit` runs in a thread, with the port."""
    desk = Desk()

    async def main() -> None:
        world = real_world()
        listener = await world.network.listen("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(world, desk, ServerLimits()).serve, listener, "SSL", security)
            with trio.fail_after(30):
                await trio.to_thread.run_sync(visit, listener.port)
            nursery.cancel_scope.cancel()

    trio.run(main)
    return desk


def answers(tls: ssl.SSLSocket, body: bytes, size: int) -> bytes:
    """Send a request, and read `size` bytes of answers."""
    tls.sendall(request_frame(1, body))
    got = bytearray()
    while len(got) < size:
        piece = tls.recv(1 << 20)
        assert piece, "the server closed"
        got += piece
    return bytes(got)


def echoed(tls: ssl.SSLSocket, body: bytes) -> bool:
    return answers(tls, body, len(body) + 8)[8:] == body


def connect(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    return context.wrap_socket(plain, server_hostname="localhost", session=session)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_pythons_own_client_gets_large_answers(version: ssl.TLSVersion) -> None:
    def visit(port: int) -> None:
        with connect(port, trusting(minimum_version=version, maximum_version=version)) as tls:
            assert tls.version() == version.name.replace("_", ".")
            for size in (0, 60, 1_000_000, 7_654_321):
                assert echoed(tls, bytes(size))

    desk = serve(visit, server_security(real_world()))
    assert desk.principals == [str(ANONYMOUS)] * 4


def test_many_requests_in_one_record_are_all_answered() -> None:
    def visit(port: int) -> None:
        with connect(port, trusting()) as tls:
            tls.sendall(request_frame(1, b"first") * 300)
            assert len(answers(tls, b"last", 300 * 13 + 12)) == 300 * 13 + 12

    assert len(serve(visit, server_security(real_world())).principals) == 301


def test_bytes_that_come_one_by_one_are_understood() -> None:
    """The handshake and a request, in pieces of one byte each."""

    def visit(port: int) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")

        def until_done(step: Callable[[], object]) -> object:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    for byte in outgoing.read():
                        plain.sendall(bytes([byte]))
                    incoming.write(plain.recv(65536))

        until_done(tls.do_handshake)
        tls.write(request_frame(1, b"?"))
        assert until_done(lambda: tls.read(100)) == b"\0\0\0\5\0\0\0\1?"
        plain.close()

    serve(visit, server_security(real_world()))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_with_its_principal(version: ssl.TLSVersion) -> None:
    def visit(port: int) -> None:
        own = certificate("alice", key=2)
        context = trusting(minimum_version=version, maximum_version=version)
        with_key(context, own.key_store_pem)
        with connect(port, context) as first:
            assert echoed(first, b"first")
            session = first.session
        with connect(port, context, session) as second:
            assert second.session_reused
            assert echoed(second, b"second")

    desk = serve(visit, server_security(real_world(), ssl_client_auth="required"))
    assert desk.principals == ["User:CN=alice"] * 2


def with_key(context: ssl.SSLContext, pem: bytes) -> None:
    with readable(pem) as path:
        context.load_cert_chain(path)


def test_a_client_that_ends_without_notice_is_forgotten() -> None:
    def visit(port: int) -> None:
        for _ in range(3):
            tls = connect(port, trusting())
            assert echoed(tls, b"?")
            tls.detach()
        with connect(port, trusting()) as tls:
            assert echoed(tls, b"?")
            tls.unwrap().close()

    assert len(serve(visit, server_security(real_world())).principals) == 4


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl")
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_connects(version: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(authority().certificate_pem)
    (tmp_path / "own.pem").write_bytes(certificate("alice", key=2).key_store_pem)
    outputs: list[subprocess.CompletedProcess[bytes]] = []

    def visit(port: int) -> None:
        command = [
            OPENSSL,
            "s_client",
            "-connect",
            f"127.0.0.1:{port}",
            version,
            "-CAfile",
            "ca.pem",
            "-verify_return_error",
        ]
        command += ["-cert", "own.pem", "-key", "own.pem", "-quiet", "-no_ign_eof", "-verify_hostname", "localhost"]
        frames = request_frame(1, b"?" * 40_000)
        outputs.append(subprocess.run(command, input=frames, capture_output=True, cwd=tmp_path, check=False))

    desk = serve(visit, server_security(real_world(), ssl_client_auth="required"))
    assert desk.principals == ["User:CN=alice"], outputs[0].stderr


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl")
def test_a_client_may_not_renegotiate(tmp_path: Path) -> None:
    outputs: list[subprocess.CompletedProcess[bytes]] = []

    def visit(port: int) -> None:
        command = [str(OPENSSL), "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2"]
        outputs.append(subprocess.run(command, input=b"R\n", capture_output=True, timeout=20, check=False))

    serve(visit, server_security(real_world()))
    assert b"RENEGOTIATING" in outputs[0].stdout + outputs[0].stderr
    assert b"no renegotiation" in outputs[0].stderr


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl")
def test_a_channel_connects_to_openssl(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_bytes(certificate().key_store_pem)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(OPENSSL), "s_server", "-accept", f"127.0.0.1:{port}", "-cert", "own.pem", "-key", "own.pem", "-rev"]
    server = subprocess.Popen([*command, "-quiet"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def main() -> None:
        world = real_world()
        with trio.fail_after(20):
            while True:
                try:
                    connection = await world.network.dial("127.0.0.1", port)
                except Exception:
                    await trio.sleep(0.02)
                else:
                    break
            tls = await client_security(world).secure(connection, "localhost")
            assert tls.send_now([b"desserts\n"]) == 9
            got = bytearray(100)
            assert got[: await tls.receive_into(memoryview(got))] == b"stressed\n"
            tls.close()

    try:
        trio.run(main)
    finally:
        server.terminate()
        server.wait()
