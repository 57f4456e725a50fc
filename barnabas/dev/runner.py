"""Runs the broker of a development node, and runs it again, on its data or on other data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts
    from barnabas.settings.combined import CombinedSettings


class BrokerRunner:
    """At most one broker at a time, in the nursery. One that fails ends the nursery."""

    def __init__(self, settings: CombinedSettings, nursery: trio.Nursery) -> None:
        self._settings = settings
        self._nursery = nursery
        self._stop = trio.Event()
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self.parts: BrokerParts
        """The broker that runs."""

    async def start(self) -> None:
        """Returns when clients are served."""
        self._stop, self._ended, self._scope = trio.Event(), trio.Event(), trio.CancelScope()
        self.parts = await self._nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[BrokerParts]) -> None:
        from barnabas.broker.node import run_broker
        from barnabas.runtime.real import real_world

        settings = self._settings
        try:
            with self._scope:
                run = partial(
                    run_broker,
                    settings.broker,
                    real_world(),
                    controller=settings.controller,
                    rooms_are_late=True,
                )
                await run(stop=self._stop, task_status=task_status)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Stop the broker in good order: its logs need no recovery."""
        kraft = logging.getLogger("kraft.controller")
        level = kraft.level
        kraft.setLevel(logging.ERROR)  # it warns that nobody leads now
        try:
            self._stop.set()
            await self._ended.wait()
        finally:
            kraft.setLevel(level)

    async def abandon(self) -> None:
        """End the broker at once: what it has on disk is not needed."""
        self._scope.cancel()
        await self._ended.wait()

    async def while_stopped(self, change: Callable[[], None], *, cleanly: bool) -> None:
        """Stop the broker, change its data, and start it again."""
        await (self.stop() if cleanly else self.abandon())
        await trio.to_thread.run_sync(change)
        await self.start()
