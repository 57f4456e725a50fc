"""Reads the committed records of a topic from given offsets on, following leaders. Its topic never changes: requests
name the topic's id.

One task for each broker that leads partitions; what it fetched is decoded in a worker thread, and handed on through a
channel that holds few pieces, so that a slow table slows the reader down.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.offset_listing import is_passing
from barnabas.client.metadata import STALE_METADATA, TopicPartition
from barnabas.client.offset_lookup import EARLIEST, LATEST, Isolation
from barnabas.lake.decoding import Convert, decoded
from barnabas.lake.errors import LakeError, RecordsLost, SchemaUnavailable, TopicChanged
from barnabas.lake.pieces import Piece
from barnabas.lake.topic_lookup import first_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.protocol.primitives import ZERO_UUID, uuid_from_string, uuid_to_string
from barnabas.protocol.records.batch import CorruptBatch
from barnabas.runtime.channel import ChannelError

log = logging.getLogger(__name__)

LINE = "fetch"
MAX_WAIT_MS = 500
FETCH_BYTES = 4 * 1024 * 1024
"""For each partition; a larger batch comes whole."""
RESPONSE_BYTES = 16 * 1024 * 1024
LOOK_MS = 1_000
"""Time between looks for partitions that are new or have no reader."""
MISSING_MS = 30_000
"""A topic that brokers do not know for so long was deleted."""


@dataclass(frozen=True, slots=True)
class TopicToRead:
    """The topic, how its records become rows, and how losses are treated."""

    topic: str
    topic_id: str
    convert: Convert
    skip_lost: bool = False
    """Continue after records that were deleted before they were read, instead of stopping."""


class TopicReader:
    """Reads one topic until it is cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        reading: TopicToRead,
        offsets: Mapping[int, int],
        leader_epochs: Mapping[int, int] | None = None,
    ) -> None:
        """`offsets` are those to begin with; other partitions begin at 0. `leader_epochs` are those of the records
        before, as far as they are known."""
        self._cluster = cluster
        self._reading = reading
        self._topic_id = uuid_from_string(reading.topic_id)
        self.positions = dict(offsets)
        """Next offset by partition: what was handed on lies before it."""
        self._epochs: dict[int, int] = dict(leader_epochs or {})
        """Leader epoch of the last record before the position."""
        self._busy: dict[int, None] = {}
        """Brokers that have a task."""
        self._not_before: dict[int, float] = {}
        """Time before which a partition is not fetched again, after an error."""
        self._missing_since: float | None = None
        self._news = trio.Event()

    async def run(self, pieces: trio.MemorySendChannel[Piece]) -> None:
        """Send pieces, each partition's in order. `RecordsLost`, `TopicChanged`, or KafkaError if it cannot be read."""
        async with trio.open_nursery() as nursery:
            while True:
                for node_id in self._leaders():
                    if node_id not in self._busy:
                        self._busy[node_id] = None
                        nursery.start_soon(self._read_from, node_id, pieces)
                self._news = trio.Event()
                with trio.move_on_after(LOOK_MS / 1000):
                    await self._news.wait()
                if self._has_leaderless():
                    await self._learn()

    # ---- who reads what

    def _leaders(self) -> list[int]:
        found: dict[int, None] = {}
        now = trio.current_time()
        for info in self._cluster.metadata.partitions(self._reading.topic):
            self.positions.setdefault(info.partition, 0)
        for partition in self.positions:
            leadership = self._cluster.leadership(self._name(partition))
            if leadership is not None and self._not_before.get(partition, 0) <= now:
                found[leadership.node_id] = None
        return list(found)

    def _has_leaderless(self) -> bool:
        return any(self._cluster.leadership(self._name(partition)) is None for partition in self.positions)

    def _name(self, partition: int) -> TopicPartition:
        return TopicPartition(self._reading.topic, partition)

    async def _read_from(self, node_id: int, pieces: trio.MemorySendChannel[Piece]) -> None:
        """Fetch from one broker as long as it leads partitions that may be fetched."""
        try:
            while True:
                now = trio.current_time()
                wanted = {
                    partition: leadership.epoch
                    for partition in list(self.positions)
                    if (leadership := self._cluster.leadership(self._name(partition))) is not None
                    and leadership.node_id == node_id
                    and self._not_before.get(partition, 0) <= now
                }
                if not wanted:
                    return
                await self._fetch(node_id, wanted, pieces)
        finally:
            del self._busy[node_id]
            self._news.set()

    async def _fetch(self, node_id: int, wanted: dict[int, int], pieces: trio.MemorySendChannel[Piece]) -> None:
        """`wanted` has leader epochs by partition."""
        timeout_ms = self._cluster.settings.request_timeout_ms
        try:
            response = await self._cluster.call(node_id, self._request(wanted), timeout_ms, line=LINE)
        except ChannelError as error:
            log.debug("fetch from broker %d failed: %s", node_id, error)
            self._put_off(wanted)
            await self._learn()
            return
        code = error_code(response.error_code)
        answers = {each.partition_index: each for topic in response.responses for each in topic.partitions}
        is_stale = code in STALE_METADATA
        if code is not ErrorCode.NONE and not is_passing(code):
            raise KafkaError(code, f"fetch of {self._reading.topic} from broker {node_id}")
        for partition in wanted:
            answer = answers.get(partition)
            if answer is None:
                self._put_off([partition])
                continue
            is_stale = await self._absorb(partition, answer, pieces) or is_stale
        if is_stale:
            await self._learn()
        await trio.sleep(response.throttle_time_ms / 1000)

    def _request(self, wanted: Mapping[int, int]) -> FetchRequest:
        partitions = [
            FetchPartition(
                partition=partition,
                current_leader_epoch=epoch,
                fetch_offset=self.positions[partition],
                last_fetched_epoch=self._epochs.get(partition, -1),
                partition_max_bytes=FETCH_BYTES,
            )
            for partition, epoch in wanted.items()
        ]
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES,
            isolation_level=Isolation.READ_COMMITTED,
            topics=[FetchTopic(topic=self._reading.topic, topic_id=self._topic_id, partitions=partitions)],
        )

    # ---- answers

    async def _absorb(self, partition: int, answer: PartitionData, pieces: trio.MemorySendChannel[Piece]) -> bool:
        """Returns True if the metadata is stale."""
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE:
            if answer.diverging_epoch.epoch >= 0:
                self._diverges(partition, answer.diverging_epoch.end_offset)
            elif answer.records:
                await self._hand_on(partition, answer, pieces)
            return False
        self._put_off([partition])
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(partition, pieces)
            return False
        if not is_passing(code):
            raise KafkaError(code, f"{self._name(partition)} at offset {self.positions[partition]}")
        leader = answer.current_leader
        return not self._cluster.learn_leader(self._name(partition), leader.leader_id, leader.leader_epoch)

    async def _hand_on(self, partition: int, answer: PartitionData, pieces: trio.MemorySendChannel[Piece]) -> None:
        begin = self.positions[partition]
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        work = partial(decoded, self._reading.convert, partition, begin, answer.records, aborted)
        backoff = self._cluster.backoff()
        while True:
            try:
                found, next_offset = await self._cluster.world.run_blocking(work)
                break
            except SchemaUnavailable as error:
                log.warning("%s at offset %d waits: %s", self._name(partition), begin, error)
                await trio.sleep(backoff.next_ms() / 1000)
            except CorruptBatch as error:
                raise LakeError(f"{self._name(partition)} cannot be read at offset {begin}: {error.message}") from None
        if next_offset == begin:
            return  # The response had room for a part of the batch. It comes whole when the partition is the first.
        for piece in found:
            await pieces.send(piece)
        # At the end of the line: a response has room for the first partitions only.
        del self.positions[partition]
        self.positions[partition] = next_offset
        last_epoch = found[-1].leader_epoch
        if last_epoch is not None:
            self._epochs[partition] = last_epoch

    def _diverges(self, partition: int, end: int) -> None:
        """The leader has no records of the epoch; records of the epochs before go up to `end`."""
        if end < self.positions[partition]:
            raise RecordsLost(self._truncated(partition, f"at offset {end}"))
        # Compaction has removed the records of that epoch.
        del self._epochs[partition]

    def _truncated(self, partition: int, where: str) -> str:
        return (
            f"{self._name(partition)}: the table has the records before offset {self.positions[partition]}, but the log"
            f" was cut off {where}, and new records take the offsets of lost ones (unclean leader election, or another"
            " cluster); write into another table"
        )

    async def _out_of_range(self, partition: int, pieces: trio.MemorySendChannel[Piece]) -> None:
        position = self.positions[partition]
        starts = await first_offsets(self._cluster, self._reading.topic, [partition], EARLIEST)
        await self._check_topic()
        start = starts[partition]
        if position < start:
            if not self._reading.skip_lost:
                raise RecordsLost(lost(self._name(partition), position, start))
            log.warning("%s; continuing after them", lost(self._name(partition), position, start))
            await pieces.send(Piece(partition, start, skipped=(position, start)))
            self.positions[partition] = start
            self._epochs.pop(partition, None)
            return
        ends = await first_offsets(self._cluster, self._reading.topic, [partition], LATEST)
        if position > ends[partition]:
            # A new leader may not know the end of its log for a moment.
            await trio.sleep(MAX_WAIT_MS / 1000)
            ends = await first_offsets(self._cluster, self._reading.topic, [partition], LATEST)
        if position > ends[partition]:
            raise RecordsLost(self._truncated(partition, f"at offset {ends[partition]}"))
        if partition in self._epochs:
            # The answer of a leader that knows no records of this epoch.
            raise RecordsLost(self._truncated(partition, f"before leader epoch {self._epochs[partition]}"))

    # ---- metadata

    def _put_off(self, partitions: Sequence[int] | Mapping[int, int]) -> None:
        until = trio.current_time() + self._cluster.settings.retry_backoff_max_ms / 1000
        self._not_before.update(dict.fromkeys(partitions, until))

    async def _learn(self) -> None:
        """Refresh the metadata, and see whether the topic is still the same."""
        if await self._cluster.refresh([self._reading.topic]):
            await self._check_topic()

    async def _check_topic(self) -> None:
        """`TopicChanged` if the topic has another id, or is gone for `MISSING_MS`."""
        topic = self._reading.topic
        view = self._cluster.topics.get(topic)
        if view is None:
            return
        if view.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            now = trio.current_time()
            self._missing_since = now if self._missing_since is None else self._missing_since
            if now - self._missing_since > MISSING_MS / 1000:
                raise TopicChanged(f"topic {topic} was deleted; the table keeps what it has")
            return
        self._missing_since = None
        if view.topic_id not in (ZERO_UUID, self._topic_id):
            raise TopicChanged(
                f"topic {topic} was deleted and created again: its id was {self._reading.topic_id}, now it is"
                f" {uuid_to_string(view.topic_id)}; write into another table"
            )


def lost(partition: TopicPartition, begin: int, end: int) -> str:
    """The message about offsets from `begin` to before `end`."""
    return (
        f"{partition}: the records from offset {begin} to {end - 1} were deleted before the table had them; raise the"
        " topic's retention, or continue after them with --skip-lost"
    )
