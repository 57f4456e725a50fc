"""HTTP with a provider that is slow, gone, or answers strangely: bounded in time and size, and nothing secret shown."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.runtime.sasl.http_exchange import MOST_RESPONSE_BYTES, HttpFailed, HttpRequest, exchange
from barnabas.runtime.sasl.oauth_values import tls_of
from tests.runtime.sasl.provider import Provider, running
from tests.runtime.tls.stage import authority, certificate

pytestmark = pytest.mark.feature("SE-05")


@contextmanager
def answering(data: bytes, *, drip: bytes = b"") -> Iterator[int]:
    """A server that answers one connection with `data`, and then with `drip` again and again; its port."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.recv(65536)
                    connection.sendall(data)
                    while drip and not ended.wait(0.01):
                        connection.sendall(drip)
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            thread.join()


def failure(request: HttpRequest) -> HttpFailed:
    with pytest.raises(HttpFailed) as failed:
        exchange(request)
    return failed.value


def test_a_redirect_is_not_followed() -> None:
    with running(Provider()) as provider:
        assert "status 302" in str(failure(HttpRequest(provider.url("moved"))))
        assert provider.key_requests == 0


def test_a_response_is_bounded() -> None:
    with running(Provider()) as provider:
        assert f"more than {MOST_RESPONSE_BYTES} bytes" in str(failure(HttpRequest(provider.url("huge"))))


def test_a_silent_server_is_given_up() -> None:
    with running(Provider()) as provider:
        assert "no complete response in 0.2 s" in str(failure(HttpRequest(provider.url("silent"), seconds=0.2)))


@pytest.mark.parametrize(
    ("data", "drip"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),  # a body to the end of the connection
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_a_server_that_never_ends_is_given_up(data: bytes, drip: bytes) -> None:
    with answering(data, drip=drip) as port:
        failure(HttpRequest(f"http://127.0.0.1:{port}/", seconds=0.3))


@pytest.mark.parametrize(
    "data", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", b"\xff" * 99]
)
def test_nonsense_is_a_failure(data: bytes) -> None:
    with answering(data) as port:
        failure(HttpRequest(f"http://127.0.0.1:{port}/"))


def test_a_server_without_tls_is_a_failure_of_https() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port:
        failure(HttpRequest(f"https://127.0.0.1:{port}/"))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http:///x", "http://[", "http://h:99999/", "ftp://h/"])
def test_other_urls_are_refused_for_good(url: str) -> None:
    assert failure(HttpRequest(url)).final


def test_a_failure_shows_nothing_secret() -> None:
    with running(Provider(responses=[(401, b"secret3")])) as provider:
        url = f"http://user:secret1@127.0.0.1:{provider.port}/token?key=secret2"
        request = HttpRequest(url, {"Authorization": "secret4"}, b"secret5")
        error = failure(request)
        assert error.final
        assert str(error) == f"http://127.0.0.1:{provider.port}/token: status 401"
        assert "secret" not in repr(request).replace(url, "")


@pytest.fixture
def secure_provider(tmp_path: Path) -> Iterator[Provider]:
    """A provider with a certificate of a test's authority."""
    path = tmp_path / "provider.pem"
    path.write_bytes(certificate().key_pem + certificate().chain_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    with running(Provider(tls=tls)) as provider:
        yield provider


def test_https_needs_the_authority_of_the_provider(secure_provider: Provider, tmp_path: Path) -> None:
    url = secure_provider.url("jwks")
    assert "certificate verify failed" in str(failure(HttpRequest(url)))
    pem = authority().certificate_pem.decode()
    path = tmp_path / "authority.pem"
    path.write_text(pem)
    for options in ({"ssl.truststore.location": str(path)}, {"ssl.truststore.certificates": pem}):
        assert exchange(HttpRequest(url, tls=tls_of(options))) == b'{"keys": []}'
    other = authority("another authority").certificate_pem.decode()
    assert "certificate verify failed" in str(
        failure(HttpRequest(url, tls=tls_of({"ssl.truststore.certificates": other})))
    )


def test_https_needs_the_name_of_the_provider(tmp_path: Path) -> None:
    path = tmp_path / "provider.pem"
    stranger = certificate("stranger", ("elsewhere.example",))
    path.write_bytes(stranger.key_pem + stranger.chain_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    client = tls_of({"ssl.truststore.certificates": authority().certificate_pem.decode()})
    with running(Provider(tls=server)) as provider:
        assert "not valid for '127.0.0.1'" in str(failure(HttpRequest(provider.url("jwks"), tls=client)))
