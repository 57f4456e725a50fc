"""Commands of this suite as child processes, which end with their parent.

Ctrl-C and SIGTERM reach the one that has begun them; it passes them on and waits, so that each of them keeps and judges
what it recorded and ends its nodes. A terminal's Ctrl-C does not reach them by itself: the second one that a run
receives ends it at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """Nothing more begins."""


class Children:
    """All of them that run now."""

    def __init__(self) -> None:
        self.interrupted = False
        self._running: dict[subprocess.Popen[str], None] = {}
        # The handler of a signal may be what holds it already.
        self._lock = threading.RLock()

    def run(self, command: Sequence[str], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
        """Returns when it has ended, also by a signal. Raises Interrupted if it may no longer begin, and
        TimeoutExpired when it was killed."""
        with self._lock:
            if self.interrupted:
                raise Interrupted
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            self._running[child] = None
        try:
            stdout, stderr = child.communicate(timeout=timeout_seconds)
        except BaseException:
            child.kill()
            child.communicate()
            raise
        finally:
            with self._lock:
                self._running.pop(child)
        return subprocess.CompletedProcess(command, child.returncode, stdout, stderr)

    def interrupt(self) -> None:
        """All end in good order; called again: at once."""
        with self._lock:
            self.interrupted = True
            for child in self._running:
                with suppress(ProcessLookupError):
                    child.send_signal(signal.SIGTERM)

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """In this block signals end the children and nothing else: the caller checks `interrupted`. A signal that this
        process was begun to ignore (nohup) is ignored still."""

        def end(_number: int, _frame: FrameType | None) -> None:
            self.interrupt()
            # What is being printed just now may be in the midst of it.
            with suppress(OSError):
                os.write(2, b"interrupted: what runs is brought to its end; again ends it at once\n")

        self.interrupted = False
        handled = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        before = {each: signal.signal(each, end) for each in handled}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


CHILDREN = Children()
"""Signals are the process's, and so are these."""
