"""Shell: reads partitions of `__remote_log_metadata` from the broker that leads them, in one task for each such broker.

Records are read up to the high watermark, as consumers do; the log of this broker itself without a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import trio

from barnabas.broker.remote.metadata_log import MetadataLog, ReadRecords, Wanted, decode_batches
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.replication.reads import FetchKind, ReadRequest
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage, error_code
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import FileRegion, World
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC

log = logging.getLogger(__name__)

FETCH_WAIT_MS = 500
"""The longest time that a leader delays its response; a partition that is new waits for it, too."""
ANSWER_TIMEOUT_MS = 10_000
FIRST_RETRY_MS, LAST_RETRY_MS = 50, 1_000
PARTITION_BYTES = 256 * 1024
RESPONSE_BYTES = 1024 * 1024
DECODED_INLINE_BYTES = 8 * 1024
"""More than that is decoded in a thread."""

_LATEST, _EARLIEST = -1, -2
_NO_SESSION = -1


class MetadataChannel(Protocol):
    """The part of `runtime.channel.Channel` that is used here."""

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        """Raises ChannelError."""

    def close(self) -> None: ...


class Placed(NamedTuple):
    """A metadata partition that a broker leads."""

    topic_id: bytes
    leader_epoch: int
    log: MetadataLog


@dataclass(frozen=True, slots=True)
class ReadingPorts:
    world: World
    node_id: int
    partitions: Partitions
    channel_to: Callable[[int], MetadataChannel | None]
    """Opens a channel to a broker; None if it has no address."""
    led_by: Callable[[int], Mapping[int, Placed]]
    """The followed partitions that a broker leads now, by index."""


class _Answer(NamedTuple):
    """The records of a leader at the position of a log."""

    records: bytes | memoryview | FileRegion
    is_diverging: bool = False


class MetadataReader:
    """Reads from one broker until it leads none of the followed partitions."""

    def __init__(self, leader_id: int, ports: ReadingPorts) -> None:
        self.leader_id = leader_id
        self._ports = ports
        self._bell = trio.Event()
        self._asking = trio.CancelScope()
        self._channel: MetadataChannel | None = None
        self._problem = ""
        """The last error that was reported."""

    def wake(self) -> None:
        """Something has changed."""
        self._bell.set()

    def hang_up(self) -> None:
        """The broker may never answer."""
        self._asking.cancel()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def run(self) -> None:
        backoff = Backoff(FIRST_RETRY_MS, LAST_RETRY_MS)
        try:
            while placed := self._ports.led_by(self.leader_id):
                self._bell = trio.Event()
                with trio.CancelScope() as self._asking:
                    if await self._round(placed):
                        backoff.reset()
                        continue
                with trio.move_on_after(backoff.next_ms() / 1000):
                    await self._bell.wait()
        finally:
            self._disconnect()

    async def _round(self, placed: Mapping[int, Placed]) -> bool:
        """One exchange with the leader; False if it should not be repeated at once."""
        try:
            source = self._source()
            if source is None:
                return False
            without_bounds = {index: each for index, each in placed.items() if each.log.wants_bounds}
            if without_bounds:
                await self._ask_bounds(source, without_bounds)
            ready = {index: each for index, each in placed.items() if not each.log.wants_bounds}
            return bool(ready) and await self._read(source, ready)
        except ChannelError as error:
            log.info("broker %d does not serve remote log metadata: %s", self.leader_id, error)
            self._disconnect()
        except (KafkaError, MalformedMessage, OSError) as error:
            if str(error) != self._problem:
                log.error("remote log metadata at broker %d cannot be read: %s", self.leader_id, error)
            self._problem = str(error)
        except Exception:
            # A bug must not end the reading from this leader.
            log.exception("reading remote log metadata from broker %d failed", self.leader_id)
            self._disconnect()
        return False

    def _source(self) -> _Source | None:
        """None if the broker has no address."""
        if self.leader_id == self._ports.node_id:
            return _OwnLogs(self._ports.partitions, self._bell)
        if self._channel is None:
            self._channel = self._ports.channel_to(self.leader_id)
        return None if self._channel is None else _Leader(self._channel)

    async def _ask_bounds(self, source: _Source, placed: Mapping[int, Placed]) -> None:
        generations = {index: each.log.generation for index, each in placed.items()}
        for index, (start_offset, end_offset) in (await source.bounds(placed)).items():
            report = placed[index].log.bounds_are(start_offset, end_offset, generations[index])
            if report is not None:
                log.error("%r: %s", placed[index].log, report)

    async def _read(self, source: _Source, placed: Mapping[int, Placed]) -> bool:
        """False if a partition has an error."""
        generations = {index: each.log.generation for index, each in placed.items()}
        answers = await source.read(placed)
        for index, answer in answers.items():
            metadata_log = placed[index].log
            if generations[index] != metadata_log.generation:
                continue
            if answer.is_diverging:
                log.error("%r was truncated below offset %d: it is read again", metadata_log, metadata_log.position)
                metadata_log.truncated()
            elif len(answer.records):
                found = await self._decoded(answer.records, metadata_log)
                if found is not None:
                    for _ in metadata_log.apply(found, generations[index]):
                        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        return len(answers) == len(placed)

    async def _decoded(self, data: bytes | memoryview | FileRegion, metadata_log: MetadataLog) -> ReadRecords | None:
        work = partial(_decode, data, metadata_log.wanted, metadata_log.probe)
        if isinstance(data, FileRegion) or len(data) > DECODED_INLINE_BYTES:
            return await self._ports.world.run_blocking(work)
        return work()


def _decode(data: bytes | memoryview | FileRegion, wanted: Wanted, probe: int) -> ReadRecords | None:
    if isinstance(data, FileRegion):
        data = data.file.pread(data.count, data.offset)
    return decode_batches(data, wanted, probe)


class _Source(Protocol):
    """Where a leader's logs can be read. All raise ChannelError, KafkaError, OSError."""

    async def bounds(self, placed: Mapping[int, Placed]) -> dict[int, tuple[int, int]]:
        """(log start offset, high watermark) of those that are known for sure."""

    async def read(self, placed: Mapping[int, Placed]) -> dict[int, _Answer]:
        """Records from the position of each log on; partitions with an error are left out. Waits a while for news."""


class _Leader:
    """Another broker."""

    def __init__(self, channel: MetadataChannel) -> None:
        self._channel = channel

    async def bounds(self, placed: Mapping[int, Placed]) -> dict[int, tuple[int, int]]:
        # The end is asked for last: a log that has moved on meanwhile has the start that was answered, or a later one.
        starts = await self._offsets(placed, _EARLIEST)
        ends = await self._offsets(placed, _LATEST)
        return {index: (starts[index], ends[index]) for index in placed if index in starts and index in ends}

    async def _offsets(self, placed: Mapping[int, Placed], timestamp: int) -> dict[int, int]:
        partitions = [
            ListOffsetsPartition(partition_index=index, current_leader_epoch=each.leader_epoch, timestamp=timestamp)
            for index, each in placed.items()
        ]
        topic = ListOffsetsTopic(name=REMOTE_METADATA_TOPIC, partitions=partitions)
        request = ListOffsetsRequest(topics=[topic], timeout_ms=ANSWER_TIMEOUT_MS)
        response: ListOffsetsResponse = await self._channel.call(request, timeout_ms=ANSWER_TIMEOUT_MS)
        answers = [each for topic_answer in response.topics for each in topic_answer.partitions]
        for each in answers:
            _note_error(each.partition_index, each.error_code)
        return {each.partition_index: each.offset for each in answers if each.error_code == 0 and each.offset >= 0}

    async def read(self, placed: Mapping[int, Placed]) -> dict[int, _Answer]:
        response: FetchResponse = await self._channel.call(_request(placed), timeout_ms=ANSWER_TIMEOUT_MS)
        if response.error_code:
            raise KafkaError(error_code(response.error_code))
        answers: dict[int, _Answer] = {}
        for topic in response.responses:
            for data in topic.partitions:
                each = placed.get(data.partition_index)
                if each is None or topic.topic_id != each.topic_id:
                    continue
                answer = _answer_of(data, each.log)
                if answer is not None:
                    answers[data.partition_index] = answer
        return answers


def _request(placed: Mapping[int, Placed]) -> FetchRequest:
    topics: dict[bytes, FetchTopic] = {}
    for index, each in placed.items():
        asked = FetchPartition(
            partition=index,
            current_leader_epoch=each.leader_epoch,
            fetch_offset=each.log.position,
            last_fetched_epoch=each.log.last_epoch,
            partition_max_bytes=PARTITION_BYTES,
        )
        topics.setdefault(each.topic_id, FetchTopic(topic_id=each.topic_id)).partitions.append(asked)
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=RESPONSE_BYTES,
        session_epoch=_NO_SESSION,
        topics=list(topics.values()),
    )


def _answer_of(data: PartitionData, metadata_log: MetadataLog) -> _Answer | None:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        metadata_log.wants_bounds = True
    if data.error_code:
        _note_error(data.partition_index, data.error_code)
        return None
    return _Answer(data.records or b"", is_diverging=data.diverging_epoch.end_offset >= 0)


def _note_error(index: int, code: int) -> None:
    if code:
        log.info("%s-%d cannot be read now: %s", REMOTE_METADATA_TOPIC, index, error_code(code).name)


class _OwnLogs:
    """The logs that this broker leads itself."""

    def __init__(self, partitions: Partitions, bell: trio.Event) -> None:
        self._partitions = partitions
        self._bell = bell
        """Rings when a high watermark has advanced."""

    def _find(self, index: int, placed: Placed) -> Partition:
        """Raises KafkaError."""
        partition = self._partitions.find(placed.topic_id, index)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{REMOTE_METADATA_TOPIC}-{index} is not here")
        error = partition.replica.leader_error(placed.leader_epoch)
        if error is not None:
            raise KafkaError(error, f"{partition} refuses epoch {placed.leader_epoch}")
        return partition

    async def bounds(self, placed: Mapping[int, Placed]) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for index, each in placed.items():
            try:
                partition = self._find(index, each)
            except KafkaError as error:
                _note_error(index, error.code)
                continue
            if partition.replica.high_watermark_is_current and not partition.is_forgotten:
                found[index] = (partition.log.log_start_offset, partition.log.high_watermark)
        return found

    async def read(self, placed: Mapping[int, Placed]) -> dict[int, _Answer]:
        answers = self._read_now(placed)
        if answers and not any(each.is_diverging or len(each.records) for each in answers.values()):
            with trio.move_on_after(FETCH_WAIT_MS / 1000):
                await self._bell.wait()
            answers = self._read_now(placed)
        return answers

    def _read_now(self, placed: Mapping[int, Placed]) -> dict[int, _Answer]:
        answers: dict[int, _Answer] = {}
        for index, each in placed.items():
            metadata_log = each.log
            request = ReadRequest(
                FetchKind.READ_UNCOMMITTED,
                metadata_log.position,
                PARTITION_BYTES,
                each.leader_epoch,
                metadata_log.last_epoch,
            )
            try:
                found = self._find(index, each).read(request)
            except KafkaError as error:
                metadata_log.wants_bounds |= error.code is ErrorCode.OFFSET_OUT_OF_RANGE
                _note_error(index, error.code)
                continue
            records = b"" if found.records is None else found.records.region
            answers[index] = _Answer(records, found.diverging_epoch is not None)
        return answers
