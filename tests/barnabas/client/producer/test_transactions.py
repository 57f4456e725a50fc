"""Transactions over a whole cluster under virtual time: what is asked for and what fails, and what comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from barnabas.client import errors
from barnabas.client.consumer import Isolation, ReadingSettings, open_reader
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import Failed, Producer, ProducerOptions, TransactionState
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.testing.simulated import SimulatedClusterForTests

pytestmark = pytest.mark.feature("TX-12")

OpenProducer = Callable[..., Producer]
Story = Callable[[SimulatedClusterForTests, OpenProducer], Awaitable[None]]


def play(story: Story, seed: int = 5) -> None:
    """Play a story with a cluster that has the topic `t` of two partitions, and producers with the id `etl`."""
    cluster = SimulatedClusterForTests(seed=seed)

    def producer(**options: object) -> Producer:
        settings: ProducerOptions = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "etl"}
        return Producer(world=cluster.world, **{**settings, **options})  # type: ignore[typeddict-item]

    async def run() -> None:
        await cluster.create_topic("t", partitions=2)
        await story(cluster, producer)

    cluster.run(run)


async def committed(cluster: SimulatedClusterForTests) -> list[bytes | None]:
    """Committed records of `t`, in the order of its partitions."""
    settings = ClientSettings.of({"bootstrap_servers": cluster.bootstrap_servers})
    found: dict[int, list[bytes | None]] = {0: [], 1: []}
    async with open_cluster(settings, cluster.world) as view:
        reading = ReadingSettings(isolation=Isolation.READ_COMMITTED)
        async with open_reader(view, reading) as reader:
            reader.assign({TopicPartition("t", index): 0 for index in found})
            with trio.move_on_after(5):
                while True:
                    for record in await reader.poll(500):
                        found[record.partition].append(record.value)
    return found[0] + found[1]


def test_a_block_commits_or_aborts() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer() as producer:
            async with producer.transaction():
                await producer.enqueue("t", b"a", partition=0)
                producer.send_nowait("t", b"b", partition=1)
            with pytest.raises(RuntimeError, match="no"):
                async with producer.transaction():
                    await producer.send("t", b"thrown away", partition=0)
                    raise RuntimeError("no")
            assert producer.transaction_state is TransactionState.READY
        assert await committed(cluster) == [b"a", b"b"]

    play(story)


def test_a_record_that_found_no_place_keeps_its_transaction_from_committing() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer(max_block_ms=3000, allow_auto_create_topics=False) as producer:
            with pytest.raises(errors.UnknownTopicOrPartitionException):
                async with producer.transaction():
                    await producer.enqueue("t", b"with it", partition=0)
                    future = producer.send_nowait("nowhere", b"x")
            assert isinstance(await future.outcome(), Failed)
            assert producer.transaction_state is TransactionState.READY, "it was aborted"
            async with producer.transaction():
                await producer.enqueue("t", b"the next one", partition=0)
        assert await committed(cluster) == [b"the next one"]

    play(story)


def test_a_fenced_producer_raises_at_once() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer() as first:
            first.begin_transaction()
            await first.send("t", b"of the first", partition=0)
            async with open_producer() as second:
                began = trio.current_time()
                futures = [await first.enqueue("t", b"too late", partition=index) for index in (0, 1)]
                with pytest.raises(errors.KafkaError):
                    await first.commit_transaction()
                assert trio.current_time() - began < 5
                outcomes = [await future.outcome() for future in futures]
                assert all(isinstance(outcome, Failed) for outcome in outcomes), outcomes
                async with second.transaction():
                    await second.enqueue("t", b"of the second", partition=0)
            with pytest.raises(errors.ProducerFencedException):
                await first.abort_transaction()
            assert first.transaction_state is TransactionState.FATAL_ERROR
        assert await committed(cluster) == [b"of the second"]

    play(story)


def test_a_transaction_that_is_open_at_the_end_of_the_block_is_aborted() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer() as producer:
            producer.begin_transaction()
            await producer.send("t", b"forgotten", partition=0)
        async with open_producer() as producer, producer.transaction():
            await producer.enqueue("t", b"the next one", partition=0)
        assert await committed(cluster) == [b"the next one"]

    play(story)


def test_calls_at_the_wrong_time_have_no_meaning() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer() as producer:
            with pytest.raises(errors.IllegalStateException, match="no transaction is open"):
                await producer.send("t", b"x")
            with pytest.raises(errors.IllegalStateException):
                await producer.commit_transaction()
            with pytest.raises(errors.IllegalStateException):
                await producer.abort_transaction()
            producer.begin_transaction()
            with pytest.raises(errors.IllegalStateException):
                producer.begin_transaction()
            await producer.commit_transaction()
            assert producer.transaction_state is TransactionState.READY

    play(story)


@pytest.mark.feature("TX-13", "CG-12")
def test_it_goes_on_past_the_death_of_a_broker() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        sent: list[bytes] = []
        async with open_producer() as producer:
            for number in range(12):
                if number == 4:
                    cluster.kill("broker-1")
                if number == 8:
                    cluster.start("broker-1")
                    cluster.kill("broker-2")
                value = b"%02d" % number
                async with producer.transaction():
                    for partition in (0, 1):
                        await producer.enqueue("t", value, partition=partition)
                sent.append(value)
        assert await committed(cluster) == sent * 2

    play(story)
