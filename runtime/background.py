"""Work that continues after the code that started it has returned.

A node ends if a task of its nursery fails. So parts of a node do not start tasks there: they start them here, and a
mistake in one of them costs that piece of work, a line in the log and a count, and nothing else. Request handlers use
`Call.spawn` (`runtime.call`), which also answers the request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

log = logging.getLogger(__name__)

Task = Callable[..., Awaitable[None]]
Failed = Callable[[Exception], None]


class Background:
    """Starts tasks that cannot end the node."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.failures = 0
        """Tasks that ended with an unexpected exception."""

    def spawn(self, task: Task, *args: Any, failed: Failed | None = None) -> None:
        """Run `task(*args)` in the background. `failed` is called if it raises; without it the failure is logged."""
        self._nursery.start_soon(self._run, task, args, failed)

    async def _run(self, task: Task, args: tuple[Any, ...], failed: Failed | None) -> None:
        try:
            await task(*args)
        except Exception as error:
            self.failures += 1
            if failed is None:
                log.exception("background work failed: %s", getattr(task, "__qualname__", task))
            else:
                failed(error)


def run_callback(callback: Callable[..., None], *args: Any) -> None:
    """Call `callback(*args)`; a mistake in it is logged and does not fail the caller."""
    try:
        callback(*args)
    except Exception:
        log.exception("a callback failed: %s", getattr(callback, "__qualname__", callback))
