"""A read task: one offset range of one partition, across leader changes; fetches in, columns out.

The next fetch is sent before the batches at hand are decoded, so that broker and network work in the meantime.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.columns import Columns, Progress, Window, decode_columns
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.fetch_ahead import FetchAhead, FetchedPartition
from barnabas.pipeline.offsets import earliest_offsets, latest_offsets, lost_at_end, lost_at_start, recreated, vanished
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.records.batch import CorruptBatch, iterate_batches

log = logging.getLogger(__name__)

FIRST_FETCH_BYTES = 1024 * 1024
"""Small at first: ranges may be short, and bytes fetched after the end of a range are wasted."""

MAX_WAIT_MS = 500
POLL_SECONDS = 0.05
MAX_FETCH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Reading:
    """The records to read, and how."""

    partition: TopicPartition
    window: Window
    topic_id: bytes = ZERO_UUID
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    include_headers: bool = False
    fail_on_data_loss: bool = True
    fetch_bytes: int = 8 * 1024 * 1024


def read_range(cluster: BlockingCluster, reading: Reading) -> Iterator[Columns]:
    """The records in the window.

    If `fail_on_data_loss`, PipelineError if records were lost, as the start or the end of the log shows (gaps are no
    loss). Otherwise the remaining records, never any before the window.
    """
    return _Reader(cluster, reading).columns()


class _Reader:
    def __init__(self, cluster: BlockingCluster, reading: Reading) -> None:
        self._cluster = cluster
        self._reading = reading
        self._position = reading.window.from_offset
        self._until = reading.window.until_offset
        self._fetch_bytes = min(FIRST_FETCH_BYTES, reading.fetch_bytes)
        self._waiting_since: float | None = None
        self._ahead: FetchAhead | None = None

    def columns(self) -> Iterator[Columns]:
        while self._position < self._until:
            fetched = self._receive_ahead() or self._fetch()
            if fetched is None:
                continue
            self._send_ahead(fetched)
            progress = Progress(self._position)
            try:
                yield from decode_columns(
                    fetched.records,
                    self._reading.window._replace(from_offset=self._position),
                    aborted=fetched.aborted if self._reading.isolation is Isolation.READ_COMMITTED else None,
                    include_headers=self._reading.include_headers,
                    progress=progress,
                )
            except CorruptBatch as error:
                raise PipelineError(
                    f"{self._reading.partition}: {error.message}; if the leader's log is damaged, another replica may"
                    " be intact"
                ) from None
            self._move_on(fetched, progress)

    def _send_ahead(self, fetched: FetchedPartition) -> None:
        """Send a fetch of the offsets after these batches, if they are in the range."""
        next_offset = self._position
        try:
            for _, header in iterate_batches(fetched.records):
                next_offset = header.next_offset
        except CorruptBatch:
            # The decoder reports it.
            return
        if self._position < next_offset < min(self._until, fetched.high_watermark):
            self._size_next(fetched, next_offset)
            self._ahead = self._cluster.fetch_ahead(
                *self._reading.partition,
                next_offset,
                max_bytes=self._fetch_bytes,
                isolation=self._reading.isolation,
                max_wait_ms=MAX_WAIT_MS,
                topic_id=self._reading.topic_id,
            )

    def _receive_ahead(self) -> FetchedPartition | None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        fetched = self._cluster.fetched_ahead(ahead)
        return fetched if ahead.offset == self._position else None

    def _size_next(self, fetched: FetchedPartition, next_offset: int) -> None:
        """Estimates the rest of the range by the bytes per offset so far."""
        needed = len(fetched.records) * (self._until - next_offset) // max(1, next_offset - self._position)
        self._fetch_bytes = max(64 * 1024, min(self._reading.fetch_bytes, needed + needed // 8))

    def _fetch(self) -> FetchedPartition | None:
        """None if the position changed, or the fetch has to be repeated."""
        reading = self._reading
        try:
            return self._cluster.fetch(
                *reading.partition,
                self._position,
                max_bytes=self._fetch_bytes,
                isolation=reading.isolation,
                max_wait_ms=MAX_WAIT_MS,
                topic_id=reading.topic_id,
            )
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range()
            elif error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                self._lost(vanished(reading.partition.topic), self._until)
            elif error.code is ErrorCode.INCONSISTENT_TOPIC_ID:
                self._lost(recreated(reading.partition.topic), self._until)
            else:
                raise PipelineError(f"{reading.partition} cannot be read: {error}") from None
            return None

    def _move_on(self, fetched: FetchedPartition, progress: Progress) -> None:
        advance = progress.next_offset - self._position
        if advance > 0:
            self._waiting_since = None
            self._size_next(fetched, progress.next_offset)
            self._position = progress.next_offset
        if progress.is_at_end:
            # The range ends with a gap.
            self._position = self._until
        elif advance <= 0 and fetched.records:
            # Not even one complete batch.
            if self._fetch_bytes >= MAX_FETCH_BYTES:
                raise PipelineError(f"{self._reading.partition}: a batch is larger than {MAX_FETCH_BYTES} bytes")
            self._fetch_bytes *= 2
        elif advance <= 0:
            self._empty_fetch(fetched)

    def _empty_fetch(self, fetched: FetchedPartition) -> None:
        committed = self._reading.isolation is Isolation.READ_COMMITTED
        readable = fetched.last_stable_offset if committed else fetched.high_watermark
        if readable >= self._until:
            # A gap extends to the end of the range.
            self._position = self._until
        else:
            # The high watermark of a new leader may lag for a moment.
            self._wait(readable)

    def _out_of_range(self) -> None:
        partition = self._reading.partition
        start = earliest_offsets(self._cluster, [partition])[partition]
        if self._position < start:
            self._lost(lost_at_start(partition, self._position, start), start)
            return
        self._wait(latest_offsets(self._cluster, [partition], Isolation.READ_UNCOMMITTED)[partition])

    def _wait(self, end: int) -> None:
        """The log ends before the range: wait for `retry_timeout_ms`, then it is a loss."""
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since > self._cluster.retry_timeout_ms / 1000:
            self._lost(lost_at_end(self._reading.partition, self._until, end), self._until)
        else:
            time.sleep(POLL_SECONDS)

    def _lost(self, error: PipelineError, next_offset: int) -> None:
        if self._reading.fail_on_data_loss:
            raise error
        log.warning("continuing despite data loss: %s", error)
        self._position = min(next_offset, self._until)
