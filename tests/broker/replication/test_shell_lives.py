"""Random lives of three real brokers: what they count and report, and that in the end all agree."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
import trio.testing

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.decisions import DecisionKind
from tests.broker.replication.shells import LAG_MS, ShellBroker, ShellCluster, make_batch, until


@dataclass
class Counted:
    """Records and bytes that a broker appended as a leader."""

    records: int = 0
    size_bytes: int = 0


@dataclass
class Life:
    """A cluster, and what was done to it."""

    cluster: ShellCluster
    chance: random.Random
    counted: dict[int, Counted] = field(default_factory=lambda: {node: Counted() for node in (1, 2, 3)})
    answers: list[list[ErrorCode | None]] = field(default_factory=list)

    @property
    def leader(self) -> ShellBroker:
        return self.cluster.brokers[self.cluster.partitions[0].leader]

    def produce(self) -> None:
        leader, acks = self.leader, self.chance.choice([-1, -1, 1])
        batch = make_batch("x" * self.chance.randint(0, 90))
        partition = leader.partition
        try:
            result = partition.append(batch, [(0, read_header(batch, 0))], acks)
        except KafkaError:
            return
        counted = self.counted[leader.node]
        counted.records += 1
        counted.size_bytes += len(batch)
        if acks == -1:
            answers: list[ErrorCode | None] = []
            self.answers.append(answers)
            before = partition.waiting_acks
            partition.when_replicated(result.last_offset + 1, answers.append)
            assert partition.waiting_acks == before + (not answers)

    def pause(self) -> None:
        self.cluster.brokers[self.chance.choice([1, 2, 3])].stuck ^= True

    def elect(self) -> None:
        """Somebody who is in sync takes over; sometimes one who is not."""
        partition = self.cluster.partitions[0]
        clean = self.chance.random() < 0.8
        node = self.chance.choice([*partition.isr] if clean else [1, 2, 3])
        self.cluster.elect(node, isr=partition.isr if clean else (node,))
        self.cluster.learn()

    def delete_records(self) -> None:
        partition = self.leader.partition
        start, end = partition.log.log_start_offset, partition.log.high_watermark
        partition.delete_records(self.chance.choice([-1, self.chance.randint(start, max(start, end))]))

    def disk(self) -> None:
        """A disk takes nothing for a while."""
        health = self.cluster.brokers[self.chance.choice([1, 2, 3])].partition.log.health
        health.is_closed_for_room = not health.is_closed_for_room

    def check(self) -> None:
        for node, broker in self.cluster.brokers.items():
            partition, counted = broker.partition, self.counted[node]
            assert (partition.traffic.messages_in, partition.traffic.bytes_in) == (counted.records, counted.size_bytes)
            assert partition.log.high_watermark == partition.replica.high_watermark
            assert partition.log.log_start_offset <= partition.log.high_watermark or not partition.is_leader
            lag = broker.fetchers.lag(partition)
            assert (lag is None) == partition.is_leader
            assert partition.is_leader or partition.replica.log_end_offset == partition.log.log_end_offset

    async def heal(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.stuck = broker.partition.log.health.is_closed_for_room = False
        self.cluster.learn()
        await until(lambda: self.cluster.partitions[0].isr in ((1, 2, 3),), 30)
        self.produce()
        end = self.leader.partition.log.log_end_offset
        brokers = list(self.cluster.brokers.values())
        await until(lambda: all(broker.partition.log.high_watermark == end for broker in brokers), 30)
        self.check()
        start = max(broker.partition.log.log_start_offset for broker in brokers)
        assert start <= end
        copies = [b"".join(broker.partition.log.batches(start)) for broker in brokers]
        assert copies[0] == copies[1] == copies[2]
        for broker in brokers:
            assert broker.partition.waiting_acks == 0
            assert broker.fetchers.lag(broker.partition) in (None, 0)
        assert all(len(answers) == 1 for answers in self.answers)


STEPS = ["produce"] * 6 + ["pause", "elect", "delete_records", "disk"]


@pytest.mark.feature("RE-01", "RE-06", "RE-13", "CR-14")
@pytest.mark.parametrize("seed", range(8))
async def test_random_lives_end_in_agreement(tmp_path: Path, autojump_clock: trio.testing.MockClock, seed: int) -> None:
    chance = random.Random(seed)
    async with trio.open_nursery() as nursery:
        life = Life(ShellCluster(nursery, tmp_path, random.Random(seed)), chance)
        for _ in range(50):
            getattr(life, chance.choice(STEPS))()
            await trio.sleep(chance.choice([0, 0.001, 0.003, 0.01, 0.1]))
            if chance.random() < 0.1:
                await life.cluster.tick(2 * LAG_MS)
            life.check()
        await life.heal()
        nursery.cancel_scope.cancel()


@pytest.mark.feature("OB-02", "RE-14")
async def test_a_follower_that_cannot_write_says_how_far_it_is_behind(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = ShellCluster(nursery, tmp_path, random.Random(1))
        cluster.elect(1, isr=(1, 2))
        cluster.learn()
        late = cluster.brokers[3]
        await trio.sleep(0.1)
        late.partition.log.health.is_closed_for_room = True
        answers = [cluster.brokers[1].produce(f"record {number}", acks=-1)[1] for number in range(5)]
        await cluster.tick(3 * LAG_MS)
        assert cluster.partitions[0].isr == (1, 2) and all(answers)
        await until(lambda: late.fetchers.lag(late.partition) == 5)
        assert late.partition.log.log_end_offset == 0
        assert cluster.brokers[2].fetchers.lag(cluster.brokers[2].partition) == 0
        assert not [it for it in late.decisions.since(0) if it.kind is DecisionKind.TRUNCATION]
        nursery.cancel_scope.cancel()
