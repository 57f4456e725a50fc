"""From the bytes of a request to its handler, and from the handler's answer to bytes.

Versions are checked here, once. A body that does not decode, an unknown API key or an unsupported version closes
that connection and nothing else (except ApiVersions, which is answered in its version 0 with error 35 so that the
client can learn the right one: KIP-511). Which requests exist is the caller's table; nothing here knows a broker.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from protocol.errors import ErrorCode, MalformedMessage
from protocol.framing import response_prefix
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.schema import Message, decode_prefix, encode_chunks
from runtime.request_times import ApiCounter, error_codes, request_log
from runtime.server import AnswerSlot, Request

log = logging.getLogger(__name__)

Stopwatch = Callable[[], float]
"""`World.stopwatch`."""

PRINCIPAL = "User:ANONYMOUS"
"""Who asks: no listener authenticates."""


@dataclass(slots=True)
class Call:
    """One request under way: what was asked, and the place for the answer."""

    request: Request
    message: Any
    slot: AnswerSlot
    _spec: ApiSpec
    _counter: ApiCounter

    @property
    def version(self) -> int:
        return self.request.api_version

    def answer(self, response: Message, *, has_errors: bool = True) -> None:
        """Send the response in the version that was asked. May be called later, from any task, but once.

        Its errors are counted. Who knows that there are none may say so.
        """
        request, counter = self.request, self._counter
        counter.answers += 1
        if has_errors:
            counter.errors.update(error_codes(response))
        flexible = self._spec.response_header_version(request.api_version) == 1
        prefix = response_prefix(request.correlation_id, flexible)
        self.slot.fill(encode_chunks(response, request.api_version, prefix))

    def answer_bytes(self, header_and_body: bytes) -> None:
        """Send a response that somebody else encoded for this very request (an Envelope's content)."""
        self._counter.answers += 1
        self.slot.fill([header_and_body])

    def answer_nothing(self) -> None:
        """acks=0: the one request without a response."""
        self.slot.drop()

    def abort(self, reason: str) -> None:
        """Close the connection: the client is to know that something went wrong, but not what was done."""
        self.slot.abort(reason)


@dataclass(slots=True)
class TimedCall(Call):
    """One whose times are taken. A slot that was filled is sent later, in nobody's turn but its connection's."""

    _stopwatch: Stopwatch
    _began: float
    handled: float = 0.0
    """When the handler was through with it, if it was not answered by then. On the stopwatch, as the others."""
    answered: float = 0.0
    throttled_ms: float = 0.0

    # `super()` does not know a class that was made anew for its slots.

    def answer(self, response: Message, *, has_errors: bool = True) -> None:
        Call.answer(self, response, has_errors=has_errors)
        self.answered = self._stopwatch()

    def answer_bytes(self, header_and_body: bytes) -> None:
        Call.answer_bytes(self, header_and_body)
        self.answered = self._stopwatch()

    def answer_nothing(self) -> None:
        Call.answer_nothing(self)
        self.answered = self._stopwatch()

    def sent(self, size_bytes: int, began: float, ended: float) -> None:
        """See `runtime.exchange.Timed`."""
        counter, received, answered = self._counter, self.request.received, self.answered
        handled = self.handled or answered
        counter.queue += self._began - received
        counter.local += handled - self._began
        counter.remote += answered - handled
        counter.response_queue += began - answered
        counter.send += ended - began
        counter.throttle += self.throttled_ms / 1000
        counter.total.took(ended - received)
        if request_log.isEnabledFor(logging.DEBUG):
            self._log(size_bytes, began, ended)

    def _log(self, size_bytes: int, began: float, ended: float) -> None:
        """The line of this request."""
        request, received, answered = self.request, self.request.received, self.answered
        handled = self.handled or answered
        request_log.debug(
            "request=%s version=%d client_id=%s correlation_id=%d principal=%s connection=%d peer=%s listener=%s"
            " request_bytes=%d response_bytes=%d total_ms=%.3f queue_ms=%.3f local_ms=%.3f remote_ms=%.3f"
            " throttle_ms=%.3f response_queue_ms=%.3f send_ms=%.3f",
            self._spec.name,
            request.api_version,
            _quoted(request.client_id),
            request.correlation_id,
            PRINCIPAL,
            request.connection_id,
            request.peer_host,
            request.listener_name,
            len(request.body),
            size_bytes,
            (ended - received) * 1000,
            (self._began - received) * 1000,
            (handled - self._began) * 1000,
            (answered - handled) * 1000,
            self.throttled_ms,
            (began - answered) * 1000,
            (ended - began) * 1000,
        )


def _quoted(client_id: str | None) -> str:
    """A client's own words stay on one line, and in one word."""
    return "-" if client_id is None else json.dumps(client_id)


Handler = Callable[[Call], None]


class Dispatcher:
    """A listener's table of handlers; called by the server with each request."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], stopwatch: Stopwatch | None = None) -> None:
        """`stopwatch` is the one by which requests are told to have arrived; without it nobody measures how long they
        take."""
        self.counters = {API_SPECS[key].name: ApiCounter() for key in handlers}
        """By the name of the API."""
        self._stopwatch = stopwatch
        self._handlers = {
            int(key): (API_SPECS[key], handler, self.counters[API_SPECS[key].name]) for key, handler in handlers.items()
        }

    def advertised(self) -> list[ApiVersion]:
        """The ranges that ApiVersions tells.

        Produce is advertised from 0 although 0-2 are refused: librdkafka takes a missing 0 as "no Produce"
        (KAFKA-18659).
        """
        ranges = []
        for key, (spec, _, _) in sorted(self._handlers.items(), key=itemgetter(0)):
            minimum = 0 if key == ApiKey.PRODUCE else spec.min_version
            ranges.append(ApiVersion(api_key=key, min_version=minimum, max_version=spec.max_version))
        return ranges

    def __call__(self, request: Request, slot: AnswerSlot) -> None:
        entry = self._handlers.get(request.api_key)
        if entry is None:
            slot.abort(f"API key {request.api_key} is not served on this listener")
            return
        spec, handler, counter = entry
        counter.requests += 1
        counter.request_bytes += len(request.body)
        if not spec.min_version <= request.api_version <= spec.max_version:
            self._refuse_version(request, slot, spec)
            return
        try:
            # What follows the body is passed over, as Kafka does: librdkafka sends Metadata v13 with two bytes of v10.
            message, _ = decode_prefix(spec.request_type(), request.body, 0, request.api_version)
        except MalformedMessage as error:
            slot.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return
        stopwatch = self._stopwatch
        try:
            if stopwatch is None or counter.requests < counter.next_timed:
                handler(Call(request, message, slot, spec, counter))
                return
            began = stopwatch()
            counter.timed(began)
            call = TimedCall(request, message, slot, spec, counter, stopwatch, began)
            slot.timed = call
            handler(call)
            if not call.answered:
                call.handled = stopwatch()
        except Exception:
            # A mistake of ours. The connection closes, so that the client takes the outcome as unknown, which is true.
            log.exception(
                "%s v%d failed, correlation id %d from %s",
                spec.name,
                request.api_version,
                request.correlation_id,
                request.peer_host,
            )
            slot.abort("internal error")

    def _refuse_version(self, request: Request, slot: AnswerSlot, spec: ApiSpec) -> None:
        if request.api_key != ApiKey.API_VERSIONS:
            slot.abort(f"{spec.name} v{request.api_version} is not supported")
            return
        own = ApiVersion(api_key=spec.key, min_version=spec.min_version, max_version=spec.max_version)
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
        slot.fill(encode_chunks(response, 0, response_prefix(request.correlation_id, False)))
