"""Takes the steps of expensive requests in turns of their connection: the one driver of steps.

It serves the request that a connection has under way, and steps that a background task takes of an earlier one.
"""

from __future__ import annotations

from typing import Protocol

import trio

from barnabas.runtime.service import Service
from barnabas.runtime.steps import RunningSteps
from barnabas.runtime.turns import BUDGET_SECONDS, STEPS_TURN_SECONDS, Share

STEPS_IN_A_TURN = 64
"""Steps of an expensive request after which others have a turn, however quick the steps were."""


class TurnTaker(Protocol):
    """A connection that has turns."""

    closed: bool
    share: Share

    def begin_turn(self) -> None: ...

    def end_turn(self, began: float, ended: float) -> None: ...


class StepDriver:
    """Drives the steps of one connection's requests."""

    def __init__(self, service: Service, connection: TurnTaker) -> None:
        self._service = service
        self._connection = connection

    async def take_all(self, steps: RunningSteps) -> None:
        """Take all steps, in turns, and run their work between turns. Ends early if the connection closes. Raises what
        a step raises."""
        try:
            while not steps.is_over:
                if steps.has_begun:
                    if steps.work is not None:
                        await steps.run_work(self._service.worker)
                    await self._next_turn()
                if self._connection.closed:
                    return
                self._turn(steps)
        finally:
            steps.close()

    async def _next_turn(self) -> None:
        turns = self._service.turns
        if turns.is_over(self._connection.share):
            await turns.wait(self._connection.share)
        else:
            await trio.lowlevel.checkpoint()

    def _turn(self, steps: RunningSteps) -> None:
        connection, stopwatch = self._connection, self._service.stopwatch
        began = stopwatch()
        connection.begin_turn()
        try:
            self.take_some(steps, STEPS_IN_A_TURN, began)
        finally:
            connection.end_turn(began, stopwatch())

    def take_some(self, steps: RunningSteps, most: int, began: float) -> float:
        """Take at most `most` steps: until they are over, or ask for work, or the turn is over that began at `began`.
        Returns the end of the last step, on the stopwatch."""
        service = self._service
        before = service.stopwatch()
        for _ in range(most):
            steps.take()
            now = service.stopwatch()
            if now - before > BUDGET_SECONDS:
                service.overran(steps.api_key, now - before)
            before = now
            if steps.is_over or steps.work is not None or now - began > STEPS_TURN_SECONDS or self._connection.closed:
                break
        return before
