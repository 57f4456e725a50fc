"""The producer against brokers that lose office, answers and connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Unpack

import pytest
import trio

import barnabas.client
from barnabas.client import errors
from barnabas.client.cluster import Cluster
from barnabas.client.interceptors import ProducerInterceptor, ProducerRecord
from barnabas.client.producer import (
    Acked,
    Failed,
    FutureRecordMetadata,
    Producer,
    ProducerOptions,
    RecordMetadata,
    RoundRobinPartitioner,
    Unknown,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.simulated import run_simulation
from tests.barnabas.client.fake_cluster import FakeCluster, FakePartition, Fate, with_client

SMALL: ProducerOptions = {
    "linger_ms": 1,
    "batch_size": 300,
    "delivery_timeout_ms": 5000,
    "request_timeout_ms": 1000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}

Story = Callable[[FakeCluster, Callable[..., Producer]], Awaitable[None]]


def run(seed: int, story: Story) -> None:
    """Play a story with brokers and producers, which have SMALL settings by default."""

    async def run(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        def producer(**options: Unpack[ProducerOptions]) -> Producer:
            settings: ProducerOptions = {**SMALL, "bootstrap_servers": "b1:9092,b2:9092,b3:9092", **options}
            return Producer(world=cluster.world, **settings)

        await story(fake, producer)

    run_simulation(seed, with_client, run)


# ---- where records go


def test_records_are_acked_with_their_offsets_in_order() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer() as producer:
            futures = [await producer.enqueue("t", b"%d" % n, partition=0, timestamp_ms=n) for n in range(200)]
            found = [await future for future in futures]
        assert found == [RecordMetadata("t", 0, n, n, -1, len(str(n))) for n in range(200)]
        assert partition.values() == [b"%d" % n for n in range(200)]
        assert len(partition.log) < 200

    run(1, story)


CLIENT = str(Path(barnabas.client.__file__).parent)


def test_a_record_that_is_waited_for_costs_no_task() -> None:
    class Spawned(trio.abc.Instrument):
        def __init__(self) -> None:
            self.names: list[str] = []

        def task_spawned(self, task: trio.lowlevel.Task) -> None:
            if task.coro.cr_code.co_filename.startswith(CLIENT):
                self.names.append(task.name)

    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer(linger_ms=0) as producer:
            for n in range(3):  # connections, a producer id
                await producer.send("t", b"%d" % n)
            spawned = Spawned()
            trio.lowlevel.add_instrument(spawned)
            for n in range(3, 30):
                await producer.send("t", b"%d" % n)
            trio.lowlevel.remove_instrument(spawned)
        assert spawned.names == []
        assert partition.values() == [b"%d" % n for n in range(30)]

    run(1, story)


def test_many_are_sent_and_waited_for_together() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [first, second] = fake.create("t", 2)
        fake.create("u")
        async with open_producer() as producer:
            found = await producer.send_all("t", (b"%d" % n for n in range(200)), partition=1)
            assert [(each.partition, each.offset) for each in found] == [(1, n) for n in range(200)]
            assert second.values() == [b"%d" % n for n in range(200)]
            records = [
                b"v",
                ProducerRecord("u", b"w", b"k", (("h", None),), 0, 17),
                ProducerRecord("t", None, partition=0),
            ]
            places = await producer.send_all("t", records, partition=0)
            assert [str(each) for each in places] == ["t-0@0", "u-0@0", "t-0@1"]
            assert places[1].timestamp_ms == 17
            assert first.values() == [b"v", b""]
            assert await producer.send_all("t", []) == []

    run(1, story)


def test_each_outcome_is_reported_if_not_all_were_acknowledged() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer(max_request_size=1000) as producer:
            with pytest.raises(errors.NotAllSentException, match="2 of 4 records were not acknowledged") as caught:
                await producer.send_all("t", [b"a", b"b", b"x" * 2000, b"c"])
        assert [type(each) for each in caught.value.outcomes] == [Acked, Acked, Failed, Failed]
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert partition.values() == [b"a", b"b"], "nothing overtakes what could not be sent"

        fake.script = lambda broker, partition: Fate(error=ErrorCode.REQUEST_TIMED_OUT)
        async with open_producer() as producer:
            with pytest.raises(errors.NotAllSentException) as caught:
                await producer.send_all("t", [b"d", b"e"])
        assert {type(each) for each in caught.value.outcomes} <= {Unknown, Failed}
        assert len(caught.value.outcomes) == 2

    run(1, story)


@pytest.mark.feature("PR-02")
def test_keys_choose_partitions_and_keyless_records_spread() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        partitions = fake.create("t", 3)
        async with open_producer() as producer:
            for n in range(400):
                await producer.enqueue("t", b"keyed", key=b"one key")
                await producer.enqueue("t", b"%d" % n)
        keyed = [partition.values().count(b"keyed") for partition in partitions]
        assert sorted(keyed) == [0, 0, 400]
        assert all(len(partition.values()) > 0 for partition in partitions)

    run(2, story)


@pytest.mark.feature("PR-02")
def test_a_user_may_choose_partitions_himself() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        partitions = fake.create("t", 3)
        async with open_producer(partitioner_class=RoundRobinPartitioner()) as producer:
            for _ in range(30):
                await producer.enqueue("t", b"v", key=b"one key")
        assert [len(partition.values()) for partition in partitions] == [10, 10, 10]
        async with open_producer(partitioner_class=lambda *_: 7) as producer:
            with pytest.raises(ValueError, match="one of the 3 partitions of topic t; got 7"):
                await producer.send("t", b"v")

    run(2, story)


@pytest.mark.feature("PR-08", "PR-09")
def test_partitions_of_one_broker_share_a_request() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        partitions = fake.create("t", 9)
        async with open_producer() as producer:
            await producer.partitions_for("t")
            for n in range(90):
                producer.send_nowait("t", b"%d" % n, partition=n % 9)
            await producer.flush()
        assert [len(partition.values()) for partition in partitions] == [10] * 9
        assert max(fake.produced_partitions) == 3
        assert len(fake.produced) < 27

    run(2, story)


@pytest.mark.feature("PR-01")
@pytest.mark.parametrize("hints", [True, False])
def test_it_follows_the_leader(hints: bool) -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.hints = hints
        [partition] = fake.create("t")
        async with open_producer() as producer:
            await producer.send("t", b"before", partition=0)
            asked = fake.seen.count(ApiKey.METADATA)
            partition.leader, partition.epoch = 2, 1
            await producer.send("t", b"after", partition=0)
        assert partition.values() == [b"before", b"after"]
        assert [broker for broker, _ in fake.produced] == [1, 1, 2]
        assert (fake.seen.count(ApiKey.METADATA) == asked) == hints, "a hint saves a metadata request"

    run(3, story)


# ---- faults


@pytest.mark.feature("PR-11")
@pytest.mark.parametrize("seed", range(5))
def test_lost_requests_and_lost_answers_are_made_up_for_without_repetition(seed: int) -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        chance = fake.universe.stream("script")
        fates = [Fate(False), Fate(True), Fate(True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
        fates += [Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS), Fate(True, ErrorCode.NOT_LEADER_OR_FOLLOWER)]

        def script(broker: int, partition: FakePartition) -> Fate | None:
            if chance.random() < 0.2:
                partition.leader, partition.epoch = chance.randrange(1, 4), partition.epoch + 1
            return chance.choice(fates) if chance.random() < 0.4 else None

        fake.script = script
        partitions = fake.create("t", 2)
        async with open_producer(delivery_timeout_ms=30_000) as producer:
            futures = []
            for n in range(120):
                futures.append(await producer.enqueue("t", b"%d" % n, partition=n % 2))
                await trio.sleep(0.001)
            outcomes = [await future.outcome() for future in futures]
        assert [outcome for outcome in outcomes if not isinstance(outcome, Acked)] == []
        for index, partition in enumerate(partitions):
            assert partition.values() == [b"%d" % n for n in range(120) if n % 2 == index]

    run(seed, story)


@pytest.mark.parametrize(
    ("fate", "kind", "error"),
    [
        (Fate(False, ErrorCode.INVALID_RECORD), Failed, errors.InvalidRecordException),
        (Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS), Failed, errors.TimeoutException),
        (Fate(True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), Unknown, errors.TimeoutException),
        (Fate(True), Unknown, errors.TimeoutException),
    ],
)
def test_an_undelivered_record_reports_whether_it_may_be_in_the_log(
    fate: Fate, kind: type, error: type[Exception]
) -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        fake.script = lambda broker, _: fate
        async with open_producer() as producer:
            future = await producer.enqueue("t", b"x", partition=0)
            with pytest.raises(error):
                await future
            assert isinstance(await future.outcome(), kind)
            fake.script = lambda broker, _: None
            ack = await producer.send("t", b"y", partition=0)
        assert partition.values()[ack.offset] == b"y"

    run(5, story)


def test_it_lives_through_the_death_of_a_broker() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer() as producer:
            await producer.send("t", b"1", partition=0)
            fake.universe.kill("b1")
            late = await producer.enqueue("t", b"2", partition=0)
            await trio.sleep(1)
            assert not late.done
            partition.leader, partition.epoch = 3, 1
            assert (await late).offset == 1

    run(6, story)


@pytest.mark.feature("PR-10")
def test_without_any_broker_a_record_fails_in_its_time() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        async with open_producer() as producer:
            await producer.send("t", b"1", partition=0)
            for name in ("b1", "b2", "b3"):
                fake.universe.kill(name)
            await trio.sleep(0.1)
            began = trio.current_time()
            future = await producer.enqueue("t", b"2", partition=0)
            assert isinstance(await future.outcome(), Failed)
            assert 4.9 < trio.current_time() - began < 6

    run(7, story)


@pytest.mark.feature("PR-10")
def test_a_silent_broker_leaves_a_record_unknown() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        async with open_producer() as producer:
            await producer.send("t", b"1", partition=0)
            for name in ("b1", "b2", "b3"):
                fake.universe.wires.stall("client", name)
            began = trio.current_time()
            future = await producer.enqueue("t", b"2", partition=0)
            assert isinstance(await future.outcome(), Unknown)
            assert trio.current_time() - began < 6

    run(8, story)


@pytest.mark.feature("PR-04")
def test_a_batch_that_is_too_large_goes_in_parts() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.max_message_bytes = 250
        [partition] = fake.create("t")
        async with open_producer(batch_size=10_000, linger_ms=20) as producer:
            futures = [await producer.enqueue("t", b"%04d" % n, partition=0) for n in range(200)]
            assert [(await future).offset for future in futures] == list(range(200))
            assert producer.metrics()["batch-split-total"] > 10
            with pytest.raises(errors.RecordTooLargeException):
                await producer.send("t", b"." * 500)
        assert partition.values() == [b"%04d" % n for n in range(200)]
        assert all(len(batch) <= 250 for batch in partition.log)

    run(8, story)


@pytest.mark.feature("PR-13")
def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer() as producer:
            await producer.send("t", b"1", partition=0)
            fates = [Fate(False, ErrorCode.UNKNOWN_PRODUCER_ID)]
            fake.script = lambda broker, _: fates.pop() if fates else None
            await producer.send("t", b"2", partition=0)
        headers = [read_header(batch) for batch in partition.log]
        assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(0, 0), (1, 0)]
        assert headers[0].producer_id == headers[1].producer_id
        assert fake.seen.count(ApiKey.INIT_PRODUCER_ID) == 1

    run(8, story)


@pytest.mark.feature("PR-13")
def test_a_topic_that_was_created_again_gets_every_record_of_the_same_producer() -> None:
    """Its log is empty, and refuses sequences that go on from the old one (KAFKA-15591)."""

    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        async with open_producer() as producer:
            await producer.send_all("t", [b"%d" % n for n in range(200)], partition=0)
            [second] = fake.create("t")
            found = await producer.send_all("t", [b"%d" % n for n in range(200, 500)], partition=0)
        assert [it.offset for it in found] == list(range(300))
        assert second.values() == [b"%d" % n for n in range(200, 500)]
        assert read_header(second.log[0]).base_sequence == 0

    run(8, story)


def test_a_broker_that_throttles_is_left_alone() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        fake.throttle_ms = 700
        async with open_producer() as producer:
            await producer.send("t", b"1", partition=0)
            began = trio.current_time()
            await producer.send("t", b"2", partition=0)
            assert trio.current_time() - began >= 0.7
            assert producer.metrics()["produce-throttle-time-max"] == 700

    run(8, story)


# ---- acks


@pytest.mark.feature("PR-10")
@pytest.mark.parametrize("acks", [0, 1, "0", "1"])
def test_other_acks_are_not_idempotent(acks: int | str) -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer(acks=acks) as producer:
            futures = [await producer.enqueue("t", b"%d" % n, partition=0) for n in range(50)]
            found = [await future for future in futures]
            await trio.sleep(1)
        expected = [-1] * 50 if str(acks) == "0" else list(range(50))
        assert [metadata.offset for metadata in found] == expected
        assert partition.values() == [b"%d" % n for n in range(50)]
        assert not any(read_header(batch).has_producer_id for batch in partition.log)
        assert ApiKey.INIT_PRODUCER_ID not in fake.seen

    run(8, story)


def test_an_old_broker_is_spoken_to_by_topic_name() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.max_versions = {ApiKey.PRODUCE: 9, ApiKey.METADATA: 9}
        [partition] = fake.create("t")
        async with open_producer() as producer:
            await producer.send("t", b"x", partition=0)
        assert fake.produced == [(1, 9)]
        assert partition.values() == [b"x"]

    run(12, story)


def test_a_broker_that_is_too_old_is_one_exception() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.max_versions = {ApiKey.PRODUCE: 2}
        fake.create("t")
        async with open_producer() as producer:
            future = await producer.enqueue("t", b"x", partition=0)
            with pytest.raises(errors.UnsupportedVersionException):
                await future
            assert isinstance(await future.outcome(), Failed)

    run(12, story)


# ---- bad input


def test_refused_records_raise_at_once() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t", 2)
        async with open_producer(max_block_ms=500, max_request_size=1000) as producer:
            with pytest.raises(errors.UnknownTopicOrPartitionException):
                await producer.send("missing", b"x")
            with pytest.raises(errors.UnknownTopicOrPartitionException, match="the 2 partitions of topic t; got 2"):
                await producer.send("t", b"x", partition=2)
            with pytest.raises(errors.RecordTooLargeException):
                await producer.send("t", b"x" * 1000)
            with pytest.raises(errors.SerializationException):
                await producer.send("t", "text")
            with pytest.raises(ValueError, match="timestamp"):
                await producer.send("t", b"x", timestamp_ms=-5)
            with pytest.raises(ValueError, match="partition must be at least 0; got -1"):
                await producer.send("t", b"x", partition=-1)
            with pytest.raises(UnicodeEncodeError):
                await producer.send("t", b"x", headers=(("\ud800", b""),))
            with pytest.raises(TypeError, match="header"):
                await producer.send("t", b"x", headers=[("k", "text")])
        pool = producer._pool
        assert pool.available_bytes == pool.total_bytes

    run(9, story)


def test_a_producer_that_is_not_open_raises() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        producer = open_producer()
        with pytest.raises(errors.IllegalStateException, match="not open"):
            await producer.send("t", b"x")
        async with producer:
            with pytest.raises(errors.IllegalStateException, match="transactional_id"):
                producer.begin_transaction()
        for late in (producer.send("t", b"x"), producer.flush(), producer.partitions_for("t")):
            with pytest.raises(errors.IllegalStateException, match="closed"):
                await late
        with pytest.raises(errors.IllegalStateException, match="closed"):
            producer.send_nowait("t", b"x")
        with pytest.raises(errors.IllegalStateException, match="opened before"):
            await producer.__aenter__()

    run(9, story)


# ---- memory


@pytest.mark.feature("PR-07")
def test_a_full_buffer_makes_the_sender_wait() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer(buffer_memory=1000, max_block_ms=1000) as producer:
            for n in range(50):
                await producer.enqueue("t", b"%d" % n + b"." * 100, partition=0)
            assert len(partition.values()) > 30
            await producer.flush()
            fake.script = lambda broker, _: Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS)
            with pytest.raises(errors.BufferExhaustedException, match="buffer_memory is full"):
                for _ in range(50):
                    await producer.enqueue("t", b"." * 100, partition=0)
            with pytest.raises(errors.BufferExhaustedException):
                producer.send_nowait("t", b"." * 200, partition=0)
            fake.script = lambda broker, _: None
            await producer.flush()
            assert producer.metrics()["buffer-available-bytes"] == 1000
            assert producer.metrics()["buffer-exhausted-total"] == 2

    run(10, story)


@pytest.mark.feature("PR-07")
def test_a_cancelled_wait_for_memory_takes_none() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer(buffer_memory=1000) as producer:
            await producer.send("t", b"first", partition=0)
            fake.script = lambda broker, _: Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS)
            taken = 0
            with trio.move_on_after(0.5) as scope:
                while True:
                    await producer.enqueue("t", b"." * 200, partition=0)
                    taken += 1
            assert scope.cancelled_caught
            fake.script = lambda broker, _: None
            await producer.flush()
            assert len(partition.values()) == 1 + taken
            assert producer.metrics()["buffer-available-bytes"] == 1000

    run(10, story)


# ---- without waiting


def test_records_that_nobody_waited_for_find_their_topic_and_keep_their_order() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        async with open_producer() as producer:
            futures = [producer.send_nowait("t", b"%d" % n) for n in range(20)]
            assert ApiKey.METADATA not in fake.seen
            futures.append(await producer.enqueue("t", b"20"))
            futures.append(producer.send_nowait("t", b"21"))
            await producer.flush()
            assert all(future.done for future in futures)
            assert [(await future).offset for future in futures] == list(range(22))
            assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]
        assert partition.values() == [b"%d" % n for n in range(22)]

    run(11, story)


def test_a_missing_topic_is_reported_by_the_future() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        async with open_producer(max_block_ms=500) as producer:
            future = producer.send_nowait("missing", b"x")
            with pytest.raises(errors.UnknownTopicOrPartitionException):
                await future
            assert isinstance(await future.outcome(), Failed)
            assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]

    run(11, story)


def test_a_queued_record_that_is_cancelled_is_not_sent() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        async with open_producer() as producer:
            first = producer.send_nowait("late", b"first")
            with trio.move_on_after(0.2) as scope:
                await producer.enqueue("late", b"cancelled")
            assert scope.cancelled_caught
            [partition] = fake.create("late")
            await first
            await producer.send("late", b"second")
        assert partition.values() == [b"first", b"second"]

    run(11, story)


# ---- the end


@pytest.mark.feature("PR-14")
def test_a_block_that_raises_leaves_nothing_undecided() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        futures: list[FutureRecordMetadata] = []
        with pytest.raises(RuntimeError, match="enough"):
            async with open_producer(linger_ms=1000) as producer:
                futures.append(await producer.enqueue("t", b"x", partition=0))
                futures.append(producer.send_nowait("other", b"x"))
                raise RuntimeError("enough")
        for future in futures:
            assert isinstance(await future.outcome(), Failed)
            with pytest.raises(errors.IllegalStateException, match="closed"):
                await future

    run(11, story)


@pytest.mark.feature("PR-14")
def test_the_end_of_the_block_delivers_without_lingering() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        [partition] = fake.create("t")
        began = trio.current_time()
        async with open_producer(linger_ms=4000) as producer:
            await producer.enqueue("t", b"x", partition=0)
            producer.send_nowait("t", b"y", partition=0)
        assert partition.values() == [b"x", b"y"]
        assert trio.current_time() - began < 1

    run(11, story)


@pytest.mark.feature("PR-14")
def test_a_close_in_a_hurry_gives_up_what_is_left() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        async with open_producer() as producer:
            await producer.send("t", b"1", partition=0)
            fake.script = lambda broker, _: Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS)
            future = await producer.enqueue("t", b"2", partition=0)
            began = trio.current_time()
            await producer.close(timeout_ms=300)
            assert 0.25 < trio.current_time() - began < 0.4
            assert future.done
            with pytest.raises(errors.IllegalStateException):
                await producer.send("t", b"3")

    run(11, story)


@pytest.mark.feature("PR-14")
def test_flush_waits_for_what_there_is_and_not_for_what_comes() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        async with open_producer(linger_ms=3000) as producer:
            futures = [await producer.enqueue("t", b"%d" % n, partition=0) for n in range(30)]
            await producer.flush()
            assert all(future.done for future in futures)
            later = await producer.enqueue("t", b"later", partition=0)
            await trio.sleep(1)
            assert not later.done, "it lingers again"

    run(11, story)


# ---- serializers, interceptors, numbers


def test_serializers_and_interceptors_see_every_record() -> None:
    class Watcher(ProducerInterceptor):
        def __init__(self) -> None:
            self.acked: list[tuple[int, type[Exception] | None]] = []
            self.closed = 0

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(record.topic, {"wrapped": record.value}, record.key, record.headers, 1)

        def on_acknowledgement(self, metadata: Any, error: Exception | None) -> None:
            self.acked.append((metadata.offset, None if error is None else type(error)))

        def close(self) -> None:
            self.closed += 1

    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        partitions = fake.create("t", 2)
        watcher = Watcher()
        async with open_producer(
            key_serializer="int", value_serializer="json", interceptors=[watcher], max_block_ms=500
        ) as producer:
            metadata = await producer.send("t", [1], key=7, partition=0)
            assert (metadata.partition, metadata.serialized_key_size, metadata.serialized_value_size) == (1, 4, 15)
            with pytest.raises(errors.SerializationException):
                await producer.send("t", 1, key="seven")
            with pytest.raises(errors.UnknownTopicOrPartitionException):
                await producer.send("missing", 1)
        assert partitions[1].values() == [b'{"wrapped":[1]}']
        assert watcher.acked == [
            (0, None),
            (-1, errors.SerializationException),
            (-1, errors.UnknownTopicOrPartitionException),
        ]
        assert watcher.closed == 1

    run(13, story)


@pytest.mark.feature("PR-14")
def test_it_counts_what_it_does() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t")
        async with open_producer(linger_ms=10) as producer:
            for n in range(20):
                await producer.enqueue("t", b"%d" % n, partition=0)
            await producer.flush()
            metrics = producer.metrics()
        assert metrics["record-send-total"] == 20
        assert metrics["record-error-total"] == metrics["record-retry-total"] == 0
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"] == 33_554_432
        assert 100 < metrics["batch-size-avg"] <= metrics["batch-size-max"] <= 300
        assert 0 <= metrics["record-queue-time-avg"] <= 11
        assert 0 < metrics["request-latency-avg"] <= metrics["request-latency-max"]
        assert metrics["requests-in-flight"] == 0

    run(13, story)


@pytest.mark.feature("PR-01")
def test_partitions_and_their_leaders() -> None:
    async def story(fake: FakeCluster, open_producer: Callable[..., Producer]) -> None:
        fake.create("t", 3)
        async with open_producer(max_block_ms=300) as producer:
            found = await producer.partitions_for("t")
            with pytest.raises(KafkaError):
                await producer.partitions_for("missing")
        assert [(info.partition, info.leader and info.leader.node_id) for info in found] == [(0, 1), (1, 2), (2, 3)]

    run(13, story)
