"""Reads one range of one partition, wherever it is led meanwhile: fetches in, columns out. What a task does.

A fetch is asked for before the one before it is decoded, so the broker and the wire work meanwhile.
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
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import ZERO_UUID
from protocol.records.batch import CorruptBatch, iterate_batches

log = logging.getLogger(__name__)

FIRST_FETCH_BYTES = 1024 * 1024
"""Ranges may be short: what is fetched behind the end of one is fetched in vain."""

MAX_WAIT_MS = 500
LOOK_AGAIN_SECONDS = 0.05
MOST_FETCH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of a partition, and how."""

    partition: TopicPartition
    window: Window
    topic_id: bytes = ZERO_UUID
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    include_headers: bool = False
    fail_on_data_loss: bool = True
    fetch_bytes: int = 8 * 1024 * 1024


def read_range(cluster: BlockingCluster, reading: Reading) -> Iterator[Columns]:
    """The records of the window that are there and wanted.

    PipelineError if some were lost (by the beginning or the end of the log, never by gaps) and `fail_on_data_loss`;
    otherwise what is left is given, and never anything before the window.
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
            fetched = self._taken_ahead() or self._fetch()
            if fetched is None:
                continue
            self._ask_ahead(fetched)
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
                    f"{self._reading.partition}: {error.message}; if the log is damaged there on its leader, another"
                    " replica may have it whole"
                ) from None
            self._move_on(fetched, progress)

    def _ask_ahead(self, fetched: FetchedPartition) -> None:
        """Ask for what comes behind these batches, if it is of the range."""
        next_offset = self._position
        try:
            for _, header in iterate_batches(fetched.records):
                next_offset = header.next_offset
        except CorruptBatch:
            # Whoever decodes it tells what is wrong.
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

    def _taken_ahead(self) -> FetchedPartition | None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        fetched = self._cluster.fetched_ahead(ahead)
        return fetched if ahead.offset == self._position else None

    def _size_next(self, fetched: FetchedPartition, next_offset: int) -> None:
        """What is left needs about as many bytes for each offset as what came."""
        needed = len(fetched.records) * (self._until - next_offset) // max(1, next_offset - self._position)
        self._fetch_bytes = max(64 * 1024, min(self._reading.fetch_bytes, needed + needed // 8))

    def _fetch(self) -> FetchedPartition | None:
        """None if there has to be another look."""
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
        came = progress.next_offset - self._position
        if came > 0:
            self._waiting_since = None
            self._size_next(fetched, progress.next_offset)
            self._position = progress.next_offset
        if progress.is_at_end:
            # The last offsets of the range are a gap.
            self._position = self._until
        elif came <= 0 and fetched.records:
            # Not one whole batch.
            if self._fetch_bytes >= MOST_FETCH_BYTES:
                raise PipelineError(f"{self._reading.partition}: a batch larger than {MOST_FETCH_BYTES} bytes")
            self._fetch_bytes *= 2
        elif came <= 0:
            self._nothing_came(fetched)

    def _nothing_came(self, fetched: FetchedPartition) -> None:
        committed = self._reading.isolation is Isolation.READ_COMMITTED
        readable = fetched.last_stable_offset if committed else fetched.high_watermark
        if readable >= self._until:
            # There is a gap up to the end of what can be read.
            self._position = self._until
        else:
            # A new leader may not know yet how far all replicas are.
            self._wait(readable)

    def _out_of_range(self) -> None:
        partition = self._reading.partition
        start = earliest_offsets(self._cluster, [partition])[partition]
        if self._position < start:
            self._lost(lost_at_start(partition, self._position, start), start)
            return
        self._wait(latest_offsets(self._cluster, [partition], Isolation.READ_UNCOMMITTED)[partition])

    def _wait(self, end: int) -> None:
        """The log ends too soon: a moment of patience, then that is a loss."""
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since > self._cluster.retry_timeout_ms / 1000:
            self._lost(lost_at_end(self._reading.partition, self._until, end), self._until)
        else:
            time.sleep(LOOK_AGAIN_SECONDS)

    def _lost(self, error: PipelineError, go_on_at: int) -> None:
        if self._reading.fail_on_data_loss:
            raise error
        log.warning("going on all the same: %s", error)
        self._position = min(go_on_at, self._until)
