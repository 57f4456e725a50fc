"""An OAuth provider for tests: keys, tokens by them, and an HTTP server in a thread."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """One key per name."""
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(algorithm: str, key: Any, key_id: str | None) -> dict[str, Any]:
    """The key as a provider publishes it."""
    public = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**public, "use": "sig", **({} if key_id is None else {"kid": key_id})}


def signed(key: Any, claims: dict[str, Any], *, algorithm: str = "RS256", key_id: str | None = "one") -> str:
    return jwt.encode(claims, key, algorithm, headers={} if key_id is None else {"kid": key_id})


@dataclass
class Provider:
    """Answers requests for `/jwks` and `/token`."""

    port: int = 0
    keys: list[dict[str, Any]] = field(default_factory=list)
    responses: list[tuple[int, bytes]] = field(default_factory=list)
    """The next responses at `/token`."""
    failures: int = 0
    """Requests for `/jwks` that are still to fail."""
    key_requests: int = 0
    token_requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    """Requests for `/silent` are answered when it is set."""

    tls: ssl.SSLContext | None = None
    """With it, the provider speaks https."""

    def url(self, path: str) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}/{path}"


@contextmanager
def running(provider: Provider) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", provider.url("jwks"))
                self.end_headers()
                return
            if self.path == "/silent":
                provider.silent.wait(20)
            provider.key_requests += 1
            if provider.failures:
                provider.failures -= 1
                self._answer(503, b"")
            elif self.path == "/huge":
                self._answer(200, b" " * (2 << 20))
            else:
                self._answer(200, json.dumps({"keys": provider.keys}).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            provider.token_requests.append((dict(self.headers), body))
            self._answer(*provider.responses.pop(0))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                pass  # The client had enough.

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.port = server.server_port
    if provider.tls is not None:
        server.socket = provider.tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        provider.silent.set()
        server.shutdown()
        thread.join()
        server.server_close()
