"""Waits for effects of other processes by looking again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.02


def eventually(is_so: Callable[[], bool], timeout_seconds: float = 30.0) -> None:
    """Returns when it is. Fails after `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(POLL_SECONDS)
