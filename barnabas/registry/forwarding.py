"""Passes a write on to the registry that leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from barnabas.https import Https
from barnabas.registry import errors
from barnabas.registry.http_side import JSON, ApiRequest, ApiResponse
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.sasl.http_exchange import HttpFailed, HttpRequest, answer_of

FORWARD_SECONDS = 30.0
MOST_ANSWER_BYTES = 16 << 20

Forward = Callable[[str, ApiRequest], Awaitable[ApiResponse]]


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The way to other registries, which have the same token."""

    token: HttpToken | None = None
    https: Https | None = None

    async def forward(self, url: str, request: ApiRequest) -> ApiResponse:
        """The answer of the registry at `url`. Raises `RegistryError` if it does not answer, or if its address would
        show the token to everybody on the way."""
        if self.https is not None and not url.startswith("https://"):
            raise errors.forwarding_failed(f"the leader {url} is not reached by https")
        headers = {"Content-Type": JSON, "Accept": JSON, "X-Forward": "false"}
        if self.token is not None:
            headers["Authorization"] = self.token.authorization
        asked = HttpRequest(
            url + request.target,
            headers,
            request.body if request.method in ("POST", "PUT") else None,
            None if self.https is None else self.https.client_context(),
            seconds=FORWARD_SECONDS,
            method=request.method,
            most_bytes=MOST_ANSWER_BYTES,
        )
        try:
            answer = await trio.to_thread.run_sync(answer_of, asked)
        except HttpFailed as error:
            raise errors.forwarding_failed(f"Error while forwarding the request to the leader: {error}") from None
        return ApiResponse(answer.body, answer.status)
