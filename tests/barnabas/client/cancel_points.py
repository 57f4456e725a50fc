"""Cancels what a client does at each of its checkpoints, one run after the other, and looks at what is left.

A scene has the surroundings of a client, its opening, the calls to cancel, and a check that it still works.
Runs are simulated, so the k-th checkpoint is the same in every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import trio

from barnabas.runtime.simulated import Universe, run_simulation

Stage = TypeVar("Stage")
Client = TypeVar("Client")

CLIENT_CODE = ("/barnabas/client/", "/runtime/channel.py", "/runtime/link.py")
"""Files with the code of clients' tasks."""

MOST_CHECKPOINTS = 2_000
STORY_SECONDS = 3_600


@dataclass(frozen=True)
class Scene(Generic[Stage, Client]):
    """Calls to cancel, and checks afterwards."""

    stage: Callable[[Universe], AbstractAsyncContextManager[Stage]]
    """Brokers, topics, records."""
    client: Callable[[Stage], AbstractAsyncContextManager[Client]]
    """A client for the length of a block."""
    act: Callable[[Client], Awaitable[object]]
    """The call to cancel."""
    afterwards: Callable[[Client], Awaitable[object]]
    """A check that must succeed afterwards."""
    patience_seconds: float = 60.0
    """For `afterwards`."""
    close_seconds: float = 35.0
    """For the client's end."""
    code: tuple[str, ...] = CLIENT_CODE
    """Files whose tasks must be gone at the end."""


class Cut(trio.abc.Instrument):
    """Cancels its block when the task that runs it reaches its `at`-th checkpoint in there; 0 is before it begins."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.checkpoints = 0
        self.struck_at: float | None = None
        """Time of the cancellation; None before it."""
        self._scope = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None

    @property
    def ended_by_it(self) -> bool:
        return self._scope.cancelled_caught

    def __enter__(self) -> Cut:
        self._task = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(self)
        self._scope.__enter__()
        if self.at == 0:
            self._strike()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        trio.lowlevel.remove_instrument(self)
        return bool(self._scope.__exit__(kind, error, traceback))

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.checkpoints += 1
            if self.checkpoints == self.at:
                self._strike()

    def _strike(self) -> None:
        self.struck_at = trio.current_time()
        self._scope.cancel()


def cancel_each_call(scene: Scene[Stage, Client], *, seed: int = 1, every: int = 1) -> int:
    """Cancel `act` alone, at every `every`-th checkpoint: the client lives on, works, and closes. Gives how many
    checkpoints there were."""

    async def story(universe: Universe, cut: Cut) -> None:
        async with scene.stage(universe) as stage:
            before = tasks_of(scene.code)
            with trio.fail_after(STORY_SECONDS):
                async with scene.client(stage) as client:
                    with cut:
                        await scene.act(client)
                    with trio.fail_after(scene.patience_seconds):
                        await scene.afterwards(client)
                    closing = trio.current_time()
            took = trio.current_time() - closing
            assert took <= scene.close_seconds, f"closing took {took:.3f} s"
            await nothing_is_left(scene.code, before)

    return _at_each_checkpoint(story, seed, every)


def cancel_each_life(scene: Scene[Stage, Client], *, seed: int = 1, every: int = 1) -> int:
    """Cancel a client's whole life, from its opening over `act` to its closing, at every `every`-th checkpoint: it ends
    in time, and another client works. Gives how many checkpoints there were."""

    async def story(universe: Universe, cut: Cut) -> None:
        async with scene.stage(universe) as stage:
            before = tasks_of(scene.code)
            with trio.fail_after(STORY_SECONDS):
                with cut:
                    async with scene.client(stage) as client:
                        await scene.act(client)
                if cut.struck_at is not None:
                    took = trio.current_time() - cut.struck_at
                    assert took <= scene.close_seconds, f"ending took {took:.3f} s"
                await nothing_is_left(scene.code, before)
                async with scene.client(stage) as client:
                    with trio.fail_after(scene.patience_seconds):
                        await scene.afterwards(client)

    return _at_each_checkpoint(story, seed, every)


async def cancel_in_a_row(
    act: Callable[[], Awaitable[object]],
    afterwards: Callable[[], Awaitable[object]],
    *,
    every: int = 1,
    patience_seconds: float = 60.0,
    code: tuple[str, ...] = (),
) -> int:
    """Within a story: cancel `act` before it begins, then `act` again at its `every`-th checkpoint, then at twice that,
    and so on, until one comes to its end; after each, `afterwards` must work, and with `code` no task of these files be
    left. Gives how many checkpoints the last one had.
    """
    for at in range(0, MOST_CHECKPOINTS, every):
        before = tasks_of(code)
        try:
            with Cut(at) as cut:
                await act()
            if cut.struck_at is not None:
                took = trio.current_time() - cut.struck_at
                assert took <= patience_seconds, f"ending took {took:.3f} s"
            await nothing_is_left(code, before)
            with trio.fail_after(patience_seconds):
                await afterwards()
        except Exception as error:
            error.add_note(f"cancelled at checkpoint {at}")
            raise
        if cut.struck_at is None:
            assert cut.checkpoints > 0, "nothing in this can be cancelled"
            return cut.checkpoints
    raise AssertionError(f"more than {MOST_CHECKPOINTS} checkpoints")


def _at_each_checkpoint(story: Callable[[Universe, Cut], Awaitable[None]], seed: int, every: int) -> int:
    for at in range(0, MOST_CHECKPOINTS, every):
        cut = Cut(at)
        try:
            run_simulation(seed, story, cut)
        except BaseException as error:
            alone = _alone(error)
            alone.add_note(f"seed {seed}, cancelled at checkpoint {at}")
            raise alone from None
        if cut.struck_at is None:
            assert cut.checkpoints > 0, "nothing in this can be cancelled"
            return cut.checkpoints
    raise AssertionError(f"more than {MOST_CHECKPOINTS} checkpoints")


def _alone(error: BaseException) -> BaseException:
    """The single exception inside of exception groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def nothing_is_left(code: tuple[str, ...], before: Counter[str]) -> None:
    """AssertionError if there are tasks that were not there before."""
    # A task that was cancelled just now may still have a turn to take.
    await trio.sleep(0.001)
    left = tasks_of(code) - before
    assert not left, f"tasks are left: {dict(left)}"


def tasks_of(code: tuple[str, ...]) -> Counter[str]:
    """Number of tasks by name, of those that run code of these files."""
    return Counter(task.name for task in _all_tasks() if any(place in _file(task) for place in code))


def _all_tasks() -> Iterator[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    waiting = [root] if root is not None else []
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)


def _file(task: trio.lowlevel.Task) -> str:
    return str(getattr(getattr(task.coro, "cr_code", None), "co_filename", ""))
