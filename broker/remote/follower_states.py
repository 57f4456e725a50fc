"""Shell: reads leader epochs and producers at an offset from remote segments, for a follower whose log is to begin
there (KIP-405).

Usually a segment ends there, and its records are not read. If one reaches beyond, its end may belong to a lineage that
an unclean election has ended: then the producers are those at the end of the segment before, and of the batches up to
the offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from barnabas.broker.remote.index_cache import SegmentReads
from barnabas.broker.remote.read_queue import ReadQueue
from barnabas.broker.remote.reader import is_expected
from barnabas.broker.remote.reads import key_of
from barnabas.broker.remote.segment_store import IndexKind
from barnabas.broker.remote.segment_walk import SegmentWalk
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.tier_start import RemoteState, StateWanted
from barnabas.protocol.records.control import read_end_txn
from barnabas.runtime.object_store import StoreError
from barnabas.storage.checkpoints import MalformedCheckpoint, parse_epochs
from barnabas.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from barnabas.storage.producer_snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot
from barnabas.storage.producers import ProducerStateConfig, ProducerStates
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment

log = logging.getLogger(__name__)

REPLAY_BYTES = 4 << 20
"""Bytes of a segment that are read at once for its producers."""
REPLAYED_IN_A_STEP = 500


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
                unexpected = not (is_expected(error) or isinstance(error, MalformedCheckpoint | CorruptSnapshot))
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
        known = LeaderEpochs(epochs)
        if known.epoch_for_offset(wanted.offset) != wanted.epoch:
            raise StoreError(f"the epochs of {segment} are {epochs}: offset {wanted.offset} is not of {wanted.epoch}")
        next_offset = wanted.offset + 1
        known.truncate_from_end(next_offset)
        snapshot = await self._producers_at(next_offset, segment, known, segments)
        return RemoteState(next_offset, tuple(known.entries()), snapshot)

    async def _producers_at(
        self, offset: int, segment: RemoteSegment, epochs: LeaderEpochs, segments: PartitionSegments
    ) -> bytes:
        """The producer snapshot at `offset`, which is in `segment` or at its end."""
        replayed: list[tuple[RemoteSegment, int]] = []
        """Segments and the offsets up to which their batches count, the newest first."""
        before: RemoteSegment | None = segment
        while before is not None and before.end_offset + 1 != offset:
            replayed.append((before, offset))
            offset = before.start_offset
            epoch = epochs.epoch_for_offset(offset - 1)
            before = None if epoch == UNDEFINED_EPOCH else segments.segment_for(epoch, offset - 1)
        # Without a segment before, the log begins there.
        snapshot = b"" if before is None else await self._store.read_index(before, IndexKind.PRODUCER_SNAPSHOT)
        if not replayed:
            return snapshot
        states = ProducerStates(ProducerStateConfig())
        states.load(decode_snapshot(snapshot) if snapshot else (), offset, now_ms=0)
        for each, end_offset in reversed(replayed):
            await self._replay(each, end_offset, states)
        return encode_snapshot(states.entries.values())

    async def _replay(self, segment: RemoteSegment, end_offset: int, states: ProducerStates) -> None:
        """Apply the batches of a segment below `end_offset`."""
        walk = SegmentWalk(self._store, segment, 0, REPLAY_BYTES)
        count = 0
        while (found := await walk.next()) is not None and found.header.base_offset < end_offset:
            header = found.header
            count += 1
            if count % REPLAYED_IN_A_STEP == 0:
                await trio.lowlevel.checkpoint()
            if header.producer_id < 0:
                continue
            if not header.is_marker:
                states.apply(header, header.base_offset, header.max_timestamp)
            elif (marker := read_end_txn(await walk.whole(found), 0)) is not None:
                states.apply_marker(header, marker, header.base_offset)
