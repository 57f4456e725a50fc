"""From the bytes of a request to its handler.

Versions are checked here, once. A body that does not decode, an unknown API key or an unsupported version closes
that connection and nothing else (except ApiVersions, which is answered in its version 0 with error 35 so that the
client can learn the right one: KIP-511). The table of handlers is the caller's; nothing here knows a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import itemgetter
from types import MappingProxyType

from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.errors import ErrorCode, MalformedMessage, TooManyElements
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.schema import decode_in_steps, decode_prefix, encode_chunks
from barnabas.runtime.call import Call, Execution, Stopwatch, TimedCall
from barnabas.runtime.decisions import DecisionKind, Decisions
from barnabas.runtime.request import AnswerSlot, Request
from barnabas.runtime.request_times import ApiCounter
from barnabas.runtime.steps import Steps
from barnabas.runtime.throttled_call import ThrottledCall
from barnabas.runtime.turns import BUDGET_SECONDS

__all__ = ["Call", "Dispatcher", "Execution", "Handler"]

INLINE_BODY_BYTES = 8 * 1024
"""A body up to this size is decoded at once, whatever is in it."""

INLINE_ELEMENTS = 1024
"""A request with more elements is decoded, and its answer encoded, in steps."""

MAX_ELEMENTS = 1 << 16
"""A request with more elements is refused. Python frees a message at one go: so many elements with their answers take
25 MB and 15 ms."""

ELEMENT_BYTES = 256
"""Memory of one decoded element, as it is counted."""

Handler = Callable[[Call], Steps | None]
"""Serves one request, at once or in steps (`runtime.steps`)."""


class Dispatcher:
    """A listener's table of handlers; the server calls it with each request."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        stopwatch: Stopwatch | None = None,
        execution: Execution | None = None,
        passed_on: Collection[ApiKey] = (),
        unstable: Collection[ApiKey] = (),
        lowest: Mapping[ApiKey, int] = MappingProxyType({}),
    ) -> None:
        """`stopwatch` is the one that `Request.received` was read from; without it requests are not timed. Without
        `execution` no handler may start background work. Large requests of APIs in `passed_on` are not decoded: their
        handlers pass the bytes on to a node that decodes them. APIs in `unstable` are served in their unstable version,
        too, and those in `lowest` from a version below that of `API_SPECS` on."""
        self.counters = {API_SPECS[key].name: ApiCounter() for key in handlers}
        """By the name of the API."""
        self.decisions: Decisions | None = None
        """Takes notes of requests that held the event loop for too long."""
        self._stopwatch = stopwatch
        self._execution = execution
        self._throttling = None if execution is None else execution.throttling
        self._passed_on = frozenset(map(int, passed_on))
        self._unstable = frozenset(unstable)
        self._handlers = {
            int(key): (API_SPECS[key], handler, self.counters[API_SPECS[key].name]) for key, handler in handlers.items()
        }
        for key, version in lowest.items():
            spec, handler, counter = self._handlers[key]
            self._handlers[key] = (spec.down_to(version), handler, counter)

    def count_together(self, other: Dispatcher) -> None:
        """Count the requests of an API in one place: both listeners are one node's. Before any request."""
        self.counters = other.counters = self.counters | other.counters
        self._handlers = {
            key: (spec, handler, self.counters[spec.name]) for key, (spec, handler, _) in self._handlers.items()
        }

    def advertised(self) -> list[ApiVersion]:
        """The version ranges in an ApiVersions response."""
        specs = [spec for _, (spec, _, _) in sorted(self._handlers.items(), key=itemgetter(0))]
        return [
            ApiVersion(api_key=spec.key, min_version=spec.advertised_min_version, max_version=self._max_version(spec))
            for spec in specs
        ]

    def _max_version(self, spec: ApiSpec) -> int:
        if spec.unstable_version is not None and spec.key in self._unstable:
            return spec.unstable_version
        return spec.max_version

    def _serves_unstable(self, spec: ApiSpec, version: int) -> bool:
        return version == spec.unstable_version and spec.key in self._unstable

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
        """Serve a request. Returns the steps that remain; none of them raises."""
        entry = self._handlers.get(request.api_key)
        if entry is None:
            slot.abort(f"API key {request.api_key} is not served on this listener")
            return None
        spec, handler, counter = entry
        counter.requests += 1
        counter.request_bytes += len(request.body)
        version = request.api_version
        if not spec.min_version <= version <= spec.max_version and not self._serves_unstable(spec, version):
            self._refuse_version(request, slot, spec)
            return None
        most = None if len(request.body) <= INLINE_BODY_BYTES else INLINE_ELEMENTS
        try:
            # Bytes after the body are ignored, as in Kafka: librdkafka sends Metadata v13 with two bytes of v10.
            kind = spec.loaded_request_type or spec.request_type()
            message, _ = decode_prefix(kind, request.body, 0, version, most)
        except TooManyElements as error:
            if most is not None:
                call = self._call(request, slot, spec, counter)
                call.is_large = True
                is_decoded = request.api_key not in self._passed_on
                return _guarded(_serve_large(call, spec, handler, is_decoded=is_decoded), call)
            slot.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return None
        except MalformedMessage as error:
            slot.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return None
        if self._throttling is not None and self._throttling.is_active:
            call = self._call(request, slot, spec, counter)
            call.message = message
            return self._serve_throttled(handler, call)
        stopwatch = self._stopwatch
        if stopwatch is None or counter.requests < counter.next_timed:
            return self._serve(handler, Call(request, message, slot, spec, counter, self._execution))
        began = stopwatch()
        counter.timed(began)
        timed = TimedCall(request, message, slot, spec, counter, self._execution, stopwatch, began)
        slot.timed = timed
        steps = self._serve(handler, timed)
        if steps is None:
            timed.handler_ended()
        return steps

    def _call(self, request: Request, slot: AnswerSlot, spec: ApiSpec, counter: ApiCounter) -> Call:
        """A call without its message, measured for quotas if there are any."""
        throttling, execution = self._throttling, self._execution
        if throttling is None or not throttling.is_active:
            return Call(request, None, slot, spec, counter, execution)
        began = throttling.stopwatch()
        call = ThrottledCall(
            request, None, slot, spec, counter, execution, throttling.stopwatch, began, _throttling=throttling
        )
        slot.timed = call
        call.arrived()
        return call

    def _serve_throttled(self, handler: Handler, call: Call) -> Steps | None:
        assert isinstance(call, ThrottledCall)
        call.begin()
        steps = self._serve(handler, call)
        if steps is None:
            call.handler_ended()
        else:
            call.pause()
        return steps

    def _serve(self, handler: Handler, call: Call) -> Steps | None:
        count = None if self._execution is None else self._execution.count_work
        try:
            steps = handler(call) if count is None else count(call.api, partial(handler, call))
        except Exception as error:
            call.failed(error)
            return None
        return None if steps is None else _guarded(steps, call)

    def _refuse_version(self, request: Request, slot: AnswerSlot, spec: ApiSpec) -> None:
        if request.api_key != ApiKey.API_VERSIONS:
            slot.abort(f"{spec.name} v{request.api_version} is not supported")
            return
        own = ApiVersion(api_key=spec.key, min_version=spec.min_version, max_version=spec.max_version)
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
        slot.fill(encode_chunks(response, 0, response_prefix(request.correlation_id, False)))


def _guarded(steps: Steps, call: Call) -> Steps:
    """The steps of a call; one that raises fails the call, and not the driver of the steps."""
    try:
        yield from call.counted(steps)
    except Exception as error:
        call.failed(error)
    finally:
        call.handler_ended()


def _serve_large(call: Call, spec: ApiSpec, handler: Handler, *, is_decoded: bool) -> Steps:
    """A request with many elements: decoded and served in steps."""
    request = call.request
    if is_decoded:
        call.slot.grow(min(len(request.body), MAX_ELEMENTS) * ELEMENT_BYTES)
        yield None  # it may have closed this connection
        body, version = request.body, request.api_version
        try:
            call.message, _ = yield from decode_in_steps(spec.request_type(), body, version, MAX_ELEMENTS)
        except MalformedMessage as error:
            call.abort(f"malformed {spec.name} v{request.api_version}: {error}")
            return
        yield None
    steps = handler(call)
    if steps is not None:
        yield from steps
