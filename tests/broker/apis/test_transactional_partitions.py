"""Transactions in their partitions: which batches may begin one, how it ends, and what readers see of it.

Where the coordinator's answer matters in time, `Oracle` stands in for it; the last stories have a real one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
import trio

from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.transactions.transaction import TopicPartition
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.record import decode_records
from barnabas.protocol.schema import decode
from tests.broker.apis.rig import Rig, batch_of, fetch_request, frame_of, on_cluster, values_in
from tests.broker.transactions.test_transaction_requests import Producer, on_replicated_cluster, on_small_cluster

PRODUCER = 7


class Oracle:
    """Answers for the coordinators, when it is let."""

    def __init__(self, rig: Rig, node: int = 1) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.verdicts: dict[TopicPartition, ErrorCode] = {}
        self.gate = trio.Event()
        self.gate.set()
        rig.broker(node).coordination.verifier.verify = self.verify  # type: ignore[method-assign]

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), add))
        await self.gate.wait()
        return {each: self.verdicts.get(each, ErrorCode.NONE) for each in partitions}


def batch(sequence: int, *values: str, epoch: int = 0, producer_id: int = PRODUCER) -> bytes:
    return batch_of(
        *(values or ("v",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def request_of(*batches: tuple[str, int, bytes], transactional_id: str | None = "tx", acks: int = -1) -> ProduceRequest:
    """(topic, partition, batch) of each."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=data)])
            for name, index, data in batches
        ],
    )


async def produce(rig: Rig, *batches: tuple[str, int, bytes], version: int = 11, **more: Any) -> list[ErrorCode]:
    response = await rig.ask(1, request_of(*batches, **more), version)
    return [ErrorCode(answer.error_code) for topic in response.responses for answer in topic.partition_responses]


async def mark(  # noqa: PLR0913 - what a marker is made of
    rig: Rig,
    *topics: tuple[str, int],
    commit: bool,
    epoch: int = 0,
    producer_id: int = PRODUCER,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    node: int = 1,
) -> list[ErrorCode]:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in topics],
    )
    response = await rig.ask(node, WriteTxnMarkersRequest(markers=[marker]), 2)
    (result,) = response.markers
    assert result.producer_id == producer_id
    return [ErrorCode(each.error_code) for topic in result.topics for each in topic.partitions]


async def read(rig: Rig, offset: int = 0, *, committed: bool = True, **more: Any) -> PartitionData:
    return await rig.fetch("t", offset, isolation_level=int(committed), **more)


# -- verification


@pytest.mark.feature("TX-05")
@pytest.mark.parametrize(("version", "adds"), [(9, False), (11, False), (12, True)])
@on_cluster()
async def test_the_coordinator_is_asked_once_for_each_transaction(rig: Rig, version: int, adds: bool) -> None:
    await rig.create("t", partitions=2)
    oracle = Oracle(rig)
    for sequence in range(3):
        pair = (("t", 0, batch(sequence)), ("t", 1, batch(sequence)))
        assert await produce(rig, *pair, version=version) == [ErrorCode.NONE, ErrorCode.NONE]
    assert oracle.asked == [("tx", PRODUCER, 0, [("t", 0), ("t", 1)], adds)]
    assert await mark(rig, ("t", 0), commit=True) == [ErrorCode.NONE]
    assert await produce(rig, ("t", 0, batch(3)), ("t", 1, batch(3)), version=version) == [ErrorCode.NONE] * 2
    assert oracle.asked[1:] == [("tx", PRODUCER, 0, [("t", 0)], adds)]


@pytest.mark.feature("TX-05")
@pytest.mark.parametrize(
    ("answer", "errors"),
    [
        (ErrorCode.INVALID_TXN_STATE, {9: 48, 11: 48, 12: 48}),
        (ErrorCode.TRANSACTION_ABORTABLE, {9: 48, 10: 48, 11: 120, 12: 120}),
        (ErrorCode.CONCURRENT_TRANSACTIONS, {9: 19, 11: 19, 12: 51}),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, {9: 19, 11: 19, 12: 19}),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {9: 19, 12: 19}),
        (ErrorCode.NOT_COORDINATOR, {9: 19, 12: 19}),
        (ErrorCode.NETWORK_EXCEPTION, {9: 19, 12: 19}),
        (ErrorCode.INVALID_PRODUCER_EPOCH, {9: 47, 12: 47}),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, {9: 49, 12: 49}),
    ],
)
@on_cluster()
async def test_each_version_gets_an_error_it_can_act_on(rig: Rig, answer: ErrorCode, errors: dict[int, int]) -> None:
    await rig.create("t", partitions=2)
    oracle = Oracle(rig)
    oracle.verdicts["t", 0] = answer
    for version, expected in errors.items():
        data = batch(0, producer_id=100 + version)
        verdict = await produce(rig, ("t", 0, data), ("t", 1, data), version=version)
        # A partition that is in the transaction does not suffer for one that is not.
        assert (int(verdict[0]), verdict[1]) == (expected, ErrorCode.NONE), version
    assert rig.partition(1, "t", 0).log.log_end_offset == 0
    assert rig.partition(1, "t", 1).log.log_end_offset == len(errors)


@pytest.mark.feature("TX-05")
@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, ErrorCode.INVALID_TXN_STATE), (1, ErrorCode.INVALID_PRODUCER_EPOCH)]
)
@on_cluster()
async def test_a_late_batch_of_an_aborted_transaction_cannot_slip_in(rig: Rig, epoch: int, expected: ErrorCode) -> None:
    """The coordinator said yes, and then gave the transaction up; its marker was faster than the batch."""
    await rig.create("t")
    oracle = Oracle(rig)
    oracle.gate = trio.Event()
    outcome: list[ErrorCode] = []

    async def late() -> None:
        response = await rig.channel(1).call(request_of(("t", 0, batch(0))), timeout_ms=60_000, version=11)
        outcome.append(ErrorCode(response.responses[0].partition_responses[0].error_code))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(late)
        await rig.until(lambda: oracle.asked)
        assert await mark(rig, ("t", 0), commit=False, epoch=epoch) == [ErrorCode.NONE]
        oracle.gate.set()
    assert outcome == [expected]
    data = await read(rig)
    assert values_in(data)[1:] == [] and data.last_stable_offset == data.high_watermark == 1


@pytest.mark.feature("TX-05", "PR-11")
@on_cluster()
async def test_batches_keep_their_order_while_the_first_is_verified(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    oracle = Oracle(rig)
    oracle.gate = trio.Event()
    raw = await rig.raw(1)
    for sequence in range(5):
        await raw.send_frame(frame_of(request_of(("t", 0, batch(sequence, f"v{sequence}"))), 11, sequence))
    await raw.send_frame(frame_of(request_of(("t", 1, batch(0))), 11, 5))
    # Another producer does not wait.
    other = batch_of("other", producer_id=99, producer_epoch=0, base_sequence=0)
    assert (await rig.produce("t", other)).base_offset == 0
    await rig.until(lambda: len(oracle.asked) == 2)
    oracle.gate.set()
    for correlation_id in range(6):
        frame = await raw.receive_frame()
        assert frame is not None and int.from_bytes(frame[:4], "big") == correlation_id
        response = decode(ProduceResponse, frame[5:], 11)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, correlation_id + 1 if correlation_id < 5 else 0)
    assert [asked[3] for asked in oracle.asked] == [[("t", 0)], [("t", 1)]], "one question for all of them"
    assert values_in(await read(rig, committed=False)) == ["other", "v0", "v1", "v2", "v3", "v4"]
    assert len(rig.partition(1, "t").producer_queues) == 0


@pytest.mark.feature("TX-05", "PR-12")
@on_cluster()
async def test_a_batch_queued_behind_a_refused_one_does_not_take_its_place(rig: Rig) -> None:
    await rig.create("t")
    oracle = Oracle(rig)
    oracle.gate = trio.Event()
    oracle.verdicts["t", 0] = ErrorCode.NOT_COORDINATOR
    raw = await rig.raw(1)
    for sequence in range(2):
        await raw.send_frame(frame_of(request_of(("t", 0, batch(sequence))), 11, sequence))
    await rig.until(lambda: oracle.asked)
    first_gate, oracle.gate = oracle.gate, trio.Event()
    first_gate.set()
    await rig.until(lambda: len(oracle.asked) == 2)
    oracle.verdicts.clear()
    oracle.gate.set()
    codes = []
    for _ in range(2):
        frame = await raw.receive_frame()
        assert frame is not None
        codes.append(decode(ProduceResponse, frame[5:], 11).responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await produce(rig, ("t", 0, batch(0))) == [ErrorCode.NONE]
    assert await produce(rig, ("t", 0, batch(1))) == [ErrorCode.NONE]


@pytest.mark.feature("TX-05")
@on_cluster()
async def test_nothing_is_written_for_a_connection_that_is_gone(rig: Rig) -> None:
    await rig.create("t")
    oracle = Oracle(rig)
    oracle.gate = trio.Event()
    raw = await rig.raw(1)
    for sequence in range(2):
        await raw.send_frame(frame_of(request_of(("t", 0, batch(sequence))), 11))
    await rig.until(lambda: oracle.asked)
    raw.close()
    await trio.sleep(1)
    oracle.gate.set()
    await rig.until(lambda: len(rig.partition(1, "t").producer_queues) == 0)
    assert rig.partition(1, "t").log.log_end_offset == 0


@pytest.mark.feature("TX-05")
@on_cluster(transaction__partition__verification__enable="false")
async def test_verification_can_be_switched_off_but_not_for_clients_that_rely_on_it(rig: Rig) -> None:
    await rig.create("t")
    oracle = Oracle(rig)
    assert await produce(rig, ("t", 0, batch(0)), version=11) == [ErrorCode.NONE]
    assert oracle.asked == []
    await mark(rig, ("t", 0), commit=True, epoch=1)
    assert await produce(rig, ("t", 0, batch(0, epoch=1)), version=12) == [ErrorCode.NONE]
    assert [asked[4] for asked in oracle.asked] == [True], "it adds no partitions by itself"


@pytest.mark.feature("TX-05")
@on_cluster()
async def test_verification_is_switched_while_the_broker_runs(rig: Rig) -> None:
    await rig.create("t")
    oracle = Oracle(rig)
    await rig.configure(4, "", transaction_partition_verification_enable="false")
    await rig.until(lambda: not rig.broker(1).settings.transaction_partition_verification_enable)
    assert await produce(rig, ("t", 0, batch(0)), version=11) == [ErrorCode.NONE]
    assert oracle.asked == []


@pytest.mark.feature("TX-05")
@on_cluster()
async def test_transactional_requests_that_are_not_taken(rig: Rig) -> None:
    await rig.create("t", partitions=3)
    oracle = Oracle(rig)
    for other in (batch(0, producer_id=8), batch(0, epoch=1)):
        refused = await produce(rig, ("t", 0, batch(0)), ("t", 1, other))
        assert refused == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2, "one transaction, one producer"
    anonymous = await produce(rig, ("t", 0, batch(0)), transactional_id=None)
    assert anonymous == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert await produce(rig, ("t", 0, batch_of("v", transactional=True))) == [ErrorCode.INVALID_RECORD]
    assert await produce(rig, ("nowhere", 0, batch(0))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await produce(rig, ("t", 0, batch(0)), acks=7) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert oracle.asked == []
    # Twice the same partition: one after the other.
    assert await produce(rig, ("t", 0, batch(0)), ("t", 0, batch(1))) == [ErrorCode.NONE] * 2
    plain = batch_of("beside", producer_id=PRODUCER, producer_epoch=0, base_sequence=2)
    assert await produce(rig, ("t", 0, plain)) == [ErrorCode.INVALID_TXN_STATE], "not beside an open transaction"
    assert await produce(rig, ("t", 1, plain)) == [ErrorCode.NONE], "a transactional producer may write outside of one"
    assert await produce(rig, ("t", 2, batch(0, epoch=3))) == [ErrorCode.NONE]
    assert await produce(rig, ("t", 2, batch(1, epoch=2))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(oracle.asked) == 2


# -- markers


@pytest.mark.feature("TX-07")
@on_cluster()
async def test_markers_end_transactions_and_are_fenced(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    Oracle(rig)
    await produce(rig, ("t", 0, batch(0)), ("t", 1, batch(0)))
    both = [("t", 0), ("nowhere", 0), ("t", 1), ("t", 9)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Topics are grouped in the answer: t has 0, 1 and 9.
    assert await mark(rig, *both, commit=True, coordinator_epoch=4) == [0, 0, unknown, unknown]
    assert rig.partition(1, "t").log.last_stable_offset == 2
    again = await mark(rig, ("t", 0), commit=True, coordinator_epoch=4)
    assert again == [ErrorCode.NONE] and rig.partition(1, "t").log.log_end_offset == 3, "written all the same"
    fenced = await mark(rig, ("t", 0), commit=False, coordinator_epoch=3)
    assert fenced == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    await produce(rig, ("t", 0, batch(0, epoch=2)))
    assert await mark(rig, ("t", 0), commit=False, epoch=1, coordinator_epoch=5) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    second = {"coordinator_epoch": 5, "transaction_version": 2}
    refused = await mark(rig, ("t", 0), commit=False, epoch=2, **second)
    assert refused == [ErrorCode.INVALID_PRODUCER_EPOCH], "by version 2 the epoch is raised"
    assert await mark(rig, ("t", 0), commit=False, epoch=3, **second) == [ErrorCode.NONE]
    assert await mark(rig, ("t", 0), commit=False, epoch=3, **second) == [ErrorCode.NONE]


@pytest.mark.feature("TX-07")
@on_cluster()
async def test_an_answer_to_markers_has_each_producer_once(rig: Rig) -> None:
    await rig.create("t", partitions=2)

    def marker(producer_id: int, *indexes: int) -> WritableTxnMarker:
        topics = [WritableTxnMarkerTopic(name="t", partition_indexes=list(indexes))] if indexes else []
        return WritableTxnMarker(producer_id=producer_id, producer_epoch=0, topics=topics)

    request = WriteTxnMarkersRequest(markers=[marker(1, 0), marker(2, 0, 1), marker(1, 1), marker(3)])
    response = await rig.ask(1, request, 1)
    results = [
        (it.producer_id, [(topic.name, [part.partition_index for part in topic.partitions]) for topic in it.topics])
        for it in response.markers
    ]
    assert results == [(1, [("t", [0, 1])]), (2, [("t", [0, 1])])]
    assert (await rig.ask(1, WriteTxnMarkersRequest(), 1)).markers == []


@pytest.mark.feature("TX-07", "TX-10")
@on_cluster(brokers=3)
async def test_the_answer_to_a_marker_waits_for_the_replicas(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="2")
    Oracle(rig)
    await produce(rig, ("t", 0, batch(0)))
    assert await mark(rig, ("t", 0), commit=True) == [ErrorCode.NONE]
    assert rig.partition(1, "t").log.last_stable_offset == 2
    await rig.until(lambda: all(rig.partition(node, "t").log.last_stable_offset == 2 for node in (2, 3)))
    assert await mark(rig, ("t", 0), commit=True, node=2) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    rig.cluster.kill("broker-2")
    rig.cluster.kill("broker-3")
    await rig.until(lambda: len(rig.partition(1, "t").replica.isr) == 1)
    assert await mark(rig, ("t", 0), commit=True) == [ErrorCode.NOT_ENOUGH_REPLICAS]


# -- readers


@pytest.mark.feature("TX-09", "TX-10", "TX-08")
@on_cluster()
async def test_readers_of_committed_records(rig: Rig) -> None:
    await rig.create("t")
    Oracle(rig)
    await rig.produce("t", batch_of("before"))
    await produce(rig, ("t", 0, batch(0, "lost")))
    await produce(rig, ("t", 0, batch(0, "kept", producer_id=8)))
    await rig.produce("t", batch_of("between"))
    data = await read(rig)
    assert (values_in(data), data.last_stable_offset, data.high_watermark) == (["before"], 1, 4)
    assert data.aborted_transactions == []
    everything = await read(rig, committed=False)
    assert values_in(everything) == ["before", "lost", "kept", "between"]
    assert everything.aborted_transactions is None and everything.last_stable_offset == 1
    await mark(rig, ("t", 0), commit=False)
    assert (await read(rig)).last_stable_offset == 2, "the other one is still open"
    await mark(rig, ("t", 0), commit=True, producer_id=8)
    data = await read(rig)
    assert data.last_stable_offset == data.high_watermark == 6
    assert [(it.producer_id, it.first_offset) for it in data.aborted_transactions or ()] == [(PRODUCER, 1)]
    after = await read(rig, offset=5)
    assert after.aborted_transactions == [], "it ended before"
    for version in range(4, API_SPECS[ApiKey.FETCH].max_version + 1):
        topic = "t" if version < 13 else rig.partition(1, "t").topic_id
        for committed in (True, False):
            response = await rig.ask(1, fetch_request(topic, isolation_level=int(committed)), version)
            (found,) = response.responses[0].partitions
            aborted = None if found.aborted_transactions is None else len(found.aborted_transactions)
            assert aborted == (1 if committed else None), version


@pytest.mark.feature("TX-09")
@on_cluster()
async def test_offsets_for_readers_of_committed_records(rig: Rig) -> None:
    await rig.create("t")
    Oracle(rig)
    await rig.produce("t", batch_of("before", timestamp=rig.broker(1).world.wall_clock.now_ms()))
    await produce(rig, ("t", 0, batch(0)))

    async def latest(timestamp: int, isolation_level: int) -> int:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name="t", partitions=[asked])],
        )
        response = await rig.ask(1, request, 7)
        offset: int = response.topics[0].partitions[0].offset
        return offset

    assert (await latest(-1, 0), await latest(-1, 1)) == (2, 1)
    await mark(rig, ("t", 0), commit=True)
    assert (await latest(-1, 0), await latest(-1, 1)) == (3, 3)


@pytest.mark.feature("TX-10")
@pytest.mark.parametrize("session", [False, True])
@on_cluster()
async def test_a_waiting_reader_is_answered_at_the_commit(rig: Rig, session: bool) -> None:
    await rig.create("t")
    Oracle(rig)
    channel = rig.channel(1)
    more: dict[str, Any] = {"isolation_level": 1, "max_wait_ms": 30_000, "min_bytes": 1}
    if session:
        opened = await channel.call(
            fetch_request("t", isolation_level=1, session_id=0, session_epoch=0), timeout_ms=60_000, version=12
        )
        more |= {"session_id": opened.session_id, "session_epoch": 1}
    arrived: list[tuple[float, Any]] = []
    await produce(rig, ("t", 0, batch(0, "v")))
    request = fetch_request("t", **more)
    if session:
        request.topics = []

    async def wait() -> None:
        arrived.append((trio.current_time(), await channel.call(request, timeout_ms=60_000, version=12)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(2)
        await produce(rig, ("t", 0, batch(1, "w")))
        await rig.produce("t", batch_of("another"))
        await trio.sleep(2)
        assert arrived == [], "nothing of it is readable yet"
        began = trio.current_time()
        await mark(rig, ("t", 0), commit=True)
    ((when, response),) = arrived
    assert when - began < 1
    (data,) = response.responses[0].partitions
    assert values_in(data)[:3] == ["v", "w", "another"]


@pytest.mark.feature("TX-14", "ST-12")
@on_cluster(brokers=3)
async def test_every_replica_describes_open_transactions(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    Oracle(rig)
    await rig.produce("t", batch_of("before"))
    await produce(rig, ("t", 0, batch(0, epoch=3)))
    await mark(rig, ("t", 0), commit=False, producer_id=8, coordinator_epoch=6)

    async def described(node: int) -> list[ProducerState]:
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        (answer,) = (await rig.ask(node, request)).topics[0].partitions
        assert answer.error_code == (0 if node < 3 else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        producers: list[ProducerState] = answer.active_producers
        return producers

    await rig.until(lambda: rig.partition(2, "t").log.high_watermark == 3)
    for node in (1, 2):
        open_one, ended = await described(node)
        assert (open_one.producer_id, open_one.producer_epoch, open_one.current_txn_start_offset) == (PRODUCER, 3, 1)
        assert open_one.coordinator_epoch == -1
        assert (ended.producer_id, ended.coordinator_epoch, ended.current_txn_start_offset) == (8, 6, -1)
    assert await described(3) == []


@pytest.mark.feature("TX-08", "TX-10", "TX-16")
@on_cluster(brokers=3)
async def test_the_next_leader_knows_what_is_open_and_what_was_aborted(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    Oracle(rig)
    await produce(rig, ("t", 0, batch(0, "lost")))
    await mark(rig, ("t", 0), commit=False, epoch=1)
    await produce(rig, ("t", 0, batch(0, "open", epoch=1)))
    await rig.until(lambda: all(rig.partition(node, "t").log.high_watermark == 3 for node in (1, 2, 3)))
    rig.cluster.kill("broker-1")
    await rig.until(lambda: rig.placed(2, "t").leader in (2, 3))
    leader = rig.placed(2, "t").leader
    await rig.until(lambda: rig.partition(leader, "t").is_leader)
    data = await read(rig, node=leader)
    assert data.last_stable_offset == 2
    assert [(it.producer_id, it.first_offset) for it in data.aborted_transactions or ()] == [(PRODUCER, 0)]
    assert await mark(rig, ("t", 0), commit=True, epoch=2, transaction_version=2, node=leader) == [ErrorCode.NONE]
    await rig.until(lambda: rig.partition(leader, "t").log.last_stable_offset == 4)


# -- with a coordinator


async def write(rig: Rig, producer: Producer, sequence: int, value: str, *, version: int = 12, index: int = 0) -> int:
    """Gives the error code."""
    producer_id, epoch = producer.stamp
    data = batch(sequence, value, epoch=epoch, producer_id=producer_id)
    request = request_of(("t", index, data), transactional_id=producer.transactional_id)
    response = await rig.ask(rig.leader("t", index), request, version)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def committed(rig: Rig, expected: list[str], index: int = 0) -> None:
    """Waits until a read_committed reader sees exactly these records, without control records."""
    with trio.fail_after(30):
        while True:
            data = await read(rig, index=index)
            if data.last_stable_offset == rig.partition(rig.leader("t", index), "t", index).log.log_end_offset:
                break
            await trio.sleep(0.02)
    assert read_by_client(data) == expected


def read_by_client(data: PartitionData) -> list[str]:
    """The values that a client reads from a response: without aborted records and markers."""
    rest, values = bytes(data.records or b""), []
    aborted = sorted((it.first_offset, it.producer_id) for it in data.aborted_transactions or ())
    aborting: set[int] = set()
    for position, header in iterate_batches(rest):
        while aborted and aborted[0][0] <= header.base_offset:
            aborting.add(aborted.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.producer_id not in aborting:
            one = rest[position : position + header.size_bytes]
            values += [(record.value or b"").decode() for record in decode_records(one)]
    return values


@pytest.mark.feature("TX-04", "TX-05", "TX-08")
@on_replicated_cluster()
async def test_transactions_of_clients_that_add_no_partitions(rig: Rig) -> None:
    """transaction.version 2: the broker adds them; each transaction has an epoch, and begins as soon as it likes."""
    await rig.create("t", partitions=3, replicas=3)
    producer = Producer(rig)
    await producer.init()
    expected: list[str] = []
    for number in range(6):
        for sequence in range(2):
            for index in range(3):
                assert await write(rig, producer, sequence, f"{number}.{sequence}", index=index) == 0
        commit = number % 3 != 1
        if commit:
            expected += [f"{number}.0", f"{number}.1"]
        assert await producer.end(commit) is ErrorCode.NONE
    for index in range(3):
        await committed(rig, expected, index)


@pytest.mark.feature("TX-05", "TX-08")
@on_small_cluster()
async def test_transactions_of_clients_that_add_partitions_themselves(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    producer = Producer(rig)
    await producer.init(version=4)
    assert await write(rig, producer, 0, "too early", version=9) == ErrorCode.INVALID_TXN_STATE
    assert await write(rig, producer, 0, "too early", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    await producer.add(("t", 0))
    assert await write(rig, producer, 0, "kept", version=11) == 0
    assert await write(rig, producer, 0, "elsewhere", version=11, index=1) == ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.end(True, version=4) is ErrorCode.NONE
    await committed(rig, ["kept"])
    late = await write(rig, producer, 1, "late", version=11)
    assert late in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS)
    await producer.add(("t", 0))
    assert await write(rig, producer, 1, "lost", version=11) == 0
    fenced, producer.stamp = producer.stamp, producer.stamp
    await producer.init(version=4)
    assert producer.stamp.producer_epoch > fenced.producer_epoch, "which aborts what was open"
    producer.stamp = fenced
    assert await write(rig, producer, 2, "zombie", version=11) == ErrorCode.INVALID_PRODUCER_EPOCH
    await committed(rig, ["kept"])


@pytest.mark.feature("TX-07")
@on_small_cluster()
async def test_markers_in_the_offsets_of_groups_go_through_their_coordinator(rig: Rig) -> None:
    await Producer(rig).init()
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"])
    with trio.fail_after(30):
        while (await rig.ask(1, request)).coordinators[0].error_code:
            await trio.sleep(0.05)
    await rig.until(lambda: len(rig.broker(1).groups.shards) == 3)
    place = (GROUP_TOPIC, partition_for("readers", 3))
    with trio.fail_after(30):
        while await mark(rig, place, commit=True) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]:
            await trio.sleep(0.01)
    assert rig.partition(1, *place).log.log_end_offset == 1
    assert await mark(rig, (GROUP_TOPIC, 77), commit=True) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    again = await mark(rig, place, commit=True, coordinator_epoch=-1)
    assert again == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    second = await mark(rig, place, commit=True, epoch=0, transaction_version=2)
    assert second == [ErrorCode.NONE], "a repetition"
