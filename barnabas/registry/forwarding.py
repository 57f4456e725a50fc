"""Passes a write on to the registry that leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from barnabas.registry import errors
from barnabas.registry.http_side import JSON, ApiRequest, ApiResponse
from barnabas.runtime.sasl.http_exchange import HttpFailed, HttpRequest, answer_of

FORWARD_SECONDS = 30.0
MOST_ANSWER_BYTES = 16 << 20

Forward = Callable[[str, ApiRequest], Awaitable[ApiResponse]]


async def forward(url: str, request: ApiRequest) -> ApiResponse:
    """The answer of the registry at `url`. Raises `RegistryError` if it does not answer."""
    asked = HttpRequest(
        url + request.target,
        {"Content-Type": JSON, "Accept": JSON, "X-Forward": "false"},
        request.body if request.method in ("POST", "PUT") else None,
        seconds=FORWARD_SECONDS,
        method=request.method,
        most_bytes=MOST_ANSWER_BYTES,
    )
    try:
        answer = await trio.to_thread.run_sync(answer_of, asked)
    except HttpFailed as error:
        raise errors.forwarding_failed(f"Error while forwarding the request to the leader: {error}") from None
    return ApiResponse(answer.body, answer.status)
