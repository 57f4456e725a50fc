"""Requests that are served in steps: the state of one between its turns.

A handler whose work grows with what a client names is a generator. Each `next` is one step of less than a millisecond.
A step may yield a function without arguments: it runs in the worker, and the generator is sent its result, or its
exception is thrown into the generator. The connection decides when the next step may run (`runtime.server_connection`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

import trio

from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.worker import Worker

T = TypeVar("T")

Work = Callable[[], Any]
"""Work for the worker."""

Steps = Generator[Work | None, Any, None]


class RunningSteps:
    """A generator of steps, and the work that its last step asked for."""

    __slots__ = ("_next", "_resume", "_steps", "api_key", "has_begun", "is_over", "work")

    def __init__(self, steps: Steps, api_key: int) -> None:
        self._steps = steps
        self.api_key = api_key
        self._next = partial(next, steps)
        self._resume: Callable[[], Work | None] = self._next
        self.work: Work | None = None
        """`run_work` comes before the next step."""
        self.has_begun = False
        self.is_over = False

    def take(self) -> None:
        """Take one step. Raises what the step raises."""
        assert self.work is None, "the work of the last step has not been done"
        self.has_begun = True
        resume, self._resume = self._resume, self._next
        try:
            self.work = resume()
        except StopIteration:
            self.is_over = True

    async def run_work(self, worker: Worker) -> None:
        """Run the work; the next step gets its result or its exception."""
        work, self.work = self.work, None
        assert work is not None
        try:
            result = await worker.run(work)
        except Exception as error:
            self._resume = partial(self._steps.throw, error)
        else:
            self._resume = partial(self._steps.send, result)

    def close(self) -> None:
        """End the generator, whether it is over or not."""
        self._steps.close()


async def in_turns(steps: Stepwise[T]) -> T:
    """The result of the steps. Other tasks run between them."""
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await trio.lowlevel.checkpoint()
    finally:
        steps.close()


def measured(steps: Steps, measure: Callable[[Callable[[], Work | None]], Work | None]) -> Steps:
    """The same steps; `measure` takes each of them by a call."""
    resume: Callable[[], Work | None] = partial(next, steps)
    try:
        while True:
            work = measure(resume)
            try:
                result = yield work
            except Exception as error:
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, result)
    except StopIteration:
        return
    finally:
        steps.close()
