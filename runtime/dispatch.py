"""From the bytes of a request to its handler, and from the handler's answer to bytes.

Versions are checked here, once. A body that does not decode, an unknown API key or an unsupported version closes
that connection and nothing else (except ApiVersions, which is answered in its version 0 with error 35 so that the
client can learn the right one: KIP-511). Which requests exist is the caller's table; nothing here knows a broker.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import trio

from protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from protocol.errors import EncodeError, ErrorCode, KafkaError, MalformedMessage, TooManyElements
from protocol.framing import response_prefix
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.produce import ProduceRequest
from protocol.refusals import refusal_of
from protocol.schema import Message, decode_prefix, encode_chunks
from protocol.shortening import shorten_error_messages
from runtime.background import Background, Task
from runtime.decisions import DecisionKind, Decisions
from runtime.request_times import ApiCounter, error_codes, request_log
from runtime.server import AnswerSlot, Request, Steps
from runtime.turns import BUDGET_SECONDS, TURN_SECONDS
from runtime.world import Chunk, CountWork, RunBlocking, stopped

log = logging.getLogger(__name__)

T = TypeVar("T")

Stopwatch = Callable[[], float]
"""`World.stopwatch`."""

PRINCIPAL = "User:ANONYMOUS"
"""Who asks: no listener authenticates."""

INLINE_BODY_BYTES = 8 * 1024
"""A body up to this size is decoded at once, whatever is in it."""

INLINE_ELEMENTS = 4096
"""A request with more elements is decoded, and its answer encoded, away from the event loop."""

INLINE_STEPS = 16
"""Steps of a request that are done in the turn in which it arrives, if they do not take longer than a turn may."""


class Aside:
    """Where work of requests goes that does not fit into a turn."""

    def __init__(
        self, background: Background, run_blocking: RunBlocking, count_work: CountWork | None = None
    ) -> None:
        self.background = background
        self.count_work = count_work
        self._run_blocking = run_blocking
        self._one_at_a_time = trio.Lock()

    async def work(self, work: Callable[[], T]) -> T:
        """Run long work away from the event loop. One piece at a time: they would only share a core."""
        async with self._one_at_a_time:
            return await self._run_blocking(work)


@dataclass(slots=True)
class Call:
    """One request under way: what was asked, and the place for the answer."""

    request: Request
    message: Any
    slot: AnswerSlot
    _spec: ApiSpec
    _counter: ApiCounter
    _aside: Aside | None
    is_large: bool = field(kw_only=True, default=False)
    """The answer has too many elements to be encoded on the event loop. The dispatcher sets it for large requests, and
    handlers for small requests with large answers."""
    is_over: bool = field(kw_only=True, default=False)
    """It was answered, or its connection was closed."""
    has_failed: bool = field(kw_only=True, default=False)
    """It was answered because of a mistake of ours; what the rest of its work answers comes too late."""

    @property
    def version(self) -> int:
        return self.request.api_version

    def answer(self, response: Message, *, has_errors: bool = True) -> None:
        """Send the response in the version that was asked. May be called later, from any task, but once.

        Its errors are counted. Who knows that there are none may say so. An answer that cannot be encoded fails this
        call, and not its caller.
        """
        if self.is_over:
            assert self.has_failed, "a request was answered twice"
            return
        self.is_over = True
        counter = self._counter
        counter.answers += 1
        if self.is_large and self._aside is not None:
            self._aside.background.spawn(self._answer_aside, response, failed=self._abort_failed)
            return
        if has_errors:
            counter.errors.update(error_codes(response))
        try:
            chunks = self._encoded(response)
        except Exception as error:
            self._abort_failed(error)
        else:
            self.slot.fill(chunks)

    def _encoded(self, response: Message) -> list[Chunk]:
        request = self.request
        flexible = self._spec.response_header_version(request.api_version) == 1
        prefix = response_prefix(request.correlation_id, flexible)
        try:
            return encode_chunks(response, request.api_version, prefix)
        except EncodeError:
            # A message that quotes a name of 32 kB does not fit into a classic string. Any other reason stays.
            shorten_error_messages(response)
            return encode_chunks(response, request.api_version, prefix)

    async def _answer_aside(self, response: Message) -> None:
        """Answer from a worker thread. The response is not changed meanwhile."""
        assert self._aside is not None

        def work() -> tuple[list[int], list[Chunk]]:
            return error_codes(response), self._encoded(response)

        errors, chunks = await self._aside.work(work)
        self._counter.errors.update(errors)
        self.slot.fill(chunks)

    def answer_bytes(self, header_and_body: bytes) -> None:
        """Send a response that somebody else encoded for this very request (an Envelope's content)."""
        if self.has_failed:
            return
        self.is_over = True
        self._counter.answers += 1
        self.slot.fill([header_and_body])

    def answer_nothing(self) -> None:
        """acks=0: the one request without a response."""
        if self.has_failed:
            return
        self.is_over = True
        self.slot.drop()

    def abort(self, reason: str) -> None:
        """Close the connection: the client is to know that something went wrong, but not what was done."""
        self.is_over = True
        self.slot.abort(reason)

    def refuse(self, code: ErrorCode, message: str | None = None) -> None:
        """Answer with an error and nothing else, wherever the answer has a place for it."""
        if isinstance(self.message, ProduceRequest) and self.message.acks == 0:
            self.abort(f"produce with acks=0 failed with error {code.name}")
        elif self.is_large:
            self.abort(f"{self._spec.name} failed with error {code.name}")
        else:
            self.answer(refusal_of(self.message, self.version, code, message))

    # -- work that goes on

    def spawn(self, task: Task, *args: Any) -> None:
        """Go on with this request in `task(*args)`, in the background: the only way for a handler to do so. An
        exception that nobody expects fails this request."""
        assert self._aside is not None, "this dispatcher serves no requests that go on"
        self._aside.background.spawn(task, *args, failed=self.failed)

    async def take_steps(self, steps: Steps) -> None:
        """Take the steps of a request whose connection goes on with others meanwhile."""
        assert self._aside is not None
        result: Any = None
        count = self._aside.count_work
        try:
            while not self.slot.connection_closed:
                work = steps.send(result) if count is None else count(self._spec.name, partial(steps.send, result))
                result = None
                if work is None:
                    await trio.lowlevel.checkpoint()
                else:
                    result = await self._aside.work(work)
        except StopIteration:
            return
        finally:
            steps.close()

    def guarded(self, callback: Callable[..., None]) -> Callable[..., None]:
        """`callback` as others may call it: an exception that nobody expects fails this request, and not them."""

        def call_back(*args: Any) -> None:
            try:
                callback(*args)
            except Exception as error:
                self.failed(error)

        return call_back

    def failed(self, error: Exception) -> None:
        """A mistake of ours ended the work on this request: UNKNOWN_SERVER_ERROR, a line in the log, and a count."""
        self._report(error)
        self.has_failed = True
        if not self.is_over:
            if isinstance(error, KafkaError):
                self.refuse(error.code, error.message)
            else:
                self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _abort_failed(self, error: Exception) -> None:
        """The answer cannot be encoded."""
        self._report(error)
        try:
            chunks = self._encoded(refusal_of(self.message, self.version, ErrorCode.UNKNOWN_SERVER_ERROR))
        except EncodeError:
            self.slot.abort("internal error")
        else:
            self.slot.fill(chunks)

    def _report(self, error: Exception) -> None:
        self._counter.failures += 1
        request = self.request
        log.error(
            "%s v%d failed, correlation id %d from %s",
            self._spec.name,
            request.api_version,
            request.correlation_id,
            request.peer_host,
            exc_info=error,
        )


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


Handler = Callable[[Call], Steps | None]
"""Serves one request. A handler whose work grows with what a client names is a generator: each `next` is one step of
less than a millisecond, and other connections have their turns between steps. It may yield work (a function without
arguments) that is to be done away from the event loop, and is sent the result.
"""


class Dispatcher:
    """A listener's table of handlers; called by the server with each request."""

    def __init__(
        self, handlers: Mapping[ApiKey, Handler], stopwatch: Stopwatch | None = None, aside: Aside | None = None
    ) -> None:
        """`stopwatch` is the one by which requests are told to have arrived; without it nobody measures how long they
        take. Without `aside` no request may go on after its handler returned."""
        self.counters = {API_SPECS[key].name: ApiCounter() for key in handlers}
        """By the name of the API."""
        self.decisions: Decisions | None = None
        """Where a request that held the event loop for too long is noted."""
        self._stopwatch = stopwatch
        self._aside = aside
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

    def overran(self, api_key: int, seconds: float) -> None:
        """One request of this API, or one step of it, held the event loop for longer than the budget allows."""
        entry = self._handlers.get(api_key)
        if entry is None:
            return
        spec, _, counter = entry
        counter.over_budget += 1
        if seconds >= 2 * counter.longest and self.decisions is not None:
            node, took_ms = self.decisions.node, round(seconds * 1000)
            self.decisions.note(
                DecisionKind.LIFECYCLE,
                node,
                f"a step of {spec.name} held the event loop of {node} for {took_ms} ms",
                cause=f"a step may take {BUDGET_SECONDS * 1000:.0f} ms, and no step of this API took so long before",
            )
        counter.longest = max(counter.longest, seconds)

    def __call__(self, request: Request, slot: AnswerSlot) -> Steps | None:
        """Serve a request. What is returned are the steps that remain."""
        entry = self._handlers.get(request.api_key)
        if entry is None:
            slot.abort(f"API key {request.api_key} is not served on this listener")
            return None
        spec, handler, counter = entry
        counter.requests += 1
        counter.request_bytes += len(request.body)
        if not spec.min_version <= request.api_version <= spec.max_version:
            self._refuse_version(request, slot, spec)
            return None
        most = None if len(request.body) <= INLINE_BODY_BYTES else INLINE_ELEMENTS
        try:
            # What follows the body is passed over, as Kafka does: librdkafka sends Metadata v13 with two bytes of v10.
            message, _ = decode_prefix(spec.request_type(), request.body, 0, request.api_version, most)
        except TooManyElements as error:
            if most is not None:
                return self._serve_large(entry, request, slot)
            slot.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return None
        except MalformedMessage as error:
            slot.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return None
        stopwatch = self._stopwatch
        if stopwatch is None or counter.requests < counter.next_timed:
            return self._serve(handler, Call(request, message, slot, spec, counter, self._aside))
        began = stopwatch()
        counter.timed(began)
        timed = TimedCall(request, message, slot, spec, counter, self._aside, stopwatch, began)
        slot.timed = timed
        remaining = self._serve(handler, timed)
        if not timed.answered:
            timed.handled = stopwatch()
        return remaining

    def _serve(self, handler: Handler, call: Call) -> Steps | None:
        count = None if self._aside is None else self._aside.count_work
        try:
            steps = handler(call) if count is None else count(call._spec.name, partial(handler, call))
        except Exception as error:
            call.failed(error)
            return None
        return None if steps is None else self._begin(steps, call)

    def _begin(self, steps: Steps, call: Call) -> Steps | None:
        """Take the first few steps of a request."""
        count = None if self._aside is None else self._aside.count_work
        stopwatch = self._stopwatch or stopped
        began = stopwatch()
        try:
            for _ in range(INLINE_STEPS):
                work = steps.send(None) if count is None else count(call._spec.name, partial(steps.send, None))
                if work is not None:
                    return self._go_on(call, steps, work)
                if stopwatch() - began > TURN_SECONDS:
                    break
        except StopIteration:
            return None
        except Exception as error:
            call.failed(error)
            return None
        return self._go_on(call, steps, None)

    def _go_on(self, call: Call, steps: Steps, work: Callable[[], Any] | None) -> Steps:
        """The steps of a call, none of which fails whoever takes them."""
        result: Any = None
        count = None if self._aside is None else self._aside.count_work
        try:
            while not call.slot.connection_closed:
                if work is None:
                    yield None
                else:
                    try:
                        result = yield work
                    except Exception as error:  # the work's own; the handler may know what it means
                        work = steps.throw(error)
                        continue
                work = steps.send(result) if count is None else count(call._spec.name, partial(steps.send, result))
                result = None
        except StopIteration:
            return
        except Exception as error:
            call.failed(error)
        finally:
            steps.close()

    def _serve_large(self, entry: tuple[ApiSpec, Handler, ApiCounter], request: Request, slot: AnswerSlot) -> Steps:
        """A request with many elements: decoded aside, served in steps, answered aside."""
        spec, handler, counter = entry
        decode_all = partial(decode_prefix, spec.request_type(), request.body, 0, request.api_version)
        try:
            message, _ = yield decode_all
        except MalformedMessage as error:
            slot.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return
        call = Call(request, message, slot, spec, counter, self._aside, is_large=True)
        steps = self._serve(handler, call)
        if steps is not None:
            yield from steps

    def _refuse_version(self, request: Request, slot: AnswerSlot, spec: ApiSpec) -> None:
        if request.api_key != ApiKey.API_VERSIONS:
            slot.abort(f"{spec.name} v{request.api_version} is not supported")
            return
        own = ApiVersion(api_key=spec.key, min_version=spec.min_version, max_version=spec.max_version)
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
        slot.fill(encode_chunks(response, 0, response_prefix(request.correlation_id, False)))
