"""Core: requests that wait for something to happen or for their time to run out.

A delayed operation is a small object, not a task. It is watched under the keys whose changes may complete it,
and has a deadline in the timing wheel. `Purgatory` is for operations that need a look at the world to know
whether they are done (fetch, delete records, elections); `WaitingAcks` is the cheaper path of produce, where
"done" means that one number, the high watermark, has reached another.

Knows nothing of partitions, requests or sockets. One thread; but callbacks may come back in here while an
operation is being looked at, and the guarantees hold then, too: an operation completes exactly once, and no
change is missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from broker.timing_wheel import TimerEntry, TimingWheel
from runtime.background import run_callback

PURGE_INTERVAL = 1000
"""Completed operations that may linger in watch lists before all lists are cleaned."""


class DelayedOperation:
    """What waits. A subclass says when it is done (`try_complete`) and what is to be done then
    (`on_complete`).
    """

    __slots__ = ("_again", "_looking", "_purgatory", "_timer", "completed")

    def __init__(self) -> None:
        self.completed = False
        self._looking = False
        self._again = False
        self._timer: TimerEntry | None = None
        self._purgatory: Purgatory[Hashable] | None = None

    def touched(self, key: Hashable) -> None:
        """Something under this key changed, and `try_complete` follows. For who can look at just that."""

    def try_complete(self) -> bool:
        """If it can be completed now, call `force_complete` and give its answer; else False."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Runs exactly once, whether the operation was satisfied or ran out of time."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """It ended with this mistake of ours. An operation that belongs to a request fails the request."""
        raise error

    def on_expiration(self) -> None:
        """Runs after `on_complete` when it was the deadline that completed the operation."""

    def force_complete(self) -> bool:
        """Complete now; True if this call did it, False if it was complete."""
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
        """`try_complete`, safe against being called from within itself: a change seen meanwhile causes
        another look.
        """
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
        """A mistake of ours came up while it was looked at: it ends, and whoever completed it goes on."""
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
        self._watchers: dict[KeyT, list[DelayedOperation]] = {}
        self._delayed = 0
        self._completed_since_purge = 0

    @property
    def delayed(self) -> int:
        """Operations that wait."""
        return self._delayed

    @property
    def watched(self) -> int:
        """Entries of all watch lists: one operation may be in several, and a completed one may still
        linger.
        """
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Sequence[KeyT], deadline_ms: int
    ) -> bool:
        """True if the operation completed at once; else it waits for its keys or its deadline.

        It is looked at before it is watched, and once more after it is watched under all keys, so that no
        change in between can be missed.
        """
        if operation.look():
            return True
        if operation.completed:
            return False
        return self.watch(operation, keys, deadline_ms)

    def watch(self, operation: DelayedOperation, keys: Sequence[KeyT], deadline_ms: int) -> bool:
        """The same for an operation that was looked at just now."""
        assert keys, "an operation that watches nothing could only expire"
        for key in keys:
            self._watchers.setdefault(key, []).append(operation)
        self._delayed += 1
        operation._purgatory = self  # type: ignore[assignment]  # only `_left` is called, which takes no key
        if operation.look():
            return True
        if not operation.completed:
            operation._timer = self._wheel.add(deadline_ms, operation._expire)
        return False

    def watches(self, key: KeyT) -> bool:
        """Whether anything waits under `key`, or has waited there until just now."""
        return key in self._watchers

    def check_and_complete(self, key: KeyT) -> int:
        """Something under `key` changed: look at what watches it; gives how many operations completed."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        stale = False
        # A copy: completing one operation may add others here, or come back to this very key.
        for operation in tuple(watchers):
            if _look(operation, key):
                completed += 1
            stale = stale or operation.completed
        if stale:
            self._clean(key, watchers)
        return completed

    def _left(self, operation: DelayedOperation) -> None:
        operation._purgatory = None
        self._delayed -= 1
        self._completed_since_purge += 1
        if self._completed_since_purge >= self._purge_interval:
            self._completed_since_purge = 0
            for key, watchers in list(self._watchers.items()):
                self._clean(key, watchers)

    def _clean(self, key: KeyT, watchers: list[DelayedOperation]) -> None:
        watchers[:] = [operation for operation in watchers if not operation.completed]
        if not watchers and self._watchers.get(key) is watchers:
            del self._watchers[key]


def _look(operation: DelayedOperation, key: Hashable) -> bool:
    """Let one operation look at a change. A mistake in it ends that operation, and nobody else's turn."""
    try:
        operation.touched(key)
        return operation.look()
    except Exception as error:
        operation.fail(error)
        return False


ErrorT = TypeVar("ErrorT")


class WaitingAck(Generic[ErrorT]):
    """One produce that waits for the high watermark. `cancel` it when its time has run out."""

    __slots__ = ("_owner", "callback", "required_offset")

    def __init__(
        self, required_offset: int, callback: Callable[[ErrorT | None], None], owner: WaitingAcks[ErrorT]
    ) -> None:
        self.required_offset = required_offset
        self.callback: Callable[[ErrorT | None], None] | None = callback
        self._owner = owner

    def cancel(self) -> None:
        """The callback will not run. Nothing happens if it has."""
        if self.callback is not None:
            self.callback = None
            self._owner._cancelled_one()


class WaitingAcks(Generic[ErrorT]):
    """The produces of one partition that wait for its high watermark, in the order of the offsets they
    need.
    """

    __slots__ = ("_cancelled", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[WaitingAck[ErrorT]] = deque()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._waiting) - self._cancelled

    def add(self, required_offset: int, callback: Callable[[ErrorT | None], None]) -> WaitingAck[ErrorT]:
        """Call `callback(None)` once the high watermark has reached `required_offset`, or
        `callback(error)`.
        """
        ack = WaitingAck(required_offset, callback, self)
        waiting = self._waiting
        if not waiting or waiting[-1].required_offset <= required_offset:
            waiting.append(ack)
        else:
            # A retried batch was found in the log: it needs an older offset than the youngest that wait.
            position = len(waiting)
            while position > 0 and waiting[position - 1].required_offset > required_offset:
                position -= 1
            waiting.insert(position, ack)
        return ack

    def complete_up_to(self, high_watermark: int, error: ErrorT | None = None) -> int:
        """Answer those that `high_watermark` satisfies, with `error` if there is one; gives how many."""
        waiting = self._waiting
        answered = 0
        # Taken off before it is called: a callback may append, and move the high watermark, and come back
        # here.
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
        """Answer all with `error`: the partition is no longer led here. Gives how many."""
        # All are detached first: a callback may cancel its neighbours, or come back here.
        callbacks = [ack.callback for ack in self._waiting if ack.callback is not None]
        for ack in self._waiting:
            ack.callback = None
        self._waiting.clear()
        self._cancelled = 0
        for callback in callbacks:
            run_callback(callback, error)
        return len(callbacks)

    def _cancelled_one(self) -> None:
        self._cancelled += 1
        waiting = self._waiting
        if self._cancelled >= PURGE_INTERVAL and self._cancelled * 2 > len(waiting):
            alive = [ack for ack in waiting if ack.callback is not None]
            waiting.clear()
            waiting.extend(alive)
            self._cancelled = 0
