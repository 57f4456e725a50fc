"""Shell: the remote reads of one broker for its clients: bounded in number, limited in rate, and counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker.remote.read_queue import Late, QueuedRead, ReadQueue, Work
from barnabas.broker.remote.reader import RemoteReader, is_expected
from barnabas.broker.remote.wanted import Answered, RemoteRecords, Wanted
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.world import Clock
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.remote.segment import RemotePartitionKey
from barnabas.storage.segment_list import TimestampedOffset

log = logging.getLogger(__name__)

LATE_BYTES = 32 << 20
"""Most bytes of records that came too late for their fetches and are kept for the next ones."""



class _ReadKey(NamedTuple):
    """Reads with equal keys have the same result."""

    partition: Partition
    leader_epoch: int
    wanted: Wanted


@dataclass(slots=True)
class ReadCounts:
    """By topic."""

    requests: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    bytes_read: Counter[str] = field(default_factory=Counter)
    expired_fetches: int = 0
    """Fetches that were answered before all of their remote reads had ended."""
    expired_lookups: int = 0
    """The same of requests for offsets by time."""


class RemoteReads:
    """Handlers begin reads here, and are called back.

    If the store takes longer than a fetch waits, the read goes on, and the next fetch of the same records gets its
    result: otherwise a slow store would never answer anybody.
    """

    def __init__(self, reader: RemoteReader, queue: ReadQueue, quota: ReplicationQuota, monotonic: Clock) -> None:
        self.reader = reader
        self.queue = queue
        self._quota = quota
        self._monotonic = monotonic
        self.counts = ReadCounts()
        self._left: dict[Hashable, QueuedRead] = {}
        """Reads that run though their fetches were answered."""
        self._late: dict[_ReadKey, RemoteRecords] = {}
        """Records that came too late, the oldest first."""

    @property
    def is_throttled(self) -> bool:
        """True while consumers read more bytes than remote.log.manager.fetch.max.bytes.per.second allows."""
        return self._quota.is_exceeded(self._monotonic.now_ms())

    def fetch(self, partition: Partition, wanted: Wanted, answered: Answered) -> QueuedRead | None:
        """Read records. None if it was answered at once: they are here, or too many reads wait."""
        self.counts.requests[partition.topic] += 1
        key = _ReadKey(partition, partition.leader_epoch, wanted)
        records = self._late.pop(key, None)
        if records is not None:
            answered(records, ErrorCode.NONE)
            return None
        what = f"offset {wanted.offset}"
        read = self._left.pop(key, None)
        if read is not None:
            read.resume(partial(self._ended, partition, what, answered))
        else:
            late = partial(self._keep, key)
            read = self._submit(partition, what, partial(self._read, partition, wanted), answered, late)
        if read is not None:
            read.key = key
        return read

    def leave(self, read: QueuedRead) -> None:
        """The fetch of this read is answered without it."""
        read.cancel()
        if read.has_begun:
            self._left[read.key] = read

    def _keep(self, key: _ReadKey, records: RemoteRecords | None) -> None:
        self._left.pop(key, None)
        if records is None:
            return
        self._late.pop(key, None)
        self._late[key] = records
        size = sum(len(each.data) for each in self._late.values())
        while size > LATE_BYTES:
            size -= len(self._late.pop(next(iter(self._late))).data)

    def find_time(self, partition: Partition, timestamp: int, answered: Answered) -> QueuedRead | None:
        """Find the first record at or after a time in the remote segments, or else in the local ones."""
        find = partial(self._find_time, partition, timestamp)
        return self._submit(partition, f"time {timestamp}", find, answered)

    def _submit(
        self, partition: Partition, what: str, work: Work, answered: Answered, late: Late | None = None
    ) -> QueuedRead | None:
        try:
            return self.queue.submit(work, partial(self._ended, partition, what, answered), late)
        except KafkaError as error:
            # Too many wait already: there may be thousands of these.
            log.debug("%s: %s is not read: %s", partition.name, what, error)
            self.counts.errors[partition.topic] += 1
            answered(None, error.code)
            return None

    def _ended(
        self, partition: Partition, what: str, answered: Answered, result: Any, error: Exception | None
    ) -> None:
        if error is None:
            answered(result, ErrorCode.NONE)
            return
        if not isinstance(error, OffsetOutOfRange):
            self.counts.errors[partition.topic] += 1
            if is_expected(error):
                log.warning("%s: %s cannot be read from remote segments: %s", partition.name, what, error)
            else:
                log.error("%s: %s cannot be read from remote segments", partition.name, what, exc_info=error)
        answered(None, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _read(self, partition: Partition, wanted: Wanted) -> RemoteRecords:
        records = await self.reader.read(key_of(partition), partition.log, wanted)
        size = len(records.data)
        self._quota.record(size, self._monotonic.now_ms())
        self.counts.bytes_read[partition.topic] += size
        return records

    async def _find_time(self, partition: Partition, timestamp: int) -> TimestampedOffset | None:
        found = await self.reader.find_time(key_of(partition), partition.log, timestamp)
        return partition.log.offset_for_timestamp(timestamp) if found is None else found


def key_of(partition: Partition) -> RemotePartitionKey:
    return RemotePartitionKey(partition.topic_id, partition.topic, partition.index)
