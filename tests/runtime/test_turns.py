"""The order of turns on the event loop."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from barnabas.runtime.turns import LONGEST_PENALTY_SECONDS, ROUND_SECONDS, Share, Turns


class Stopwatch:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Crowd:
    """Connections, each with a share, that note the order of their turns."""

    def __init__(self) -> None:
        self.stopwatch = Stopwatch()
        self.turns = Turns(self.stopwatch)
        self.order: list[str] = []

    def spend(self, share: Share, seconds: float) -> None:
        began = self.stopwatch.now
        self.stopwatch.now += seconds
        self.turns.charge(share, began, self.stopwatch.now)

    async def take_turn(self, name: str, share: Share, seconds: float) -> None:
        await self.turns.wait(share)
        self.order.append(name)
        self.spend(share, seconds)


async def test_turns_are_free_until_the_round_is_used_up() -> None:
    crowd = Crowd()
    share = Share()
    crowd.spend(share, ROUND_SECONDS / 2)
    assert crowd.turns.spent < ROUND_SECONDS
    crowd.spend(share, ROUND_SECONDS)
    assert crowd.turns.spent >= ROUND_SECONDS


async def test_the_connection_that_used_least_goes_first_and_nodes_before_all(autojump_clock: MockClock) -> None:
    crowd = Crowd()
    greedy, modest, fresh, node = Share(), Share(), Share(), Share()
    node.is_node = True
    for share, seconds in ((greedy, 0.009), (modest, 0.006), (fresh, 0.001), (node, 0.007)):
        crowd.spend(share, seconds)
        share.expected = ROUND_SECONDS  # one of them fills a round
    async with trio.open_nursery() as nursery:
        for name, share in (("greedy", greedy), ("modest", modest), ("fresh", fresh), ("node", node)):
            nursery.start_soon(crowd.take_turn, name, share, ROUND_SECONDS)
            await trio.testing.wait_all_tasks_blocked()
        assert crowd.turns.waiting == 4
        async with trio.open_nursery() as rounds:
            rounds.start_soon(crowd.turns.run)
            while crowd.turns.waiting:
                await trio.sleep(0.001)
            rounds.cancel_scope.cancel()
    assert crowd.order == ["node", "fresh", "modest", "greedy"]


async def test_no_connection_waits_for_ever_behind_modest_ones() -> None:
    """The time that a connection used moves it back in the line, but never by more than the longest penalty."""
    crowd = Crowd()
    greedy = Share()
    crowd.spend(greedy, 60.0)
    place = greedy.place(crowd.stopwatch.now)
    assert place == crowd.stopwatch.now + LONGEST_PENALTY_SECONDS
    assert Share().place(crowd.stopwatch.now + 2 * LONGEST_PENALTY_SECONDS) > place


async def test_time_that_was_used_is_forgotten() -> None:
    crowd = Crowd()
    share = Share()
    crowd.spend(share, 0.3)
    crowd.stopwatch.now += 10.0
    crowd.spend(share, 0.001)
    assert share.used == pytest.approx(0.001)


async def test_a_round_lets_in_as_many_as_fit(autojump_clock: MockClock) -> None:
    """A thousand quick connections are not let in one by one."""
    crowd = Crowd()
    shares = [Share() for _ in range(100)]
    for share in shares:
        crowd.spend(share, ROUND_SECONDS / 50)
    passes = 0
    async with trio.open_nursery() as nursery:
        for number, share in enumerate(shares):
            nursery.start_soon(crowd.take_turn, str(number), share, ROUND_SECONDS / 50)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(crowd.turns.run)
        while crowd.turns.waiting:
            passes += 1
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(crowd.order) == 100
    assert passes < 10
