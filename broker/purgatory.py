"""Core: requests that wait for a change or for their deadline.

A delayed operation is a small object, not a task. It is watched under the keys whose changes may complete it, and has a
deadline in the timing wheel. `Purgatory` is for operations that have to check whether they are done (fetch, delete
records, elections); `WaitingAcks` is the cheaper path of produce, which is done when the high watermark has reached an
offset.

Knows nothing of partitions, requests or sockets. Single-threaded; but callbacks may call back into it while an
operation is being checked, and the guarantees hold then, too: an operation completes exactly once, and no change is
missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from barnabas.broker.timing_wheel import TimerEntry, TimingWheel
from barnabas.runtime.background import run_callback

PURGE_INTERVAL = 1000
"""Completed operations that may linger in watch lists before all lists are cleaned."""


class DelayedOperation:
    """A subclass defines when it is done (`try_complete`) and what happens then (`on_complete`)."""

    __slots__ = ("_again", "_looking", "_purgatory", "_timer", "completed", "minds_keys")

    def __init__(self) -> None:
        self.completed = False
        self.minds_keys = True
        """`touched` is to be called with each key that changed."""
        self._looking = False
        self._again = False
        self._timer: TimerEntry | None = None
        self._purgatory: Purgatory[Hashable] | None = None

    def touched(self, key: Hashable) -> None:
        """Something under this key changed; `try_complete` is called next. A hook for operations that check only the
        changed keys; see `minds_keys`."""

    def try_complete(self) -> bool:
        """If it can be completed now, call `force_complete` and return its result; otherwise return False."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Runs exactly once, whether the operation was satisfied or expired."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """The operation ended with an unexpected exception. A subclass that belongs to a request fails the request."""
        raise error

    def on_expiration(self) -> None:
        """Runs after `on_complete` when it was the deadline that completed the operation."""

    def force_complete(self) -> bool:
        """Complete now. Returns False if it was already complete."""
        if self.completed:
            return False
        self.completed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._purgatory is not None:
            self._purgatory._left(self)
        self.on_complete()
        return True

    def look(self) -> bool:
        """`try_complete`, safe to call from within itself: a change seen meanwhile causes another check."""
        if self.completed:
            return False
        if self._looking:
            self._again = True
            return False
        self._looking = True
        try:
            while True:
                self._again = False
                if self.try_complete():
                    return True
                if not self._again or self.completed:
                    return False
        finally:
            self._looking = False

    def fail(self, error: Exception) -> None:
        """End the operation after an unexpected exception; the code that was checking it continues."""
        if not self.completed:
            self.completed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._purgatory is not None:
                self._purgatory._left(self)
        self.failed(error)

    def _expire(self) -> None:
        try:
            if self.force_complete():
                self.on_expiration()
        except Exception as error:
            self.fail(error)


KeyT = TypeVar("KeyT", bound=Hashable)


class Purgatory(Generic[KeyT]):
    """Watches delayed operations under keys."""

    def __init__(self, wheel: TimingWheel, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._wheel = wheel
        self._purge_interval = purge_interval
        self.watchers: dict[KeyT, list[DelayedOperation]] = {}
        """The operations that wait under each key, or have waited there until recently. Read-only."""
        self.delayed = 0
        """Number of waiting operations. Read-only."""
        self._completed_since_purge = 0

    @property
    def watched(self) -> int:
        """Entries of all watch lists: an operation may be in several, and a completed one may still be listed."""
        return sum(map(len, self.watchers.values()))

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Sequence[KeyT], deadline_ms: int
    ) -> bool:
        """True if the operation completed at once; otherwise it waits for its keys or its deadline.

        It is checked before it is watched, and once more after it is watched under all keys, so that no change in
        between is missed.
        """
        if operation.look():
            return True
        if operation.completed:
            return False
        return self.watch(operation, keys, deadline_ms)

    def watch(
        self, operation: DelayedOperation, keys: Sequence[KeyT], deadline_ms: int, *, has_no_news: bool = False
    ) -> bool:
        """`try_complete_else_watch` for an operation that was checked just now. It is checked again only after it is
        watched, and not at all if the caller knows that it `has_no_news`."""
        assert keys, "an operation that watches nothing could only expire"
        for key in keys:
            self.watchers.setdefault(key, []).append(operation)
        self.delayed += 1
        operation._purgatory = self  # type: ignore[assignment]  # only `_left` is called, which takes no key
        if not has_no_news and operation.look():
            return True
        if not operation.completed:
            operation._timer = self._wheel.add(deadline_ms, operation._expire)
        return False

    def check_and_complete(self, key: KeyT) -> int:
        """Something under `key` changed: check the operations that watch it. Returns how many completed."""
        watchers = self.watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        stale = False
        # A copy: completing one operation may add others, or call this method again for the same key.
        for operation in tuple(watchers):
            try:
                if operation.minds_keys:
                    operation.touched(key)
                completed += operation.look()
            except Exception as error:  # it ends only this operation
                operation.fail(error)
            stale = stale or operation.completed
        if stale:
            self._clean(key, watchers)
        return completed

    def _left(self, operation: DelayedOperation) -> None:
        operation._purgatory = None
        self.delayed -= 1
        self._completed_since_purge += 1
        if self._completed_since_purge >= self._purge_interval:
            self._completed_since_purge = 0
            for key, watchers in list(self.watchers.items()):
                self._clean(key, watchers)

    def _clean(self, key: KeyT, watchers: list[DelayedOperation]) -> None:
        if len(watchers) > 1:
            watchers[:] = [operation for operation in watchers if not operation.completed]
        elif watchers and watchers[0].completed:
            watchers.clear()
        if not watchers and self.watchers.get(key) is watchers:
            del self.watchers[key]


ErrorT = TypeVar("ErrorT")


class WaitingAck(Generic[ErrorT]):
    """One produce that waits for the high watermark. `cancel` it at its deadline."""

    __slots__ = ("_owner", "callback", "required_offset")

    def __init__(
        self, required_offset: int, callback: Callable[[ErrorT | None], None], owner: WaitingAcks[ErrorT]
    ) -> None:
        self.required_offset = required_offset
        self.callback: Callable[[ErrorT | None], None] | None = callback
        self._owner = owner

    def cancel(self) -> None:
        """Drop the callback. Does nothing if it has run."""
        if self.callback is not None:
            self.callback = None
            self._owner._cancelled_one()


class WaitingAcks(Generic[ErrorT]):
    """The produces of one partition that wait for its high watermark, ordered by required offset."""

    __slots__ = ("_cancelled", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[WaitingAck[ErrorT]] | None = None
        """None until the first one: an empty deque has 600 bytes, and most partitions of a large cluster are idle."""
        self._cancelled = 0

    def __len__(self) -> int:
        return 0 if self._waiting is None else len(self._waiting) - self._cancelled

    def add(self, required_offset: int, callback: Callable[[ErrorT | None], None]) -> WaitingAck[ErrorT]:
        """Call `callback(None)` when the high watermark has reached `required_offset`, or `callback(error)`."""
        ack = WaitingAck(required_offset, callback, self)
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = deque()
        if not waiting or waiting[-1].required_offset <= required_offset:
            waiting.append(ack)
        else:
            # A duplicate batch was found in the log: it needs a lower offset than the last waiting ones.
            position = len(waiting)
            while position > 0 and waiting[position - 1].required_offset > required_offset:
                position -= 1
            waiting.insert(position, ack)
        return ack

    def complete_up_to(self, high_watermark: int, error: ErrorT | None = None) -> int:
        """Complete those that `high_watermark` satisfies, with `error` if given. Returns how many."""
        waiting = self._waiting
        answered = 0
        # Removed before it is called: a callback may append, advance the high watermark, and call this method again.
        while waiting and waiting[0].required_offset <= high_watermark:
            ack = waiting.popleft()
            callback = ack.callback
            if callback is None:
                self._cancelled -= 1
            else:
                ack.callback = None
                answered += 1
                run_callback(callback, error)
        return answered

    def fail_all(self, error: ErrorT) -> int:
        """Complete all with `error`, because the leadership is lost. Returns how many."""
        # All are detached first: a callback may cancel others, or call this method again.
        detached, self._waiting = self._waiting or (), None
        self._cancelled = 0
        callbacks = [ack.callback for ack in detached if ack.callback is not None]
        for ack in detached:
            ack.callback = None
        for callback in callbacks:
            run_callback(callback, error)
        return len(callbacks)

    def _cancelled_one(self) -> None:
        waiting = self._waiting
        if waiting is None:
            return
        self._cancelled += 1
        if self._cancelled >= PURGE_INTERVAL and self._cancelled * 2 > len(waiting):
            alive = [ack for ack in waiting if ack.callback is not None]
            waiting.clear()
            waiting.extend(alive)
            self._cancelled = 0
