"""The producer against brokers that lose office, answers and connections."""

import pytest
import trio

from barnabas.client.accumulator import Acked, Failed, ProducerSettings, Unknown
from barnabas.client.cluster import Cluster
from barnabas.client.producer import DeliveryFailed, open_producer
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from runtime.simulated import run_simulation
from tests.barnabas.client.fake_cluster import FakeCluster, FakePartition, Fate, with_client

SMALL = ProducerSettings(linger_ms=1, batch_size=300, delivery_timeout_ms=5000, request_timeout_ms=1000)


def test_records_are_acked_with_their_offsets_in_order() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        async with open_producer(cluster, SMALL) as producer:
            deliveries = [await producer.send("t", b"%d" % n, partition=0, timestamp=n) for n in range(200)]
            acks = [await delivery.ack() for delivery in deliveries]
        assert acks == [Acked(0, n, n) for n in range(200)]
        assert partition.values() == [b"%d" % n for n in range(200)]
        assert len(partition.log) < 200

    run_simulation(1, with_client, story)


def test_keys_choose_partitions_and_keyless_records_spread() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        partitions = fake.create("t", 3)
        async with open_producer(cluster, SMALL) as producer:
            for n in range(400):
                await producer.send("t", b"keyed", key=b"one key")
                await producer.send("t", b"%d" % n)
        keyed = [partition.values().count(b"keyed") for partition in partitions]
        assert sorted(keyed) == [0, 0, 400]
        assert all(len(partition.values()) > 0 for partition in partitions)

    run_simulation(2, with_client, story)


@pytest.mark.parametrize("hints", [True, False])
def test_it_follows_the_leader(hints: bool) -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.hints = hints
        [partition] = fake.create("t")
        async with open_producer(cluster, SMALL) as producer:
            await (await producer.send("t", b"before", partition=0)).ack()
            asked = fake.seen.count(ApiKey.METADATA)
            partition.leader, partition.epoch = 2, 1
            await (await producer.send("t", b"after", partition=0)).ack()
        assert partition.values() == [b"before", b"after"]
        assert [broker for broker, _ in fake.produced] == [1, 1, 2]
        assert (fake.seen.count(ApiKey.METADATA) == asked) == hints, "a hint saves a metadata request"

    run_simulation(3, with_client, story)


@pytest.mark.parametrize("seed", range(5))
def test_lost_requests_and_lost_answers_are_made_up_for_without_repetition(seed: int) -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        chance = fake.universe.stream("script")
        fates = [Fate(False), Fate(True), Fate(True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
        fates += [Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS), Fate(True, ErrorCode.NOT_LEADER_OR_FOLLOWER)]

        def script(broker: int, partition: FakePartition) -> Fate | None:
            if chance.random() < 0.2:
                partition.leader, partition.epoch = chance.randrange(1, 4), partition.epoch + 1
            return chance.choice(fates) if chance.random() < 0.4 else None

        fake.script = script
        partitions = fake.create("t", 2)
        async with open_producer(cluster, SMALL) as producer:
            deliveries = []
            for n in range(120):
                deliveries.append(await producer.send("t", b"%d" % n, partition=n % 2))
                await trio.sleep(0.001)
            outcomes = [await delivery.wait() for delivery in deliveries]
        assert [outcome for outcome in outcomes if not isinstance(outcome, Acked)] == []
        for index, partition in enumerate(partitions):
            assert partition.values() == [b"%d" % n for n in range(120) if n % 2 == index]

    run_simulation(seed, with_client, story)


@pytest.mark.parametrize(
    ("fate", "kind"),
    [
        (Fate(False, ErrorCode.MESSAGE_TOO_LARGE), Failed),
        (Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS), Failed),
        (Fate(True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), Unknown),
        (Fate(True), Unknown),
    ],
)
def test_what_cannot_be_delivered_says_whether_it_may_be_there(fate: Fate, kind: type) -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        fake.script = lambda broker, _: fate
        async with open_producer(cluster, SMALL) as producer:
            delivery = await producer.send("t", b"x", partition=0)
            with pytest.raises(DeliveryFailed) as caught:
                await delivery.ack()
            assert isinstance(caught.value.outcome, kind)
            fake.script = lambda broker, _: None
            ack = await (await producer.send("t", b"y", partition=0)).ack()
        assert partition.values()[ack.offset] == b"y"

    run_simulation(5, with_client, story)


def test_it_lives_through_the_death_of_a_broker() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        async with open_producer(cluster, SMALL) as producer:
            await (await producer.send("t", b"1", partition=0)).ack()
            fake.universe.kill("b1")
            late = await producer.send("t", b"2", partition=0)
            await trio.sleep(1)
            assert late.outcome is None
            partition.leader, partition.epoch = 3, 1
            assert (await late.ack()).offset == 1

    run_simulation(6, with_client, story)


def test_without_any_broker_a_record_fails_in_its_time() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.create("t")
        async with open_producer(cluster, SMALL) as producer:
            await (await producer.send("t", b"1", partition=0)).ack()
            for name in ("b1", "b2", "b3"):
                fake.universe.kill(name)
            began = trio.current_time()
            assert isinstance(await (await producer.send("t", b"2", partition=0)).wait(), Failed)
            assert 4.9 < trio.current_time() - began < 6

    run_simulation(7, with_client, story)


def test_a_silent_broker_leaves_a_record_unknown() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.create("t")
        async with open_producer(cluster, SMALL) as producer:
            await (await producer.send("t", b"1", partition=0)).ack()
            for name in ("b1", "b2", "b3"):
                fake.universe.wires.stall("client", name)
            began = trio.current_time()
            assert isinstance(await (await producer.send("t", b"2", partition=0)).wait(), Unknown)
            assert trio.current_time() - began < 6

    run_simulation(8, with_client, story)


def test_what_is_not_taken_is_said_at_once() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.create("t", 2)
        hasty = ProducerSettings(max_block_ms=500, max_request_size=1000)
        async with open_producer(cluster, hasty) as producer:
            with pytest.raises(KafkaError) as caught:
                await producer.send("missing", b"x")
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"x", partition=2)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"x" * 1000)
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(TypeError):
                await producer.send("t", "text")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="timestamp"):
                await producer.send("t", b"x", timestamp=-5)
            with pytest.raises(UnicodeEncodeError):
                await producer.send("t", b"x", headers=(("\ud800", b""),))

    run_simulation(9, with_client, story)


def test_a_full_buffer_makes_the_sender_wait() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        tight = ProducerSettings(linger_ms=1, batch_size=300, buffer_memory=1000, max_block_ms=1000)
        async with open_producer(cluster, tight) as producer:
            for n in range(50):
                await producer.send("t", b"%d" % n + b"." * 100, partition=0)
            assert len(partition.values()) > 30
            fake.script = lambda broker, _: Fate(False, ErrorCode.NOT_ENOUGH_REPLICAS)
            with pytest.raises(KafkaError, match="no room"):
                for _ in range(50):
                    await producer.send("t", b"." * 100, partition=0)
            fake.script = lambda broker, _: None

    run_simulation(10, with_client, story)


def test_a_block_that_raises_leaves_nothing_undecided() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.create("t")
        deliveries = []
        with pytest.raises(RuntimeError, match="enough"):
            async with open_producer(cluster, ProducerSettings(linger_ms=1000)) as producer:
                deliveries.append(await producer.send("t", b"x", partition=0))
                raise RuntimeError("enough")
        assert isinstance(deliveries[0].outcome, Failed)

    run_simulation(11, with_client, story)


def test_an_old_broker_is_spoken_to_by_topic_name() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.max_versions = {ApiKey.PRODUCE: 9, ApiKey.METADATA: 9}
        [partition] = fake.create("t")
        async with open_producer(cluster, SMALL) as producer:
            await (await producer.send("t", b"x", partition=0)).ack()
        assert fake.produced == [(1, 9)]
        assert partition.values() == [b"x"]

    run_simulation(12, with_client, story)
