"""The fake brokers as a reader meets them: fetch sessions, epochs that end, offsets by time, replicas to read from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import trio

from barnabas.broker.fetch_context import by_topic
from barnabas.broker.fetch_session import TopicKey
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.client.cluster import Cluster
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.protocol.schema import Message
from barnabas.runtime.server import Request
from barnabas.runtime.simulated import Universe, make_world
from tests.barnabas.client.fake_cluster import PORT, SETTINGS, FakeCluster, FakePartition

MAX_ANSWER_BYTES = 2000

ReadingStory = Callable[["ReadingBrokers", Cluster, trio.Nursery], Awaitable[None]]


class ReadingBrokers(FakeCluster):
    """Faults and facts are set by the story."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe)
        self.sessions = {broker: FetchSessions(Random(broker)) for broker in (1, 2, 3)}
        self.fetches: list[tuple[int, FetchRequest]] = []
        """(broker, request) of every fetch."""
        self.asked_epochs: list[tuple[int, int]] = []
        """(broker, epoch) of every OffsetForLeaderEpoch."""
        self.followers: dict[int, int] = {}
        """Broker to the partition's leader whose log it copies and may be read from."""
        self.preferred: int | None = None
        """The replica that leaders send readers to."""
        self.epoch_ends: dict[int, int] = {}
        """Leader epoch to its end offset, in the log of every partition."""
        self.last_stable_offset: int | None = None
        self.failing: dict[TopicPartition, list[ErrorCode]] = {}
        """Responses to the next fetches of a partition."""
        self.fetch_takes_seconds = 0.0

    def _fetch(self, broker: int, message: FetchRequest, request: Request, *_: object) -> Message:
        self.fetches.append((broker, message))
        context = self.sessions[broker].open(message, request.api_version, from_follower=False, now_ms=0)
        if context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=context.error)
        wanted = list(context.wanted)
        answers = [(key, self._read(broker, key, part, message)) for key, part in wanted]
        topics = [
            FetchableTopicResponse(
                topic=key if isinstance(key, str) else "",
                topic_id=key if isinstance(key, bytes) else bytes(16),
                partitions=parts,
            )
            for key, parts in by_topic(context.finish(answers, 0))
        ]
        return FetchResponse(session_id=context.session_id, responses=topics)

    def _read(self, broker: int, key: TopicKey, part: FetchPartition, message: FetchRequest) -> PartitionData:
        name, topic = self._topic(key, b"") if isinstance(key, str) else self._topic("", key)
        partition = topic.partitions[part.partition]
        answer = PartitionData(partition_index=part.partition, high_watermark=partition.end_offset)
        answer.last_stable_offset = partition.end_offset if self.last_stable_offset is None else self.last_stable_offset
        answer.log_start_offset = partition.start_offset
        answer.aborted_transactions = partition.aborted
        is_follower = self.followers.get(broker) == partition.leader
        planned = self.failing.get(TopicPartition(name, part.partition))
        if planned:
            answer.error_code = planned.pop(0)
        elif not is_follower and (partition.leader != broker or part.current_leader_epoch > partition.epoch):
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self.hints:
                answer.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.epoch)
        elif part.current_leader_epoch < partition.epoch:
            answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif not partition.start_offset <= part.fetch_offset <= partition.end_offset:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif not is_follower and self.preferred is not None and message.rack_id:
            answer.preferred_read_replica = self.preferred
        else:
            answer.records = whole_batches(partition, part.fetch_offset)
        return answer

    def _list_offsets(self, broker: int, message: ListOffsetsRequest, *_: object) -> Message:
        topics = []
        for wanted in message.topics:
            partitions = self.topics[wanted.name].partitions
            answers = [self._find(broker, partitions, part) for part in wanted.partitions]
            topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _find(
        self, broker: int, partitions: Sequence[FakePartition], part: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=part.partition_index)
        partition = partitions[part.partition_index]
        answer.leader_epoch = partition.epoch
        if partition.leader != broker:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif part.timestamp == -2:
            answer.offset = partition.start_offset
        elif part.timestamp == -1:
            answer.offset = partition.end_offset
        else:
            for record in records_of(partition):
                if record.timestamp >= part.timestamp:
                    answer.offset, answer.timestamp = record.offset, record.timestamp
                    break
        return answer

    def _offset_for_leader_epoch(self, broker: int, message: OffsetForLeaderEpochRequest, *_: object) -> Message:
        topics = []
        for wanted in message.topics:
            answers = []
            for part in wanted.partitions:
                self.asked_epochs.append((broker, part.leader_epoch))
                answer = EpochEndOffset(partition=part.partition)
                if self.topics[wanted.topic].partitions[part.partition].leader != broker:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    known = [epoch for epoch in self.epoch_ends if epoch <= part.leader_epoch]
                    answer.leader_epoch = max(known, default=-1)
                    answer.end_offset = self.epoch_ends.get(answer.leader_epoch, -1)
                answers.append(answer)
            topics.append(OffsetForLeaderTopicResult(topic=wanted.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)


def whole_batches(partition: FakePartition, offset: int) -> bytes:
    """From the one that has `offset` on; the last may be cut, as brokers do, but never the first."""
    data = b"".join(partition.log)
    batches = [
        data[position : position + header.size_bytes]
        for position, header in iterate_batches(data)
        if header.last_offset >= offset
    ]
    return b"".join(batches)[: max(MAX_ANSWER_BYTES, len(batches[0]))] if batches else b""


def records_of(partition: FakePartition) -> list[Record]:
    return [record for batch in partition.log for record in decode_records(batch)]


def fill(partition: FakePartition, *values: bytes, per_batch: int = 3, timestamp: int = 7) -> None:
    for start in range(0, len(values), per_batch):
        records = [Record(0, timestamp, b"k", value) for value in values[start : start + per_batch]]
        partition.append(build_batch(records))


async def with_reader(universe: Universe, story: ReadingStory) -> None:
    """Run three brokers and a client's view of them, for the story."""
    brokers = ReadingBrokers(universe)
    async with trio.open_nursery() as nursery:
        brokers.start(nursery)
        await trio.sleep(0.1)
        world = make_world("client", universe)
        addresses = [(f"b{broker}", PORT) for broker in (1, 2, 3)]
        cluster = Cluster(world, nursery, addresses, client_id="test", settings=SETTINGS)
        await story(brokers, cluster, nursery)
        nursery.cancel_scope.cancel()
