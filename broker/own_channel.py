"""`OwnChannel`: requests of a broker to itself, with the interface of `runtime.channel.Channel` but without a
connection or bytes.

Handlers get the request as a message, and begin at once. Knows no API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from barnabas.protocol.schema import Message
from barnabas.runtime.channel import CallTimedOut
from barnabas.runtime.server import Steps

Serve = Callable[[Any, Callable[[Message], None]], Steps | None]
"""Takes a request, and a callback for its response, now or later. Returns the steps that remain, if any."""


class OwnChannel:
    """Serves one kind of request."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def call(self, request: Message, *, timeout_ms: float) -> Any:
        """Raises CallTimedOut."""
        responses: list[Message] = []
        answered = trio.Event()

        def answer(response: Message) -> None:
            responses.append(response)
            answered.set()

        for _ in self._serve(request, answer) or ():
            await trio.lowlevel.checkpoint()
        with trio.move_on_after(timeout_ms / 1000):
            await answered.wait()
        if not responses:
            raise CallTimedOut(f"no answer to {type(request).__name__} within {timeout_ms} ms")
        return responses[0]

    def close(self) -> None:
        """Does nothing."""
