"""A request that counts for quotas: the time of its handler is measured, and its answer may hold its client back."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field

from barnabas.protocol.schema import Message
from barnabas.protocol.throttle_times import FIELD, throttle_time_of, with_throttle_time
from barnabas.runtime.call import Call, TimedCall
from barnabas.runtime.steps import Steps, Work, measured
from barnabas.runtime.throttling import Mutations, Throttling


@dataclass(slots=True)
class ThrottledCall(TimedCall):
    """One request while a quota is set. Times are seconds on the stopwatch."""

    _throttling: Throttling = field(kw_only=True)
    _used: float = field(kw_only=True, default=0.0)
    """Time of the handler and of its steps that was not counted yet."""
    _running_since: float | None = field(kw_only=True, default=None)
    _fetch_ms: int | None = field(kw_only=True, default=None)
    """The throttle of a consumer's fetch, once it was counted."""
    _held_back_ms: int = field(kw_only=True, default=0)
    _arrival_ms: int = field(kw_only=True, default=0)
    """The throttle for the size of the request. The connection is muted from its arrival on, and from its answer on."""

    def arrived(self) -> None:
        """Count the request. No other one of the connection begins while it is held back."""
        self._arrival_ms = self._throttling.arrival_throttle_ms(self.request)
        if self._arrival_ms:
            self.slot.mute(self._arrival_ms, self._throttling.still_held_back(self.request))

    # -- questions of handlers

    def fetch_throttle(self, size_bytes: int) -> tuple[int, bool]:
        """See `Call.fetch_throttle`."""
        used = self._take_used()
        self._fetch_ms, may_send = self._throttling.fetch_throttle_ms(self.request, size_bytes, used)
        return self._fetch_ms, may_send

    def most_fetch_bytes(self) -> int:
        """See `Call.most_fetch_bytes`."""
        return self._throttling.most_fetch_bytes(self.request)

    def mutations(self, *, strict: bool) -> Mutations | None:
        """See `Call.mutations`."""
        return self._throttling.mutations(self.request, strict=strict)

    def hold_back(self, throttle_ms: int) -> None:
        """See `Call.hold_back`."""
        self._held_back_ms = max(self._held_back_ms, throttle_ms)

    # -- answers

    def answer(self, response: Message, *, has_errors: bool = True) -> None:
        if not self.is_over:
            throttle_ms = self._throttle(getattr(response, FIELD, 0))
            if throttle_ms and hasattr(response, FIELD):
                response = copy(response)  # it may be shared
                setattr(response, FIELD, throttle_ms)
        TimedCall.answer(self, response, has_errors=has_errors)

    def answer_bytes(self, header_and_body: bytes) -> None:
        if not self.is_over:
            named_ms = throttle_time_of(self._spec, self.version, header_and_body)
            throttle_ms = self._throttle(named_ms)
            if throttle_ms > named_ms:
                header_and_body = with_throttle_time(self._spec, self.version, header_and_body, throttle_ms)
        TimedCall.answer_bytes(self, header_and_body)

    def answer_nothing(self) -> None:
        if not self.is_over:
            self._throttle(0)
        TimedCall.answer_nothing(self)

    def _throttle(self, named_ms: int) -> int:
        """Count the request, and mute its connection; returns for how long. `named_ms`: the answer says so already."""
        throttle_ms = self._fetch_ms
        if throttle_ms is None:
            otherwise_ms = max(named_ms, self._held_back_ms, self._arrival_ms)
            throttle_ms = self._throttling.throttle_ms(self.request, self.message, self._take_used(), otherwise_ms)
        self.throttle_ms = throttle_ms
        if throttle_ms:
            self.slot.mute(throttle_ms, self._throttling.still_held_back(self.request))
        return throttle_ms

    # -- measuring

    def begin(self) -> None:
        """The handler begins."""
        self._running_since = self._stopwatch()

    def pause(self) -> None:
        """The handler, or a step of it, is over."""
        if self._running_since is not None:
            self._used += self._stopwatch() - self._running_since
            self._running_since = None

    def handler_ended(self) -> None:
        TimedCall.handler_ended(self)
        self.pause()

    def counted(self, steps: Steps) -> Steps:
        """The steps, each measured."""
        return measured(Call.counted(self, steps), self._timed)

    def _timed(self, step: Callable[[], Work | None]) -> Work | None:
        self.begin()
        try:
            return step()
        finally:
            self.pause()

    def _take_used(self) -> float:
        running = self._running_since is not None
        self.pause()
        used, self._used = self._used, 0.0
        if running:
            self.begin()
        return used

    def sent(self, size_bytes: int, began: float, ended: float) -> None:
        TimedCall.sent(self, size_bytes, began, ended)
        used = self._take_used()
        if used > 0:
            self._throttling.used_later(self.request, self.message, used)
