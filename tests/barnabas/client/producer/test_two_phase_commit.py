"""Two-phase commit over a whole cluster under virtual time (KIP-939): whatever dies between prepare and complete, the
prepared transaction ends as the external coordinator decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio

from barnabas.cli.hanging_transactions import open_longer_than, without_owners
from barnabas.client import errors
from barnabas.client.admin import Admin, TransactionState
from barnabas.client.cluster import TopicPartition
from barnabas.client.producer import PreparedTxnState, Producer, ProducerOptions
from barnabas.client.producer import TransactionState as ProducerState
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.client.producer.test_transactions import committed

pytestmark = pytest.mark.feature("TX-15", "TX-12")

OpenProducer = Callable[..., Producer]
Story = Callable[[SimulatedClusterForTests, OpenProducer], Awaitable[None]]
ALLOWED = {"transaction.two.phase.commit.enable": "true", "transaction.max.timeout.ms": "30000"}
BROKERS = ("broker-1", "broker-2", "broker-3")


def play(story: Story, seed: int = 5, settings: Mapping[str, str] = ALLOWED) -> None:
    """Play a story with a cluster that has the topic `t` of two partitions, and two-phase producers of the id `etl`."""
    cluster = SimulatedClusterForTests(seed=seed, settings=settings)

    def producer(**options: object) -> Producer:
        given: ProducerOptions = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "transactional_id": "etl",
            "transaction_two_phase_commit_enable": True,
        }
        return Producer(world=cluster.world, **{**given, **options})  # type: ignore[typeddict-item]

    async def run() -> None:
        await cluster.create_topic("t", partitions=2)
        await story(cluster, producer)

    cluster.run(run)


async def prepare_and_die(open_producer: OpenProducer, *values: bytes) -> PreparedTxnState:
    """A producer prepares a transaction and is gone: nothing more is sent."""
    state = PreparedTxnState()
    with trio.CancelScope() as life:
        async with open_producer() as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            for index, value in enumerate(values):
                await producer.enqueue("t", value, partition=index % 2)
            state = await producer.prepare_transaction()
            life.cancel()
            await trio.lowlevel.checkpoint()
    assert state.has_transaction
    return state


def test_the_straight_way() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer() as producer:
            assert not (await producer.init_transactions()).has_transaction
            for number, is_decided in enumerate((True, False, True)):
                producer.begin_transaction()
                await producer.enqueue("t", b"%d" % number, partition=0)
                state = await producer.prepare_transaction()
                with pytest.raises(errors.IllegalStateException, match="no transaction is open"):
                    await producer.send("t", b"too late")
                decided = PreparedTxnState.parse(str(state)) if is_decided else PreparedTxnState(state.producer_id, 999)
                await producer.complete_transaction(decided)
                assert producer.transaction_state is ProducerState.READY
        assert await committed(cluster) == [b"0", b"2"]

    play(story)


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_survives_its_producer(commit: bool) -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        state = await prepare_and_die(open_producer, b"a", b"b")
        await trio.sleep(60)  # longer than transaction.max.timeout.ms
        async with open_producer() as producer:
            found = await producer.init_transactions(keep_prepared=True)
            assert found == state
            with pytest.raises(errors.IllegalStateException):
                producer.begin_transaction()
            await producer.complete_transaction(state if commit else PreparedTxnState())
            producer.begin_transaction()
            await producer.enqueue("t", b"next", partition=0)
            await producer.commit_transaction()
        expected = [b"a", b"next", b"b"] if commit else [b"next"]
        assert await committed(cluster) == expected

    play(story)


@pytest.mark.feature("TX-13", "CG-12")
@pytest.mark.parametrize("seed", range(1, 9))
def test_it_survives_coordinator_and_leaders_that_die_between_prepare_and_complete(seed: int) -> None:
    """Each broker dies once, so the coordinator and both leaders do, also together; every seed takes another order."""

    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        order = BROKERS[seed % 3 :] + BROKERS[: seed % 3]
        expected: list[bytes] = []
        for number, is_decided in enumerate((True, False, True)):
            values = [b"%d-%d" % (number, part) for part in (0, 1)]
            state = await prepare_and_die(open_producer, *values)
            cluster.kill(order[number])
            if seed % 2:
                await trio.sleep(15)
            async with open_producer() as producer:
                found = await producer.init_transactions(keep_prepared=True)
                assert found == state
                cluster.start(order[number])
                cluster.kill(order[(number + 1) % 3])
                await producer.complete_transaction(state if is_decided else PreparedTxnState())
                cluster.start(order[(number + 1) % 3])
            await cluster.wait_ready()
            expected += values if is_decided else []
        assert sorted(await committed(cluster), key=str) == sorted(expected, key=str)

    play(story, seed)


def test_a_completed_transaction_is_not_completed_twice() -> None:
    """The producer died after the commit, before it could note that: the recovery finds nothing."""

    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer() as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.enqueue("t", b"once", partition=0)
            state = await producer.prepare_transaction()
            await producer.complete_transaction(state)
        async with open_producer() as producer:
            assert await producer.init_transactions(keep_prepared=True) == PreparedTxnState()
            await producer.complete_transaction(state)
            assert producer.transaction_state is ProducerState.READY
        assert await committed(cluster) == [b"once"]

    play(story)


def test_without_keep_it_is_aborted() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        await prepare_and_die(open_producer, b"given up")
        async with open_producer() as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.enqueue("t", b"next", partition=0)
            await producer.commit_transaction()
        assert await committed(cluster) == [b"next"]

    play(story)


@pytest.mark.feature("CL-04")
def test_an_administrator_sees_it_and_can_end_it() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        state = await prepare_and_die(open_producer, b"left behind")
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            (listed,) = await admin.list_transactions()
            assert (listed.transactional_id, listed.producer_id) == ("etl", state.producer_id)
            described = (await admin.describe_transactions(["etl"]))["etl"]
            assert described.state is TransactionState.ONGOING
            assert described.transaction_timeout_ms == 2**31 - 1
            assert (described.producer_id, described.producer_epoch) == (state.producer_id, state.epoch)
            await admin.force_terminate_transaction("etl")
            described = (await admin.describe_transactions(["etl"]))["etl"]
            assert described.state is not TransactionState.ONGOING
        async with open_producer() as producer:
            assert await producer.init_transactions(keep_prepared=True) == PreparedTxnState()
        assert await committed(cluster) == []

    play(story)


@pytest.mark.feature("TX-14", "TO-05")
@pytest.mark.parametrize("claims", [0, 2])
def test_a_prepared_transaction_is_not_hanging_however_long_it_is_open(claims: int) -> None:
    """Its coordinator knows it, under the producer id that opened it, also when others have claimed it."""

    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        state = await prepare_and_die(open_producer, b"left", b"behind")
        for _ in range(claims):
            with trio.CancelScope() as life:
                async with open_producer() as producer:
                    assert await producer.init_transactions(keep_prepared=True) == state
                    life.cancel()
                    await trio.lowlevel.checkpoint()
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            found = open_longer_than(await admin.describe_producers(partitions), -(1 << 60))
            assert [(each.partition, each.producer_id) for each in found] == [
                (0, state.producer_id),
                (1, state.producer_id),
            ]
            assert await without_owners(admin, found) == []
            await admin.force_terminate_transaction("etl")
            # The coordinator has given it up, and these are what is left of an earlier look.
            assert await without_owners(admin, found) == found

    play(story)


def test_a_cluster_that_does_not_allow_it_refuses() -> None:
    async def story(cluster: SimulatedClusterForTests, open_producer: OpenProducer) -> None:
        async with open_producer() as producer:
            with pytest.raises(errors.UnsupportedVersionException, match="version 5"):
                await producer.init_transactions()
        async with open_producer(transaction_two_phase_commit_enable=False) as producer:
            with pytest.raises(errors.IllegalStateException, match="transaction_two_phase_commit_enable"):
                await producer.init_transactions()
            with pytest.raises(errors.IllegalStateException, match="a transaction cannot be prepared"):
                await producer.prepare_transaction()
            with pytest.raises(errors.IllegalStateException, match="no transaction is prepared"):
                await producer.complete_transaction(PreparedTxnState())

    play(story, settings={})


@pytest.mark.parametrize("text", ["7", "7:", ":1", "-1:0", "1:-1", "1:2:3", "x:1", "1:40000", f"{2**63}:0", " 1:2"])
def test_the_text_of_a_state_is_checked(text: str) -> None:
    with pytest.raises(ValueError, match="must be empty or 'producer_id:epoch'"):
        PreparedTxnState.parse(text)


def test_a_state_survives_its_text() -> None:
    for state in (PreparedTxnState(), PreparedTxnState(0, 0), PreparedTxnState(2**63 - 1, 2**15 - 1)):
        assert PreparedTxnState.parse(str(state)) == state
    assert str(PreparedTxnState(4000, 7)) == "4000:7" and str(PreparedTxnState()) == ""
