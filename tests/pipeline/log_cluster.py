"""A blocking cluster client whose partitions are logs in memory, for tests of readers and planners without sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.metadata import Leadership, Node, TopicPartition, TopicView
from barnabas.client.offset_lookup import EARLIEST, LATEST, FoundOffset, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster, ClusterView
from barnabas.pipeline.fetch_ahead import FetchAhead, FetchedPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records


@dataclass
class MemoryLog:
    """The batches of a leader."""

    start: int = 0
    end: int = 0
    stable: int | None = None
    """The last stable offset, if it is below the end."""
    batches: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)

    def append(self, *values: bytes, timestamp: int = 1, **options: Any) -> None:
        rows = [Record(0, timestamp + index, None, value) for index, value in enumerate(values)]
        self.add(build_batch(rows, base_offset=self.end, **options))

    def add(self, batch: bytes) -> None:
        self.batches.append(batch)
        [(_, header)] = iterate_batches(batch)
        self.end = header.next_offset

    def skip(self, count: int) -> None:
        """Skip offsets, as after compaction, or for a removed marker."""
        self.end += count


class LogCluster(BlockingCluster):
    """Topics by name, with ids and logs. Counts fetches."""

    def __init__(self, topics: Mapping[str, list[MemoryLog]], retry_timeout_ms: int = 50) -> None:
        super().__init__("127.0.0.1:1", retry_timeout_ms=retry_timeout_ms)
        self.logs = {
            TopicPartition(topic, index): log for topic, logs in topics.items() for index, log in enumerate(logs)
        }
        self.ids = {topic: bytes([index]) * 16 for index, topic in enumerate(topics, 1)}
        self.fetches: list[tuple[int, int]] = []
        """(offset, max_bytes)"""
        self.taken_ahead = 0

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterView:
        views = {}
        for name in self.ids if topics is None else topics:
            numbers = [partition.partition for partition in self.logs if partition.topic == name]
            if numbers:
                views[name] = TopicView(self.ids[name], {number: Leadership(1, 0) for number in numbers})
            else:
                views[name] = TopicView(ZERO_UUID, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return ClusterView("c", {1: Node(1, "127.0.0.1", 1)}, views)

    def list_offsets(
        self, specs: Mapping[Any, int], isolation: Isolation | int = Isolation.READ_UNCOMMITTED
    ) -> dict[tuple[str, int], FoundOffset]:
        return {partition: self._listed(partition, spec, isolation) for partition, spec in specs.items()}

    def fetch(  # noqa: PLR0913 - the seam's
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1000,
        isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        topic_id: bytes = ZERO_UUID,
    ) -> FetchedPartition:
        log = self._log(TopicPartition(topic, partition))
        if topic_id not in (ZERO_UUID, self.ids[topic]):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if not log.start <= offset <= log.end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.fetches.append((offset, max_bytes))
        stable = log.end if log.stable is None else log.stable
        records = b""
        for batch in log.batches:
            [(_, header)] = iterate_batches(batch)
            if header.last_offset < offset:
                continue
            if isolation == Isolation.READ_COMMITTED and header.base_offset >= stable:
                break
            if records and len(records) + len(batch) > max_bytes:
                # A fetch may end within a batch.
                records += batch[: max_bytes - len(records)]
                break
            records += batch
        return FetchedPartition(memoryview(records), log.end, stable, log.start, log.aborted)

    def fetch_ahead(self, topic: str, partition: int, offset: int, **options: Any) -> Any:
        """Returns the result when it is requested."""
        return FetchAhead(
            TopicPartition(topic, partition), offset, *[self.fetch(topic, partition, offset, **options)] * 2
        )

    def fetched_ahead(self, ahead: FetchAhead) -> FetchedPartition | None:
        self.taken_ahead += 1
        return ahead.pending  # type: ignore[return-value]

    def _log(self, partition: TopicPartition) -> MemoryLog:
        if partition not in self.logs:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {partition}")
        return self.logs[partition]

    def _listed(self, partition: Any, spec: int, isolation: int) -> FoundOffset:
        log = self._log(TopicPartition(*partition))
        if spec == EARLIEST:
            return FoundOffset(log.start, -1, 0)
        if spec == LATEST:
            committed = isolation == Isolation.READ_COMMITTED and log.stable is not None
            return FoundOffset(log.stable if committed and log.stable is not None else log.end, -1, 0)
        for batch in log.batches:
            for record in decode_records(batch):
                if record.timestamp >= spec and record.offset >= log.start:
                    return FoundOffset(record.offset, record.timestamp, 0)
        return FoundOffset(-1, -1, -1)
