"""A broker's way to itself: calls as over `runtime.channel.Channel`, without a connection or bytes.

Requests reach their handlers as messages, and begin in the turn in which they are made. Knows no API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from protocol.schema import Message
from runtime.channel import CallTimedOut
from runtime.server import Steps

Serve = Callable[[Any, Callable[[Message], None]], Steps | None]
"""Takes a request, and what is to be called with its response, now or later. Gives the steps that remain, if any."""


class OwnChannel:
    """For one kind of request."""

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
        """There is nothing to close."""
