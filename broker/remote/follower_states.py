"""Shell: reads leader epochs and producers at the end of a remote segment, for a follower whose log is to begin there
(KIP-405). The records of the segment are not read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from barnabas.broker.remote.index_cache import SegmentReads
from barnabas.broker.remote.read_queue import ReadQueue
from barnabas.broker.remote.reader import is_expected
from barnabas.broker.remote.reads import key_of
from barnabas.broker.remote.segment_store import IndexKind
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.tier_start import RemoteState, StateWanted
from barnabas.runtime.object_store import StoreError
from barnabas.storage.checkpoints import MalformedCheckpoint, parse_epochs
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemotePartitionKey

log = logging.getLogger(__name__)


class FollowerStates:
    """`ask` is that of `broker.replication.fetcher.RemoteStates`."""

    def __init__(
        self,
        store: SegmentReads,
        segments: Callable[[RemotePartitionKey], PartitionSegments | None],
        queue: ReadQueue,
    ) -> None:
        self._store = store
        self._segments = segments
        self._queue = queue
        self.builds: dict[str, int] = {}
        """Number of states that were asked for, by topic."""
        self.failures: dict[str, int] = {}

    def ask(self, partition: Partition, wanted: StateWanted, answered: Callable[[RemoteState | None], None]) -> None:
        self.builds[partition.topic] = self.builds.get(partition.topic, 0) + 1

        def ended(state: RemoteState | None, error: Exception | None) -> None:
            if error is not None:
                self.failures[partition.topic] = self.failures.get(partition.topic, 0) + 1
                failed = "%s: its state at offset %d cannot be read from a remote segment, and is asked for again: %s"
                unexpected = not (is_expected(error) or isinstance(error, MalformedCheckpoint))
                log.warning(failed, partition, wanted.offset, error, exc_info=error if unexpected else None)
            answered(state)

        self._queue.submit(partial(self._build, key_of(partition), wanted), ended)

    async def _build(self, key: RemotePartitionKey, wanted: StateWanted) -> RemoteState:
        segments = self._segments(key)
        if segments is None:
            raise StoreError(f"the remote segments of {key} are not known here yet")
        segment = segments.segment_for(wanted.epoch, wanted.offset)
        if segment is None:
            raise StoreError(f"{key} has no remote segment with offset {wanted.offset} of leader epoch {wanted.epoch}")
        epochs = parse_epochs(await self._store.read_index(segment, IndexKind.LEADER_EPOCH), f"the epochs of {segment}")
        if LeaderEpochs(epochs).epoch_for_offset(wanted.offset) != wanted.epoch:
            raise StoreError(f"the epochs of {segment} are {epochs}: offset {wanted.offset} is not of {wanted.epoch}")
        snapshot = await self._store.read_index(segment, IndexKind.PRODUCER_SNAPSHOT)
        return RemoteState(segment.end_offset + 1, tuple(epochs), snapshot)
