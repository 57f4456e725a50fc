"""Requests of producers, brokers and admin clients to whole clusters in virtual time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.transactions.transaction import TopicPartition, TransactionState, by_topic
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import read_end_txn
from barnabas.runtime.channel import ChannelError
from tests.broker.apis.rig import Rig, on_cluster

E = ErrorCode
SMALL = {
    "transaction__state__log__num__partitions": "3",
    "transaction__state__log__replication__factor": "1",
    "transaction__state__log__min__isr": "1",
    "offsets__topic__num__partitions": "3",
    "offsets__topic__replication__factor": "1",
}
REPLICATED = {
    **SMALL,
    "transaction__state__log__replication__factor": "3",
    "transaction__state__log__min__isr": "2",
    "offsets__topic__replication__factor": "3",
    "min__insync__replicas": "2",
    "default__replication__factor": "3",
}

on_small_cluster = functools.partial(on_cluster, **SMALL)
on_replicated_cluster = functools.partial(on_cluster, 3, **REPLICATED)


class Producer:
    """A producer that retries as clients do."""

    def __init__(self, rig: Rig, transactional_id: str = "payments", asks: int = 1) -> None:
        self.rig = rig
        self.transactional_id = transactional_id
        self.stamp = ProducerStamp(-1, -1)
        self.asks = asks
        """The broker that it asks for the coordinator."""

    async def coordinator(self) -> int:
        while True:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
            (found,) = (await self.rig.ask(self.asks, request)).coordinators
            if found.error_code == E.NONE:
                return int(found.node_id)
            await trio.sleep(0.05)

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer of a coordinator that has loaded and finished the previous transaction."""
        again = (
            E.NOT_COORDINATOR,
            E.COORDINATOR_LOAD_IN_PROGRESS,
            E.COORDINATOR_NOT_AVAILABLE,
            E.CONCURRENT_TRANSACTIONS,
        )
        while True:
            with contextlib.suppress(ChannelError):
                response = await self.rig.ask(await self.coordinator(), request, version)
                if getattr(response, "error_code", 0) not in again:
                    return response
            await trio.sleep(0.05)

    async def init(self, version: int = 5, timeout_ms: int = 60_000) -> ErrorCode:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        if version >= 3:
            request.producer_id, request.producer_epoch = self.stamp
        response = await self.ask(request, version)
        if response.error_code == E.NONE:
            self.stamp = ProducerStamp(response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)

    async def add(self, *partitions: TopicPartition, version: int = 3) -> dict[TopicPartition, ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.stamp.producer_id,
            v3_and_below_producer_epoch=self.stamp.producer_epoch,
            v3_and_below_topics=topics_of(partitions),
        )
        response = await self.ask(request, version)
        return codes_of(response.results_by_topic_v3_and_below)

    async def end(self, commit: bool, version: int = 5) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.stamp.producer_id,
            producer_epoch=self.stamp.producer_epoch,
            committed=commit,
        )
        response = await self.ask(request, version)
        if response.error_code == E.NONE and version >= 5:
            self.stamp = ProducerStamp(response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)

    async def described(self) -> Any:
        response = await self.ask(DescribeTransactionsRequest(transactional_ids=[self.transactional_id]))
        (state,) = response.transaction_states
        return state

    async def until(self, state: TransactionState) -> None:
        with trio.fail_after(60):
            while (await self.described()).transaction_state != state.label:
                await trio.sleep(0.05)


def topics_of(partitions: Sequence[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions).items()]


def codes_of(topics: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        (topic.name, result.partition_index): ErrorCode(result.partition_error_code)
        for topic in topics
        for result in topic.results_by_partition
    }


def markers_in(rig: Rig, node: int, topic: str, index: int = 0) -> list[tuple[ProducerStamp, bool]]:
    """The transaction markers in a partition's log."""
    found = []
    for batch in rig.partition(node, topic, index).log.batches(0):
        marker = read_end_txn(batch, 0)
        if marker is not None:
            header = read_header(batch, 0)
            found.append((ProducerStamp(header.producer_id, header.producer_epoch), marker.committed))
    return found


# -- the course of a transaction


@pytest.mark.feature("TX-01", "TX-06", "TX-07")
@on_small_cluster()
async def test_a_transaction_over_two_topics_is_committed(rig: Rig) -> None:
    await rig.create("orders", 2)
    await rig.create("stock")
    producer = Producer(rig)
    assert await producer.init() is E.NONE
    added = await producer.add(("orders", 0), ("orders", 1), ("stock", 0))
    assert set(added.values()) == {E.NONE}
    first = producer.stamp
    assert await producer.end(True) is E.NONE
    assert producer.stamp == (first.producer_id, first.producer_epoch + 1)
    await producer.until(TransactionState.COMPLETE_COMMIT)
    for topic, index in added:
        assert markers_in(rig, 1, topic, index) == [(producer.stamp, True)]


@pytest.mark.feature("TX-04")
@on_small_cluster()
async def test_the_offsets_of_a_group_join_a_transaction(rig: Rig) -> None:
    producer = Producer(rig)
    await producer.init()
    request = AddOffsetsToTxnRequest(
        transactional_id="payments",
        producer_id=producer.stamp.producer_id,
        producer_epoch=producer.stamp.producer_epoch,
        group_id="readers",
    )
    assert (await producer.ask(request)).error_code == E.NONE, "the topic of the offsets is made on the way"
    described = await producer.described()
    (topic,) = described.topics
    assert (topic.topic, topic.partitions) == (GROUP_TOPIC, [partition_for("readers", 3)])
    assert described.transaction_state == "Ongoing" and described.transaction_timeout_ms == 60_000
    assert described.transaction_start_time_ms > 0
    assert await producer.end(False, version=4) is E.NONE
    await producer.until(TransactionState.COMPLETE_ABORT)


@pytest.mark.feature("TX-01", "TX-08")
@pytest.mark.parametrize("commit", [True, False])
@on_replicated_cluster()
async def test_a_coordinator_dies_and_another_finishes(rig: Rig, commit: bool) -> None:
    await rig.create("orders", 3, replicas=3)
    partitions = [("orders", index) for index in range(3)]
    producer = Producer(rig)
    await producer.init()
    coordinator = await producer.coordinator()
    producer.asks = coordinator % 3 + 1
    await producer.add(*partitions)
    assert await producer.end(commit) is E.NONE
    rig.cluster.kill(rig.name(coordinator))
    await producer.until(TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert await producer.coordinator() != coordinator
    for topic, index in partitions:
        leader = rig.leader(topic, index)
        results = markers_in(rig, leader, topic, index)
        assert results and set(results) == {(producer.stamp, commit)}, "sent at least once, and always the same"
    assert await producer.init() is E.NONE
    assert set((await producer.add(*partitions)).values()) == {E.NONE}
    assert await producer.end(True) is E.NONE


@pytest.mark.feature("TX-11")
@on_small_cluster()
async def test_an_open_transaction_is_aborted_in_time(rig: Rig) -> None:
    await rig.create("orders")
    producer = Producer(rig)
    await producer.init(timeout_ms=5_000)
    await producer.add(("orders", 0))
    await trio.sleep(16)
    assert (await producer.described()).transaction_state == "CompleteAbort"
    assert markers_in(rig, 1, "orders") == [(producer.stamp._replace(producer_epoch=1), False)]
    assert await producer.end(True) is E.PRODUCER_FENCED


@pytest.mark.feature("TX-07")
@on_small_cluster()
async def test_a_deleted_topic_delays_no_transaction(rig: Rig) -> None:
    await rig.create("orders")
    await rig.create("stock")
    producer = Producer(rig)
    await producer.init()
    await producer.add(("orders", 0), ("stock", 0))
    await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name="stock")], timeout_ms=10_000))
    await rig.until(lambda: "stock" not in rig.broker(1).metadata.image.topics.by_name)
    assert await producer.end(True) is E.NONE
    await producer.until(TransactionState.COMPLETE_COMMIT)
    assert markers_in(rig, 1, "orders") == [(producer.stamp, True)]


@pytest.mark.feature("TX-07")
@on_replicated_cluster()
async def test_markers_wait_for_a_leader(rig: Rig) -> None:
    """The only replica of a partition is down when the transaction ends; the partition gets its marker when it is back.
    """
    producer = Producer(rig)
    await producer.init()
    coordinator = await producer.coordinator()
    other = next(each for each in (1, 2, 3) if each != coordinator)
    producer.asks = coordinator
    await rig.create("orders", replicas=[other], min_insync_replicas="1")
    await producer.add(("orders", 0))
    rig.cluster.kill(rig.name(other))
    assert await producer.end(True) is E.NONE
    await trio.sleep(20)
    assert (await producer.described()).transaction_state == "PrepareCommit"
    markers = rig.broker(coordinator).coordination.late_transactions.get().markers
    assert markers.waiting_for_leaders == 1, "one transaction, however often it was looked after"
    rig.cluster.start(rig.name(other))
    await producer.until(TransactionState.COMPLETE_COMMIT)
    assert markers.waiting_for_leaders == 0
    assert markers_in(rig, other, "orders") == [(producer.stamp, True)]


# -- error codes by version


@pytest.mark.feature("TX-02")
@on_small_cluster()
async def test_older_clients_get_older_error_codes_of_fencing(rig: Rig) -> None:
    await rig.create("orders")
    zombie = Producer(rig)
    await zombie.init()
    newer = Producer(rig)
    for version in (0, 1, 2):
        assert await newer.init(version) is E.NONE
    assert newer.stamp == (zombie.stamp.producer_id, 3)
    assert await zombie.init(3) is E.INVALID_PRODUCER_EPOCH
    for version in (4, 5):
        assert await zombie.init(version) is E.PRODUCER_FENCED
    for version, code in ((0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)):
        assert await zombie.add(("orders", 0), version=version) == {("orders", 0): code}
        assert await zombie.end(True, version) is code


@pytest.mark.feature("TX-04")
@on_small_cluster()
async def test_an_unknown_partition_refuses_the_others(rig: Rig) -> None:
    await rig.create("orders")
    producer = Producer(rig)
    await producer.init()
    assert await producer.add(("orders", 0), ("orders", 7), ("none", 0)) == {
        ("orders", 0): E.OPERATION_NOT_ATTEMPTED,
        ("orders", 7): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await producer.described()).transaction_state == "Empty"


@pytest.mark.feature("TX-05")
@on_small_cluster()
async def test_brokers_add_and_verify_many_transactions_with_one_request(rig: Rig) -> None:
    await rig.create("orders", 2)
    producers = [Producer(rig, name) for name in ("a", "b", "c")]
    for producer in producers:
        await producer.init()

    def asked(producer: Producer, verify_only: bool, *indexes: int, epoch: int = 0) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.stamp.producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics_of([("orders", index) for index in indexes]),
        )

    a, b, c = producers
    unknown = Producer(rig, "unknown")
    for version in (4, 5):
        request = AddPartitionsToTxnRequest(
            transactions=[
                asked(a, False, 0),
                asked(b, True, 0, 1),
                asked(c, False, 0, 1, epoch=5),
                asked(unknown, True, 0),
                asked(Producer(rig, ""), False, 0),
            ]
        )
        response = await rig.ask(1, request, version)
        assert response.error_code == E.NONE
        assert [each.transactional_id for each in response.results_by_transaction] == ["a", "b", "c", "unknown", ""]
        results = [codes_of(each.topic_results) for each in response.results_by_transaction]
        assert results == [
            {("orders", 0): E.NONE},
            {("orders", 0): E.TRANSACTION_ABORTABLE, ("orders", 1): E.TRANSACTION_ABORTABLE},
            {("orders", 0): E.PRODUCER_FENCED, ("orders", 1): E.PRODUCER_FENCED},
            {("orders", 0): E.INVALID_PRODUCER_ID_MAPPING},
            {("orders", 0): E.INVALID_REQUEST},
        ]
    verified = await rig.ask(1, AddPartitionsToTxnRequest(transactions=[asked(a, True, 0, 1)]), 5)
    assert codes_of(verified.results_by_transaction[0].topic_results) == {
        ("orders", 0): E.NONE,
        ("orders", 1): E.TRANSACTION_ABORTABLE,
    }
    nothing = await rig.ask(1, AddPartitionsToTxnRequest(transactions=[]), 5)
    assert nothing.results_by_transaction == []


# -- admin clients


@pytest.mark.feature("TX-14")
@on_small_cluster()
async def test_transactions_are_listed_by_state_producer_duration_and_pattern(rig: Rig) -> None:
    await rig.create("orders")
    old, young, idle = (Producer(rig, name) for name in ("eu-old", "us-young", "eu-idle"))
    for producer in (old, young, idle):
        await producer.init()
    await old.add(("orders", 0))
    await trio.sleep(10)
    await young.add(("orders", 0))

    async def listed(version: int = 2, **wanted: Any) -> list[str]:
        response = await rig.ask(1, ListTransactionsRequest(**wanted), version)
        assert response.error_code == E.NONE and response.unknown_state_filters == []
        return sorted(each.transactional_id for each in response.transaction_states)

    for version in (0, 1, 2):
        assert await listed(version) == ["eu-idle", "eu-old", "us-young"]
    assert await listed(state_filters=["Ongoing"]) == ["eu-old", "us-young"]
    assert await listed(state_filters=["Ongoing"], duration_filter=5_000) == ["eu-old"]
    assert await listed(producer_id_filters=[young.stamp.producer_id]) == ["us-young"]
    assert await listed(transactional_id_pattern="eu-.*") == ["eu-idle", "eu-old"]
    assert await listed(transactional_id_pattern="eu") == [], "the whole id has to match"
    assert await listed(transactional_id_pattern="") == ["eu-idle", "eu-old", "us-young"]
    bad = await rig.ask(1, ListTransactionsRequest(transactional_id_pattern="(eu"))
    assert bad.error_code == E.INVALID_REGULAR_EXPRESSION and not bad.transaction_states
    unknown = await rig.ask(1, ListTransactionsRequest(state_filters=["Nowhere"]))
    assert unknown.unknown_state_filters == ["Nowhere"] and not unknown.transaction_states


@pytest.mark.feature("TX-14")
@on_small_cluster()
async def test_an_unknown_id_cannot_be_described(rig: Rig) -> None:
    await Producer(rig).init()
    response = await rig.ask(1, DescribeTransactionsRequest(transactional_ids=["payments", "nobody", ""]))
    assert [each.error_code for each in response.transaction_states] == [
        E.NONE,
        E.TRANSACTIONAL_ID_NOT_FOUND,
        E.INVALID_REQUEST,
    ]
    assert [each.transactional_id for each in response.transaction_states] == ["payments", "nobody", ""]


@on_small_cluster()
async def test_requests_to_another_broker_are_refused(rig: Rig) -> None:
    init = await rig.ask(1, InitProducerIdRequest(transactional_id="payments", transaction_timeout_ms=1_000))
    assert (init.error_code, init.producer_id, init.producer_epoch) == (E.NOT_COORDINATOR, -1, -1)
    end = await rig.ask(1, EndTxnRequest(transactional_id="payments", producer_id=1))
    assert (end.error_code, end.producer_id, end.producer_epoch) == (E.NOT_COORDINATOR, -1, -1)
    described = await rig.ask(1, DescribeTransactionsRequest(transactional_ids=["payments"]))
    assert described.transaction_states[0].error_code == E.NOT_COORDINATOR
    assert (await rig.ask(1, ListTransactionsRequest())).transaction_states == []
    assert TRANSACTION_TOPIC not in rig.broker(1).metadata.image.topics.by_name


@pytest.mark.feature("PR-11", "MB-21")
@on_small_cluster()
async def test_a_coordinator_without_producer_ids_fetches_the_next_block(rig: Rig) -> None:
    first = Producer(rig)
    assert await first.init() is E.NONE
    ids = rig.broker(await first.coordinator()).coordination.producer_ids
    while ids.at_hand:
        ids.take()
    second = Producer(rig, "orders")
    with trio.fail_after(10):
        assert await second.init() is E.NONE
    assert second.stamp.producer_id >= first.stamp.producer_id + 1000, "from another block"


@pytest.mark.feature("PR-11")
@on_small_cluster()
async def test_idempotent_producers_get_ids_of_their_own(rig: Rig) -> None:
    ids = []
    for version in range(6):
        response = await rig.ask(1, InitProducerIdRequest(transactional_id=None), version)
        assert (response.error_code, response.producer_epoch) == (E.NONE, 0)
        ids.append(response.producer_id)
    assert len(set(ids)) == len(ids)
    half = await rig.ask(1, InitProducerIdRequest(transactional_id=None, producer_id=5), 3)
    assert half.error_code == E.INVALID_REQUEST
