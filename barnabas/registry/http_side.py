"""The HTTP side of a registry: an ASGI application that reads bounded requests and writes JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

import trio

from barnabas.registry.errors import RegistryError, schema_too_large
from barnabas.runtime.http_token import CHALLENGE, HttpToken

log = logging.getLogger(__name__)

MOST_BODY_BYTES = 1 << 20
BODY_SECONDS = 10.0
JSON = "application/vnd.schemaregistry.v1+json"
_ACCEPTED = (JSON, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream")

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request; `words` are the parts of its path, decoded."""

    method: str
    words: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes
    target: str
    """Path and query as they came."""
    forwards: bool = True
    """It may be passed on to the leader: it was not passed on already."""

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A status and a body."""

    body: bytes
    status: int = 200

    @classmethod
    def of(cls, value: object, status: int = 200) -> ApiResponse:
        return cls(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"), status)


Answer = Callable[[ApiRequest], Awaitable[ApiResponse]]


class HttpSide:
    """The ASGI application."""

    def __init__(self, answer: Answer, token: HttpToken | None = None) -> None:
        """With a token, every request needs it."""
        self._answer = answer
        self._token = token

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            response = await self._respond(scope, receive)
            headers = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(response.body))]
            if response.status == 401:
                headers.append((b"www-authenticate", CHALLENGE.encode()))
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            body = b"" if scope["method"] == "HEAD" else response.body
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _respond(self, scope: Mapping[str, Any], receive: Receive) -> ApiResponse:
        try:
            headers = _headers(scope)
            if self._token is not None and not self._token.admits(headers.get("authorization", "")):
                raise RegistryError(401, "HTTP 401 Unauthorized")
            return await self._answer(await _read(scope, headers, receive))
        except RegistryError as error:
            return ApiResponse.of({"error_code": error.error_code, "message": error.message}, error.status)
        except Exception:  # a mistake of ours fails its request alone
            log.exception("%s %s failed", scope["method"], scope["path"])
            return ApiResponse.of({"error_code": 500, "message": "Internal Server Error"}, 500)


async def _live(receive: Receive, send: Send) -> None:
    while (event := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{event['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


async def _read(scope: Mapping[str, Any], headers: Mapping[str, str], receive: Receive) -> ApiRequest:
    """Raises `RegistryError` for a body that is too long, comes too slowly, or is not JSON by its type."""
    kind = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if scope["method"] in ("POST", "PUT") and kind not in _ACCEPTED:
        raise RegistryError(415, "HTTP 415 Unsupported Media Type")
    path = scope["raw_path"].partition(b"?")[0].decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    return ApiRequest(
        "GET" if scope["method"] == "HEAD" else scope["method"],
        tuple(unquote(each) for each in path.split("/") if each),
        dict(parse_qsl(query, keep_blank_values=True)),
        await _body(receive),
        path + (f"?{query}" if query else ""),
        headers.get("x-forward", "true").lower() == "true",
    )


async def _body(receive: Receive) -> bytes:
    data = bytearray()
    with trio.move_on_after(BODY_SECONDS) as patience:
        while True:
            event = await receive()
            if event["type"] != "http.request":
                raise RegistryError(400, "the client is gone")
            data += event.get("body", b"")
            if len(data) > MOST_BODY_BYTES:
                raise schema_too_large()
            if not event.get("more_body"):
                break
    if patience.cancelled_caught:
        raise RegistryError(408, f"no complete body within {BODY_SECONDS:g} s")
    return bytes(data)
