"""Stories of share consumers on a whole simulated cluster: a work queue whose brokers die, members, modes, the end."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import pytest
import trio

from barnabas.client.admin import Admin, AlterConfigOp, ConfigResource, ResourceType
from barnabas.client.errors import (
    ConfigException,
    IllegalStateException,
    InvalidRecordStateException,
    RecordDeserializationException,
)
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import Producer
from barnabas.client.shares.acknowledgements import Acknowledged
from barnabas.client.shares.deliveries import DeliveryState
from barnabas.client.shares.record import ShareRecord
from barnabas.client.shares.settings import ShareConsumerOptions, ShareConsumerSettings
from barnabas.client.shares.share_consumer import ShareConsumer
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.runtime.world import World
from barnabas.testing.simulated import SimulatedClusterForTests

pytestmark = pytest.mark.feature("CL-03")

T0 = TopicPartition("t", 0)
LOCK_MS = 15_000
LATENCY_MS = 1_000
"""A lock begins before the response arrives."""
QUICK = {"group.share.min.heartbeat.interval.ms": "500", "group.share.heartbeat.interval.ms": "500"}
EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}
Place = tuple[int, int]
"""(partition, offset)"""


@dataclass
class Stage:
    """All clients are on one host, and have one clock."""

    cluster: SimulatedClusterForTests

    def consumer(self, **options: Any) -> ShareConsumer:
        common: dict[str, Any] = {"group_id": "g", "request_timeout_ms": 5_000, "retry_backoff_ms": 20}
        return ShareConsumer(
            "t",
            world=self.cluster.world,
            bootstrap_servers=self.cluster.bootstrap_servers,
            **{**common, **options},
        )

    async def begin(self, partitions: int = 1) -> None:
        """A topic, and a group that begins with its first record."""
        await self.cluster.create_topic("t", partitions=partitions)
        configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
        async with Admin(bootstrap_servers=self.cluster.bootstrap_servers, world=self.cluster.world) as admin:
            operations = [AlterConfigOp(name, value) for name, value in configs.items()]
            await admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, "g"): operations})

    async def lags(self) -> dict[int, int | None]:
        """Records that are to be delivered, by partition."""
        async with Admin(bootstrap_servers=self.cluster.bootstrap_servers, world=self.cluster.world) as admin:
            offsets = (await admin.list_share_group_offsets("g"))["g"]
        return {partition.partition: it.lag if it else None for partition, it in offsets.items()}

    async def write(self, *values: bytes, partition: int = 0) -> None:
        async with Producer(
            bootstrap_servers=self.cluster.bootstrap_servers, world=self.cluster.world, request_timeout_ms=3_000
        ) as producer:
            for value in values:
                await producer.send("t", value, partition=partition)


def play(story: Callable[[Stage], Awaitable[None]], seed: int = 1) -> None:
    cluster = SimulatedClusterForTests(seed, QUICK)
    cluster.run(lambda: story(Stage(cluster)))


async def some(consumer: ShareConsumer, **options: int) -> list[ShareRecord]:
    """The records of the first poll that has any."""
    with trio.fail_after(60):
        while True:
            records = await consumer.poll(timeout_ms=500, **options)
            if records:
                return records


@dataclass
class Queue:
    """A work queue, and what its workers did."""

    chance: random.Random
    world: World
    deliveries: dict[Place, list[ShareRecord]] = field(default_factory=dict)
    accepted: dict[Place, None] = field(default_factory=dict)
    unknown: dict[Place, None] = field(default_factory=dict)
    """Perhaps accepted: the leader may have stored an acknowledgement whose response was lost."""
    killed_ms: dict[int, int] = field(default_factory=dict)
    """Time of the death of a partition's leader, whose locks die with it."""

    async def work(self, consumer: ShareConsumer) -> None:
        done: dict[Place, None] = {}

        def on_result(acknowledged: Acknowledged) -> None:
            for offset in acknowledged.offsets:
                place = (acknowledged.partition.partition, offset)
                if place in done:
                    (self.accepted if acknowledged.error is None else self.unknown)[place] = None

        async with consumer:
            consumer.set_acknowledgement_callback(on_result)
            while True:
                records = await consumer.poll(timeout_ms=500, max_records=5)
                for record in records:
                    self.is_delivered(record)
                for record in records:
                    with suppress(LookupError):
                        async with record:
                            await trio.sleep(20 if self.chance.random() < 0.02 else self.chance.random() / 5)
                            if self.chance.random() < 0.1:
                                raise LookupError("not now")
                            done[record.partition, record.offset] = None

    def is_delivered(self, record: ShareRecord) -> None:
        earlier = self.deliveries.setdefault((record.partition, record.offset), [])
        now_ms = self.world.monotonic.now_ms()
        for before in earlier:
            delivery = before.delivery
            lock_began_ms = -1 if delivery.due_ms is None else delivery.due_ms - LOCK_MS // 2
            is_undecided = delivery.state in (DeliveryState.UNDECIDED, DeliveryState.HELD)
            is_valid = delivery.generation == delivery.session.generation
            lasts = now_ms < lock_began_ms + LOCK_MS - LATENCY_MS
            locked = is_undecided and is_valid and lasts and lock_began_ms > self.killed_ms.get(record.partition, -1)
            assert not locked, f"{record} is delivered while it is locked by {before}"
            # A new leader does not know of deliveries without a result.
            assert before.delivery_count <= record.delivery_count
            assert record.partition in self.killed_ms or before.delivery_count < record.delivery_count
        earlier.append(record)


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(("mode", "workers"), [("batch_optimized", 4), ("record_limit", 2)])
def test_every_record_is_accepted_though_brokers_die(seed: int, mode: str, workers: int) -> None:
    wanted = {(partition, offset) for partition in range(3) for offset in range(40)}

    async def story(stage: Stage) -> None:
        await stage.begin(partitions=3)
        for partition in range(3):
            await stage.write(*[b"%d" % offset for offset in range(40)], partition=partition)
        queue = Queue(random.Random(seed), stage.cluster.world)
        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(queue.work, stage.consumer(share_acquire_mode=mode, **EXPLICIT))
            while len(queue.accepted) < 30:
                await trio.sleep(0.2)
            leader = await stage.cluster.leader_of("t", 0)
            led = [partition for partition in range(3) if await stage.cluster.leader_of("t", partition) == leader]
            stage.cluster.kill(leader)
            # A response may be on its way.
            queue.killed_ms = dict.fromkeys(led, queue.world.monotonic.now_ms() + LATENCY_MS)
            while len(queue.accepted) < 80:
                await trio.sleep(0.2)
            stage.cluster.start(leader)
            with trio.fail_after(300):
                while await stage.lags() != dict.fromkeys(range(3), 0):
                    await trio.sleep(0.5)
            # The last acknowledgement may be stored, and its response on its way.
            with trio.move_on_after(60):
                while queue.accepted.keys() | queue.unknown.keys() != wanted:
                    await trio.sleep(0.1)
            assert queue.accepted.keys() | queue.unknown.keys() == wanted
            nursery.cancel_scope.cancel()

    play(story, seed)


def test_delivery_counts_grow_until_the_record_is_given_up() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"never", b"well")
        counts: list[int] = []
        async with stage.consumer(**EXPLICIT) as consumer:
            with trio.fail_after(60):
                while len(counts) < 5:
                    for record in await consumer.poll(500):
                        if record.value == b"never":
                            counts.append(record.delivery_count)
                            consumer.acknowledge(record, AcknowledgeType.RELEASE)
                        else:
                            consumer.acknowledge(record)
            assert await consumer.commit() == {T0: None}
            assert await consumer.poll(3_000) == []
        assert counts == [1, 2, 3, 4, 5]

    play(story)


def test_the_next_poll_accepts_in_implicit_mode() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"a", b"b")
        results: list[Acknowledged] = []
        async with stage.consumer(max_poll_records=1, share_acquire_mode="record_limit") as consumer:
            consumer.set_acknowledgement_callback(results.append)
            [first] = await some(consumer)
            with pytest.raises(IllegalStateException, match="explicit"):
                consumer.acknowledge(first)
            with pytest.raises(IllegalStateException, match="explicit"):
                async with first:
                    raise AssertionError("the block does not begin")
            [second] = await some(consumer)
            assert (first.value, second.value) == (b"a", b"b")
            assert results == [] or results[0].offsets == (0,)
            assert await consumer.commit() == {T0: None}
            assert [each.offsets for each in results] == [(0,), (1,)]
            await stage.write(b"c")
            [third] = await some(consumer)
            assert third.value == b"c"
        # It closed before it polled again: that one was not processed.
        async with stage.consumer() as other:
            [again] = await some(other)
            assert (again.value, again.delivery_count) == (b"c", 2)

    play(story)


def test_decisions_do_not_wait_for_a_poll_that_comes_too_late() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"a")
        async with stage.consumer(**EXPLICIT) as consumer, stage.consumer(**EXPLICIT) as other:
            [record] = await some(consumer)
            consumer.acknowledge(record)
            assert await other.poll(2 * LOCK_MS) == [], "it was acknowledged halfway through its lock"

    play(story)


def test_a_block_keeps_its_lock_and_its_membership() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"slow")
        async with stage.consumer(max_poll_interval_ms=20_000, **EXPLICIT) as consumer, stage.consumer() as other:
            [record] = await some(consumer)
            async with record:
                assert await other.poll(6 * LOCK_MS) == []
            assert await consumer.commit() == {T0: None}
            await stage.write(b"next")
            [following] = await other.poll(30_000)
            assert following.value == b"next"

    play(story)


def test_a_poll_needs_decisions_first() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"a", b"b")
        async with stage.consumer(**EXPLICIT) as consumer:
            first, second = await some(consumer)
            with pytest.raises(IllegalStateException, match="offset 0 of t-0"):
                await consumer.poll()
            consumer.acknowledge(first, AcknowledgeType.RENEW)
            async with second:
                assert await consumer.poll() == []
                with pytest.raises(IllegalStateException, match="another block"):
                    async with second:
                        raise AssertionError("the block does not begin")
            consumer.acknowledge(first)
            with pytest.raises(ValueError, match="RELEASE"):
                consumer.acknowledge(second, AcknowledgeType.GAP)
            assert await consumer.commit() == {T0: None}

    play(story)


def test_a_record_that_cannot_be_read_is_released_and_reported() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"1", b"word", b"3")
        values: list[int] = []
        refused: list[int] = []
        async with stage.consumer(value_deserializer=int) as consumer:
            with trio.fail_after(60):
                while len(values) < 2 or len(refused) < 5:
                    try:
                        values += [record.value for record in await consumer.poll(500)]
                    except RecordDeserializationException as error:
                        refused.append(error.offset)
        assert (values, refused) == ([1, 3], [1] * 5)

    play(story)


def test_a_new_subscription_and_none() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.cluster.create_topic("u")
        await stage.write(b"a")
        async with stage.consumer(**EXPLICIT) as consumer:
            [record] = await some(consumer)
            assert (consumer.subscription(), consumer.assignment()) == (("t",), (T0,))
            consumer.unsubscribe()
            assert (consumer.subscription(), consumer.assignment()) == ((), ())
            with pytest.raises(IllegalStateException, match="subscription"):
                await consumer.poll()
            consumer.acknowledge(record)
            [error] = (await consumer.commit()).values()
            assert isinstance(error, InvalidRecordStateException)
            consumer.subscribe(["t", "u"])
            [again] = await some(consumer)
            assert again.delivery_count == 2
            with trio.fail_after(60):
                while len(consumer.assignment()) < 2:
                    await trio.sleep(0.1)
            consumer.subscribe(["u"])
            with trio.fail_after(60):
                while consumer.assignment() != (TopicPartition("u", 0),):
                    await trio.sleep(0.1)
            consumer.acknowledge(again)
            assert await consumer.commit() == {T0: None}, "partitions may go while records are processed"

    play(story)


def test_a_lost_session_is_opened_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"a")
        async with stage.consumer(**EXPLICIT) as consumer:
            [record] = await some(consumer)
            leader = await stage.cluster.leader_of("t", 0)
            await stage.cluster.stop(leader)
            await stage.cluster.leader_of("t", 0, other_than=leader)
            consumer.acknowledge(record)
            [error] = (await consumer.commit()).values()
            assert error is not None
            [again] = await some(consumer)
            assert again.offset == record.offset
            consumer.acknowledge(again)
            assert await consumer.commit() == {T0: None}

    play(story)


def test_a_cancelled_block_leaves_the_group_and_releases() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.write(b"a")
        with trio.CancelScope() as scope:
            async with stage.consumer(**EXPLICIT) as consumer:
                [record] = await some(consumer)
                async with record:
                    scope.cancel()
                    await trio.sleep_forever()
        began = trio.current_time()
        async with stage.consumer(**EXPLICIT) as other:
            [again] = await some(other)
        assert trio.current_time() - began < LOCK_MS / 1000, "it did not wait for the lock to expire"
        assert again.delivery_count == 2

    play(story)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "group_id"),
        ({"group_id": " "}, "blank"),
        ({"group_id": "g", "share_acknowledgement_mode": "sometimes"}, "share_acknowledgement_mode"),
        ({"group_id": "g", "isolation_level": "read_committed"}, "isolation_level"),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        ShareConsumer("t", bootstrap_servers="a:1", **options)




def test_the_options_are_those_of_the_settings() -> None:
    assert set(get_type_hints(ShareConsumerOptions)) == set(ShareConsumerSettings.model_fields)
