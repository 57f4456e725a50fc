"""Requests that brokers forward inside an Envelope (KIP-590): unwrapped, served, and answered as bytes.

The request in an envelope is complete, with its own header, and so is its answer, which the broker passes to
its client unread. NOT_CONTROLLER is the error of the envelope itself: the broker then looks for the active
controller and retries, and the client never sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.kraft.principals import client_host, read_principal
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, MalformedMessage
from barnabas.protocol.framing import parse_request_header
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.runtime.dispatch import Call, Dispatcher, Execution, Handler
from barnabas.runtime.server import Request, Steps, Timed
from barnabas.runtime.world import Chunk, FileRegion

log = logging.getLogger(__name__)


class EnvelopeSlot:
    """The `AnswerSlot` of the request in an envelope: its content answers the envelope."""

    __slots__ = ("_envelope", "done", "timed")

    def __init__(self, envelope: Call) -> None:
        self._envelope = envelope
        self.done = False
        self.timed: Timed | None = None
        """Never called: the envelope's own answer is timed."""

    @property
    def connection_closed(self) -> bool:
        return self._envelope.slot.connection_closed

    @property
    def connection_ended(self) -> bool:
        return self._envelope.slot.connection_ended

    def grow(self, size_bytes: int) -> None:
        self._envelope.slot.grow(size_bytes)

    def mute(self, throttle_ms: int, still_held_back: Callable[[], int] | None = None) -> None:
        """The broker that forwarded the request mutes its client; its own connection serves others, too."""

    def comes_from_node(self) -> None:
        self._envelope.slot.comes_from_node()

    async def take_steps(self, steps: Steps) -> None:
        await self._envelope.slot.take_steps(steps)

    def fill(self, chunks: Sequence[Chunk]) -> None:
        # Most responses are one chunk, which may be megabytes long: it is copied once, by the encoder of any buffer.
        data: Any = _in_memory(chunks[0]) if len(chunks) == 1 else b"".join(map(_in_memory, chunks))
        self._finish(EnvelopeResponse(response_data=data))

    def refuse(self, code: ErrorCode) -> None:
        """Answer the envelope with an error of its own."""
        self._finish(EnvelopeResponse(error_code=code))

    def drop(self) -> None:
        """Every forwarded request is answered."""
        self.refuse(ErrorCode.INVALID_REQUEST)

    def abort(self, reason: str) -> None:
        """The request inside is at fault, not the broker: the broker's connection stays open."""
        log.info("forwarded request refused: %s", reason)
        self.refuse(ErrorCode.INVALID_REQUEST)

    def _finish(self, response: EnvelopeResponse) -> None:
        assert not self.done, "a forwarded request was answered twice"
        self.done = True
        self._envelope.answer(response)


def _in_memory(chunk: Chunk) -> bytes | bytearray | memoryview:
    assert not isinstance(chunk, FileRegion), "no forwarded request is answered from a file"
    return chunk


def envelope_handler(forwardable: Mapping[ApiKey, Handler], execution: Execution) -> Handler:
    """Serves envelopes by these handlers."""
    dispatcher = Dispatcher(forwardable, execution=execution)

    def open_envelope(envelope: Call) -> Steps | None:
        message: EnvelopeRequest = envelope.message
        slot = EnvelopeSlot(envelope)
        frame = memoryview(bytearray(message.request_data))
        try:
            header, position = parse_request_header(frame)
        except MalformedMessage as error:
            slot.abort(f"malformed header: {error}")
            return None
        try:
            principal = read_principal(message.request_principal)
            host = client_host(message.client_host_address)
        except MalformedMessage as error:
            log.warning("envelope from %s refused: %s", envelope.request.peer_host, error)
            slot.refuse(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
            return None
        outer = envelope.request
        inner = Request(
            header.request_api_key,
            header.request_api_version,
            header.correlation_id,
            header.client_id,
            frame[position:],
            host,
            outer.listener_name,
            outer.connection_id,
            outer.received_ms,
            principal=principal,
        )
        return dispatcher(inner, slot)

    return open_envelope
