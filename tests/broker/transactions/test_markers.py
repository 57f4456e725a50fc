"""The writer of markers: batches by broker, retries until every partition has answered, and stops when another broker
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.coordinator.outcome import Now, ProducerStamp
from barnabas.broker.coordinator.shard import ShardState
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.transactions import markers
from barnabas.broker.transactions.machine import EndedTransaction
from barnabas.broker.transactions.markers import FIRST_RETRY_MS, LAST_RETRY_MS, MarkerWriter
from barnabas.broker.transactions.transaction import TopicPartition
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import (
    BrokerImage,
    ClusterImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.runtime.background import Background
from barnabas.runtime.channel import ConnectionFailed

E = ErrorCode
A, B, C = ("orders", 0), ("orders", 1), ("stock", 0)


def partition(leader: int) -> PartitionImage:
    return PartitionImage(replicas=(1, 2), directories=(bytes(16), bytes(16)), isr=(1, 2), leader=leader)


@dataclass
class Broker:
    """A broker that accepts markers."""

    writer: Writer
    codes: dict[TopicPartition, list[ErrorCode]] = field(default_factory=dict)
    """Error codes that its partitions answer first."""
    fails: int = 0
    hangs: trio.Event | None = None
    silent: bool = False
    requests: list[WriteTxnMarkersRequest] = field(default_factory=list)

    async def call(self, request: WriteTxnMarkersRequest, *, timeout_ms: float) -> WriteTxnMarkersResponse:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        if self.hangs is not None:
            await self.hangs.wait()
        if self.fails:
            self.fails -= 1
            raise ConnectionFailed("it is gone")
        if self.silent:
            return WriteTxnMarkersResponse()
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=self.code((topic.name, index))
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def code(self, asked: TopicPartition) -> ErrorCode:
        codes = self.codes.get(asked)
        return codes.pop(0) if codes else E.NONE

    def close(self) -> None:
        self.writer.closed += 1


class FakeShard:
    """Counts completions."""

    def __init__(self) -> None:
        self.state = ShardState.ACTIVE
        self.epoch = 3
        self.completed: list[EndedTransaction] = []
        self.machine = SimpleNamespace(complete=self._complete)

    def _complete(self, ended: EndedTransaction, now: Now) -> None:
        self.completed.append(ended)

    def run(self, operation: Callable[[Now], Any], reply: None) -> None:
        operation(Now(0, 0))


class Writer:
    """A MarkerWriter with brokers 1 and 2 and a manual clock."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.now_ms = 0
        self.closed = 0
        self.wheel = TimingWheel(0)
        self.brokers = {1: Broker(self), 2: Broker(self)}
        self.image = MetadataImage()
        self.lead({A: 1, B: 2, C: 1})
        self.fault_points: list[str] = []
        world: Any = SimpleNamespace(
            monotonic=SimpleNamespace(now_ms=lambda: self.now_ms), fault_point=self.fault_points.append
        )
        self.writer = MarkerWriter(
            world, Background(nursery), self.wheel, lambda: self.image, self.channel_to, lambda: 30_000
        )
        self.shard: Any = FakeShard()

    def channel_to(self, broker_id: int) -> Broker | None:
        return self.brokers.get(broker_id)

    def lead(self, leaders: dict[TopicPartition, int]) -> None:
        topics: dict[str, TopicImage] = {}
        for (name, index), leader in leaders.items():
            topic = topics.setdefault(name, TopicImage(name=name, id=name.encode().ljust(16), partitions={}))
            topic.partitions[index] = partition(leader)
        self.image = replace(self.image, topics=TopicsImage(by_name=topics))

    def ended(self, *partitions: TopicPartition, producer_id: int = 7, commit: bool = True) -> EndedTransaction:
        return EndedTransaction(f"id-{producer_id}", ProducerStamp(producer_id, 5), commit, partitions, 2)

    def write(self, *partitions: TopicPartition, **more: Any) -> EndedTransaction:
        ended = self.ended(*partitions, **more)
        self.writer.write(ended, self.shard)
        return ended

    async def settle(self, pass_ms: int = 0) -> None:
        """Run all tasks until they wait; time advances in small steps."""
        until_ms = self.now_ms + pass_ms
        while True:
            await trio.testing.wait_all_tasks_blocked()
            if self.now_ms >= until_ms:
                return
            self.now_ms += 10
            self.wheel.advance(self.now_ms)


@pytest.fixture
async def writer() -> Any:
    async with trio.open_nursery() as nursery:
        yield Writer(nursery)
        nursery.cancel_scope.cancel()


@pytest.mark.feature("TX-07")
async def test_each_leader_gets_its_partitions(writer: Writer) -> None:
    ended = writer.write(A, B, C)
    await writer.settle()
    (first,), (second,) = writer.brokers[1].requests, writer.brokers[2].requests
    (marker,) = first.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 5, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (3, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [0]), ("stock", [0])]
    assert [(topic.name, topic.partition_indexes) for topic in second.markers[0].topics] == [("orders", [1])]
    assert writer.shard.completed == [ended]
    assert writer.fault_points == ["transactions.prepared", "transactions.markers.written"]


@pytest.mark.feature("TX-07")
async def test_markers_that_arrive_during_a_request_go_with_the_next(writer: Writer) -> None:
    broker = writer.brokers[1]
    broker.hangs = trio.Event()
    writer.write(A, producer_id=1)
    await writer.settle()
    for producer_id in (2, 3, 4):
        writer.write(A, C, producer_id=producer_id)
    await writer.settle()
    assert len(broker.requests) == 1
    broker.hangs.set()
    await writer.settle()
    assert [[marker.producer_id for marker in request.markers] for request in broker.requests] == [[1], [2, 3, 4]]
    assert len(writer.shard.completed) == 4


@pytest.mark.feature("TX-07", "OB-01")
async def test_markers_that_wait_are_counted(writer: Writer) -> None:
    broker = writer.brokers[1]
    broker.hangs = trio.Event()
    writer.write(A, producer_id=1)
    await writer.settle()
    writer.write(A, C, producer_id=2)
    writer.write(A, B, producer_id=3)
    await writer.settle()
    assert writer.writer.waiting == {1: 2, 2: 0}
    writer.lead({A: -1, B: 2, C: -1})
    writer.write(A, C, producer_id=4)
    writer.write(C, producer_id=5)
    assert writer.writer.waiting_for_leaders == 2
    broker.hangs.set()
    writer.lead({A: 1, B: 2, C: 2})
    await writer.settle(LAST_RETRY_MS)
    assert writer.writer.waiting == {1: 0, 2: 0} and writer.writer.waiting_for_leaders == 0
    assert len(writer.shard.completed) == 5


@pytest.mark.feature("TX-01", "TX-07")
async def test_nothing_waits_for_a_leader_once_another_broker_coordinates(writer: Writer) -> None:
    writer.lead({A: -1})
    writer.write(A)
    writer.shard.state = ShardState.GONE
    await writer.settle(LAST_RETRY_MS)
    assert writer.writer.waiting_for_leaders == 0 and len(writer.wheel) == 0


@pytest.mark.feature("TX-01", "TX-07")
async def test_markers_of_a_coordinator_that_is_gone_are_not_sent(writer: Writer) -> None:
    broker, gone = writer.brokers[1], writer.shard
    broker.hangs = trio.Event()
    writer.write(A, producer_id=1)
    await writer.settle()
    writer.write(A, C, producer_id=2)
    writer.shard = FakeShard()
    kept = writer.write(C, producer_id=3)
    gone.state = ShardState.GONE
    broker.hangs.set()
    await writer.settle()
    assert [[marker.producer_id for marker in request.markers] for request in broker.requests] == [[1], [3]]
    assert writer.shard.completed == [kept] and not gone.completed
    assert writer.writer.waiting == {1: 0}


@pytest.mark.feature("TX-07")
async def test_a_request_has_room_for_a_limited_number_of_partitions(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except for a single transaction, which is never divided."""
    monkeypatch.setattr(markers, "PARTITIONS_PER_REQUEST", 3)
    broker = writer.brokers[1]
    broker.hangs = trio.Event()
    writer.write(A, producer_id=1)
    await writer.settle()
    many = [("orders", index) for index in (0, 2, 4, 6)]
    writer.lead(dict.fromkeys([*many, C], 1) | {B: 2})
    for producer_id, partitions in ((2, [A, C]), (3, [A, C]), (4, [A]), (5, many)):
        writer.write(*partitions, producer_id=producer_id)
    await writer.settle()
    broker.hangs.set()
    await writer.settle()
    sent = [[marker.producer_id for marker in request.markers] for request in broker.requests]
    assert sent == [[1], [2, 4], [3], [5]]
    assert len(writer.shard.completed) == 5


async def test_a_transaction_without_partitions_is_done_at_once(writer: Writer) -> None:
    ended = writer.write()
    assert writer.shard.completed == [ended]


@pytest.mark.feature("TX-07", "TX-08")
@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_ENOUGH_REPLICAS,
        E.REQUEST_TIMED_OUT,
        E.UNKNOWN_SERVER_ERROR,
        E.TRANSACTION_COORDINATOR_FENCED,
    ],
)
async def test_a_partition_that_refuses_its_marker_is_retried(writer: Writer, code: ErrorCode) -> None:
    writer.brokers[1].codes = {A: [code, code]}
    writer.write(A, B, C)
    await writer.settle()
    assert not writer.shard.completed
    await writer.settle(FIRST_RETRY_MS * 4 + 20)
    assert len(writer.shard.completed) == 1
    again = writer.brokers[1].requests[1:]
    assert len(again) == 2 and len(writer.brokers[2].requests) == 1
    for request in again:
        topics = [(topic.name, topic.partition_indexes) for topic in request.markers[0].topics]
        assert topics == [("orders", [0])], "the others have theirs"


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.UNSUPPORTED_FOR_MESSAGE_FORMAT])
async def test_a_partition_with_a_later_epoch_is_done(writer: Writer, code: ErrorCode) -> None:
    writer.brokers[1].codes = {A: [code]}
    writer.write(A)
    await writer.settle()
    assert len(writer.shard.completed) == 1


@pytest.mark.feature("TX-07")
async def test_the_leader_moves(writer: Writer) -> None:
    writer.brokers[1].codes = {A: [E.NOT_LEADER_OR_FOLLOWER]}
    writer.write(A)
    await writer.settle()
    writer.lead({A: 2, B: 2, C: 2})
    await writer.settle(100)
    assert len(writer.brokers[1].requests) == 1 and len(writer.brokers[2].requests) == 1
    assert len(writer.shard.completed) == 1


@pytest.mark.feature("TX-07")
async def test_without_a_leader_it_waits(writer: Writer) -> None:
    writer.lead({A: -1, B: 2})
    writer.write(A, B)
    await writer.settle(5_000)
    assert not writer.shard.completed and len(writer.brokers[2].requests) == 1
    writer.lead({A: 1, B: 2})
    await writer.settle(LAST_RETRY_MS + 10)
    assert len(writer.shard.completed) == 1


@pytest.mark.feature("TX-07")
async def test_a_deleted_topic_needs_no_marker(writer: Writer) -> None:
    writer.brokers[1].codes = {C: [E.UNKNOWN_TOPIC_OR_PARTITION] * 100}
    writer.write(A, C)
    await writer.settle(3_000)
    assert not writer.shard.completed, "the broker may only be behind"
    writer.lead({A: 1})
    await writer.settle(LAST_RETRY_MS + 10)
    assert len(writer.shard.completed) == 1
    writer.lead({})
    writer.write(A, B)
    assert len(writer.shard.completed) == 2


@pytest.mark.feature("TX-07")
async def test_a_broker_that_does_not_answer_is_retried_over_a_new_connection(writer: Writer) -> None:
    writer.brokers[1].fails = 3
    writer.write(A, C)
    await writer.settle(1_000)
    assert len(writer.brokers[1].requests) == 4 and writer.closed == 3
    assert len(writer.shard.completed) == 1


@pytest.mark.feature("TX-07")
@pytest.mark.parametrize("change", [{"fenced": True}, {"epoch": 12}, None], ids=["fenced", "restarted", "unregistered"])
async def test_requests_to_a_fenced_or_restarted_broker_are_cancelled(
    writer: Writer, change: dict[str, Any] | None
) -> None:
    lost = writer.brokers[1]
    lost.hangs = trio.Event()
    writer.write(A, producer_id=1)
    await writer.settle()
    writer.write(A, C, producer_id=2)
    await writer.settle()
    assert len(lost.requests) == 1 and len(writer.shard.completed) == 0

    registered = BrokerImage(1, 11, bytes(16), {}, {}, fenced=False)
    before = replace(writer.image, cluster=ClusterImage(brokers={1: registered}))
    writer.lead({A: 2, B: 2, C: 2})
    after = None if change is None else replace(registered, **change)
    writer.writer.metadata_changed(MetadataDelta(before, writer.image, changed_brokers={1: after}))
    await writer.settle(FIRST_RETRY_MS + 10)
    assert len(lost.requests) == 1 and len(writer.shard.completed) == 2


async def test_a_broker_in_controlled_shutdown_still_answers(writer: Writer) -> None:
    writer.brokers[1].hangs = trio.Event()
    writer.write(A)
    await writer.settle()
    registered = BrokerImage(1, 11, bytes(16), {}, {}, fenced=False)
    before = replace(writer.image, cluster=ClusterImage(brokers={1: registered}))
    leaving = replace(registered, in_controlled_shutdown=True)
    writer.writer.metadata_changed(MetadataDelta(before, before, changed_brokers={1: leaving}))
    await writer.settle(1_000)
    assert writer.closed == 0
    writer.brokers[1].hangs.set()
    await writer.settle()
    assert len(writer.shard.completed) == 1


async def test_a_broker_without_an_address_is_waited_for(writer: Writer) -> None:
    missing = writer.brokers.pop(1)
    writer.write(A)
    await writer.settle(1_000)
    writer.brokers[1] = missing
    await writer.settle(LAST_RETRY_MS + 10)
    assert len(writer.shard.completed) == 1


async def test_an_incomplete_answer_is_retried(writer: Writer) -> None:
    writer.brokers[1].silent = True
    writer.write(A)
    await writer.settle(500)
    assert not writer.shard.completed
    writer.brokers[1].silent = False
    await writer.settle(LAST_RETRY_MS + 10)
    assert len(writer.shard.completed) == 1


@pytest.mark.feature("TX-01")
async def test_retries_stop_when_another_broker_coordinates(writer: Writer) -> None:
    writer.brokers[1].codes = {A: [E.NOT_LEADER_OR_FOLLOWER] * 100}
    writer.write(A, B)
    await writer.settle(50)
    asked = len(writer.brokers[1].requests)
    writer.shard.state = ShardState.GONE
    writer.brokers[1].codes = {}
    await writer.settle(5_000)
    assert len(writer.brokers[1].requests) == asked and not writer.shard.completed


@pytest.mark.feature("TX-07")
async def test_retries_use_the_current_coordinator_epoch(writer: Writer) -> None:
    writer.brokers[1].codes = {A: [E.TRANSACTION_COORDINATOR_FENCED]}
    writer.write(A)
    await writer.settle()
    writer.shard.epoch = 4
    await writer.settle(100)
    assert [request.markers[0].coordinator_epoch for request in writer.brokers[1].requests] == [3, 4]
    assert len(writer.shard.completed) == 1
