"""Delayed records while brokers are killed, lose power and are isolated: each comes once, and none before its time."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.channel import ChannelError
from tests.broker.apis.rig import NOW_MS, Rig, play
from tests.broker.delayed.delayed_rig import DELAYED, delayed_batch, now_ms, seen

pytestmark = pytest.mark.feature("RP-12")

RECORDS = 120
SECONDS = 14
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "log.retention.check.interval.ms": "700",
    "log.initial.task.delay.ms": "100",
}


class Load:
    """An idempotent producer that sends each batch until it is acknowledged."""

    def __init__(self, rig: Rig, chance: random.Random) -> None:
        self.rig = rig
        self.chance = chance
        self.due: dict[str, int] = {}
        self.sequence = 0

    async def run(self) -> None:
        while len(self.due) < RECORDS:
            count = self.chance.choice([1, 1, 3, 9])
            now = NOW_MS if not self.up() else now_ms(self.rig, self.up())
            batch = []
            for _ in range(count):
                value = f"r{len(self.due)}"
                due = self.chance.choice([None, now + self.chance.randrange(0, 9_000)])
                self.due[value] = due or 0
                batch.append((value, due))
            stamp = {"producer_id": 9, "producer_epoch": 0, "base_sequence": self.sequence}
            await self.until_acknowledged(delayed_batch(*batch, compression=self.chance.choice([0, 2]), **stamp))
            self.sequence += count
            await trio.sleep(self.chance.random() * 0.4)

    def up(self) -> int:
        return next((it.node.id for it in self.rig.cluster.brokers if it.broker is not None), 0)

    async def until_acknowledged(self, batch: bytes) -> None:
        while True:
            try:
                with trio.move_on_after(3):
                    leader = self.rig.leader("t") if self.up() else -1
                    if leader > 0:
                        answer = await self.rig.produce("t", batch, node=leader, timeout_ms=1_500)
                        if answer.error_code == ErrorCode.NONE:
                            return
            except ChannelError:
                pass
            await trio.sleep(0.1)


async def trouble(rig: Rig, chance: random.Random) -> None:
    """Ends with all brokers up."""
    ends = trio.current_time() + SECONDS
    while trio.current_time() < ends:
        await trio.sleep(chance.random() * 2)
        name = rig.name(chance.randrange(1, 4))
        match chance.choice(["kill", "kill", "power", "isolate", "leader"]):
            case "isolate":
                rig.universe.wires.isolate(name)
                await trio.sleep(chance.random() * 4)
                rig.universe.wires.heal()
                continue
            case "power":
                down: Callable[[str], None] = rig.cluster.power_cut
            case "leader":
                up = [it.node.id for it in rig.cluster.brokers if it.broker is not None]
                name = rig.name(max(rig.leader("t"), 1)) if up else name
                down = rig.cluster.kill
            case _:
                down = rig.cluster.kill
        down(name)
        await trio.sleep(chance.random())
        rig.cluster.start(name)
        await rig.until(lambda name=name: rig.cluster.node_of(int(name[-1])).broker is not None)


async def story(rig: Rig, seed: int) -> None:
    chance = random.Random(seed)
    await rig.create(
        "t", replicas=[1, 2, 3], min_insync_replicas="2", segment_bytes=str(1 << 20), segment_ms="3000", **DELAYED
    )
    load = Load(rig, chance)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        nursery.start_soon(trouble, rig, chance)
    last = max(load.due.values())
    await rig.until(lambda: rig.leader("t") > 0 and now_ms(rig, rig.leader("t")) > last + 1_000)
    await rig.until(lambda: len(rig.placed(rig.leader("t"), "t").isr) == 3)
    records: dict[str, int] = {}
    with trio.move_on_after(20):
        while len(records) < len(load.due):
            await trio.sleep(0.5)
            try:
                found = await seen(rig)
            except ChannelError:
                continue  # the connection is from before the broker's end
            records = {(it.value or b"").decode(): it.offset for it in found}
            assert len(records) == len(found), "a record came twice"
    missing = load.due.keys() - records.keys()
    assert not missing, f"{len(missing)} records are lost: {sorted(missing)[:5]}"


@pytest.mark.parametrize("seed", range(1, 9))
def test_each_record_comes_once_whatever_becomes_of_brokers(seed: int) -> None:
    play(partial(story, seed=seed), 3, seed, SETTINGS)
