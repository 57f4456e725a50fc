"""Measures the passes of the event loop, and logs the stack of one that takes too long.

One pass of the loop over its tasks is measured from the end of a wait to the start of the next: two readings of a
clock. A thread looks on: a pass that lasts for more than `SAMPLED_SECONDS` is logged with the stack of the loop's
thread while it still lasts. It wakes seldom, because each of its looks costs an idle node as much as a request.
Requests that hold the loop are counted by API where they are served (`runtime.server_connection`). For measurements,
`runtime.step_watchdog` looks at each step instead.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from types import FrameType

import trio

log = logging.getLogger(__name__)

SAMPLED_SECONDS = 0.2
"""The stack is logged when a pass lasts this long, and each time that its duration has doubled."""

FRAMES_SHOWN = 12


class Looks:
    """The times at which to look at the loop, and to log its stack. Looks are `sampled_seconds` apart, and a pass that
    one finds is looked at again when it has lasted for so long: none is missed."""

    __slots__ = ("_began", "_next_sample", "_sampled_seconds")

    def __init__(self, sampled_seconds: float = SAMPLED_SECONDS) -> None:
        self._began = 0.0
        self._next_sample = self._sampled_seconds = sampled_seconds

    def look(self, began: float, now: float) -> tuple[bool, float]:
        """(True if the stack is to be logged, seconds until the next look). `began` is the start of the present pass,
        0 while the loop waits."""
        if began != self._began:
            self._began, self._next_sample = began, self._sampled_seconds
        if not began:
            return False, self._sampled_seconds
        busy_seconds = now - began
        is_due = busy_seconds >= self._next_sample
        if is_due:
            self._next_sample = busy_seconds * 2
        return is_due, min(self._sampled_seconds, self._next_sample - busy_seconds)


class Watchdog(trio.abc.Instrument):
    """Install it with `trio.run(..., instruments=[watchdog])` in the thread that made it."""

    sampled_seconds = SAMPLED_SECONDS

    def __init__(self) -> None:
        self._loop_thread = threading.get_ident()
        self._began = 0.0
        """Start of this pass; 0 while the loop waits."""
        self._ended = threading.Event()
        self.sampled = 0
        """Number of stacks that were logged."""

    def before_run(self) -> None:
        threading.Thread(target=self._look_on, name="watchdog", daemon=True).start()

    def after_run(self) -> None:
        self._ended.set()

    def after_io_wait(self, timeout: float) -> None:
        self._began = time.monotonic()

    def before_io_wait(self, timeout: float) -> None:
        self._began = 0.0

    def _look_on(self) -> None:
        looks, wait_seconds = Looks(self.sampled_seconds), self.sampled_seconds
        while not self._ended.wait(wait_seconds):
            began, now = self._began, time.monotonic()
            is_due, wait_seconds = looks.look(began, now)
            if is_due:
                self._sample(now - began)

    def _sample(self, busy_seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is not None:
            log.warning("the event loop has been busy for %.0f ms: %s", busy_seconds * 1000, stack_of(frame))
            self.sampled += 1


def stack_of(frame: FrameType) -> str:
    """The innermost calls on one line, the last one first."""
    calls = traceback.extract_stack(frame)[-FRAMES_SHOWN:]
    return " < ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(calls))
