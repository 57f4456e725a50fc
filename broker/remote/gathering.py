"""Shell: several remote reads for one request, which is answered when all have ended, or at its deadline."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from operator import methodcaller
from typing import Any, Generic, TypeVar

from barnabas.broker.remote.read_queue import QueuedRead
from barnabas.broker.remote.wanted import Answered
from barnabas.broker.timing_wheel import TimerEntry, TimingWheel
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.world import Clock

KeyT = TypeVar("KeyT", bound=Hashable)
Begin = Callable[[Answered], QueuedRead | None]
"""Begins a read; one of the methods of `RemoteReads`."""
Answers = dict[KeyT, tuple[Any, ErrorCode]]
"""The result of each read that has ended, and its error."""


class Gathering(Generic[KeyT]):
    """`finish` is called once."""

    def __init__(
        self,
        wheel: TimingWheel,
        monotonic: Clock,
        finish: Callable[[Answers[KeyT]], None],
        cancel: Callable[[QueuedRead], None] = methodcaller("cancel"),
    ) -> None:
        """`cancel` is called at the deadline with each read that has not ended."""
        self._wheel = wheel
        self._monotonic = monotonic
        self._finish = finish
        self._cancel = cancel
        self._answers: Answers[KeyT] = {}
        self._reads: dict[KeyT, QueuedRead | None] = {}
        self._timer: TimerEntry | None = None
        self._is_begun = False

    def begin(self, reads: Mapping[KeyT, Begin], wait_ms: int, expired: Callable[[], None]) -> None:
        """`expired` is called before `finish` if it was the deadline that ended the wait."""
        for key, begin in reads.items():
            self._reads[key] = begin(partial(self._answered, key))
        self._is_begun = True
        if not self._end_if_complete(len(reads)):
            self._timer = self._wheel.add(self._monotonic.now_ms() + wait_ms, partial(self._expire, expired))

    def _answered(self, key: KeyT, result: Any, error: ErrorCode) -> None:
        self._answers[key] = (result, error)
        if self._is_begun:
            self._end_if_complete(len(self._reads))

    def _end_if_complete(self, wanted: int) -> bool:
        if len(self._answers) < wanted:
            return False
        if self._timer is not None:
            self._timer.cancel()
        self._finish(self._answers)
        return True

    def _expire(self, expired: Callable[[], None]) -> None:
        for key, read in self._reads.items():
            if read is not None and key not in self._answers:
                self._cancel(read)
        expired()
        self._finish(self._answers)
