"""Delayed records while the wall clocks of brokers are set forward and back: none comes before its time by its leader's
clock, none is lost, and none comes twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest
import trio

from barnabas.broker.delayed.deliveries import LONGEST_SLEEP_MS
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.simulated.clocks import SimulatedClock
from tests.broker.apis.rig import Rig, on_cluster, play
from tests.broker.delayed.delayed_rig import DELAYED, now_ms, seen, send, values

pytestmark = pytest.mark.feature("RP-12")

SOON_SECONDS = LONGEST_SLEEP_MS / 1000 + 0.1
ROUNDS = 25
FARTHEST_MS = 20_000


def clock_of(rig: Rig, node: int = 1) -> SimulatedClock:
    clock = rig.broker(node).world.wall_clock
    assert isinstance(clock, SimulatedClock)
    return clock


@on_cluster()
async def test_records_follow_a_clock_that_is_set_forward_and_back(rig: Rig) -> None:
    await rig.create("t", **DELAYED)
    start = now_ms(rig)
    await send(rig, ("b", start + 60_000), ("a", start + 30_000))
    await send(rig, ("c", start + 90_000))
    await trio.sleep(5)
    clock_of(rig).jump(27_000)
    await trio.sleep(SOON_SECONDS)
    assert values(await seen(rig)) == ["a"]

    clock_of(rig).jump(-20_000)
    assert (await send(rig, ("new", start + 25_000))).error_code == ErrorCode.NONE
    await rig.until(lambda: now_ms(rig) > start + 24_900)
    assert values(await seen(rig)) == ["a"]
    await rig.until(lambda: now_ms(rig) > start + 25_100)
    assert values(await seen(rig)) == ["a", "new"]

    clock_of(rig).jump(60_000)
    await trio.sleep(SOON_SECONDS)
    assert values(await seen(rig)) == ["a", "new", "b"]
    await rig.until(lambda: now_ms(rig) > start + 90_100)
    assert values(await seen(rig)) == ["a", "new", "b", "c"]


@on_cluster()
async def test_a_delay_that_begins_before_a_jump_ends_by_the_new_clock(rig: Rig) -> None:
    await rig.create("t", **DELAYED)
    await send(rig, ("ten seconds", "10000"), header="deliver-after")
    clock_of(rig).jump(-30_000)
    began = trio.current_time()
    await trio.sleep(39)
    assert values(await seen(rig)) == []
    await trio.sleep(2)
    assert values(await seen(rig)) == ["ten seconds"]
    assert trio.current_time() - began < 42


class Clocks:
    """Sets the clocks of all brokers, and knows the latest time that each has shown."""

    def __init__(self, rig: Rig, chance: random.Random) -> None:
        self._rig = rig
        self._chance = chance
        self._latest_ms = 0

    def _all(self) -> Iterator[SimulatedClock]:
        return (clock_of(self._rig, it.node.id) for it in self._rig.cluster.brokers if it.broker is not None)

    def latest_ms(self) -> int:
        self._latest_ms = max(self._latest_ms, *(clock.now_ms() for clock in self._all()))
        return self._latest_ms

    def jump(self) -> None:
        self.latest_ms()
        for clock in self._all():
            if self._chance.random() < 0.7:
                clock.jump(self._chance.randrange(-FARTHEST_MS, FARTHEST_MS))
        self.latest_ms()


async def move_leader(rig: Rig) -> None:
    """Kill the leader of t, and start it again when another broker leads."""
    leader = rig.leader("t")
    rig.cluster.kill(rig.name(leader))
    await rig.until(lambda: rig.leader("t") not in (leader, -1))
    rig.cluster.start(rig.name(leader))
    await rig.until(lambda: rig.cluster.node_of(leader).broker is not None)
    await rig.until(lambda: len(rig.placed(rig.leader("t"), "t").isr) == len(rig.cluster.brokers))


async def story(rig: Rig, seed: int, brokers: int) -> None:
    chance = random.Random(seed)
    await rig.create("t", replicas=list(range(1, brokers + 1)), **DELAYED)
    clocks = Clocks(rig, chance)
    due: dict[str, int] = {}
    for round_ in range(ROUNDS):
        leader = rig.leader("t")
        batch = []
        for _ in range(chance.choice([1, 2, 20])):
            value = f"r{len(due)}"
            due[value] = now_ms(rig, leader) + chance.randrange(0, FARTHEST_MS)
            batch.append((value, due[value]))
        assert (await send(rig, *batch)).error_code == ErrorCode.NONE
        await trio.sleep(chance.random() * 3)
        clocks.jump()
        if brokers > 1 and round_ % 10 == 9:
            await move_leader(rig)
        came = values(await seen(rig))
        latest_ms = clocks.latest_ms()
        assert [value for value in came if due[value] > latest_ms] == []
        assert len(came) == len(set(came)), "a record came twice"
    await rig.until(lambda: now_ms(rig, rig.leader("t")) > max(due.values()), 100)
    await trio.sleep(SOON_SECONDS)
    assert sorted(values(await seen(rig))) == sorted(due)


@pytest.mark.parametrize(("seed", "brokers"), [(1, 1), (2, 1), (3, 1), (4, 3), (5, 3)])
def test_each_record_comes_once_whatever_the_clocks_show(seed: int, brokers: int) -> None:
    play(partial(story, seed=seed, brokers=brokers), brokers, seed, {})
