"""Mistakes of tiered storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.broker.remote.copier import Copier
from barnabas.broker.remote.expirer import Expirer
from barnabas.broker.remote.follower_states import FollowerStates
from barnabas.broker.remote.reader import RemoteReader
from barnabas.broker.remote.remote_pass import RemotePass
from barnabas.broker.remote.segment_store import RemoteSegmentStore, SegmentFiles
from barnabas.broker.replication.tier_start import RemoteState
from barnabas.runtime.object_store import StoreError
from barnabas.storage.compaction import Compaction
from barnabas.storage.producer_snapshot_format import encode_snapshot
from barnabas.storage.remote.recleaning import Row
from barnabas.storage.remote.segment import RemoteSegment
from barnabas.storage.transaction_index import AbortedTransaction


def take_what_is_closed_for_copied(original: Any) -> Any:
    """Local retention deletes closed segments, whether they are remote or not."""

    def learn(self: Copier, tended: Any, segments: Any) -> None:
        original(self, tended, segments)
        log = tended.partition.log
        log.highest_copied_offset = min(log.active_segment.base_offset, log.high_watermark) - 1

    return learn


def take_a_failed_copy_for_done(original: Any) -> Any:
    """A segment counts as copied although the store has refused a part of it."""

    async def copy(self: RemoteSegmentStore, segment: RemoteSegment, files: SegmentFiles) -> None:
        try:
            await original(self, segment, files)
        except StoreError:
            return

    return copy


class _Seen:
    """An object with some other values; all else is the object's own."""

    def __init__(self, target: Any, **values: Any) -> None:
        self.__dict__["_target"] = target
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_target"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_target"], name, value)


def copy_open_transactions(original: Any) -> Any:
    """Closed segments are copied at once, whether they are committed or not."""

    async def copy_round(self: Copier, tended: Any) -> bool:
        partition = tended.partition
        log = _Seen(partition.log, last_stable_offset=partition.log.log_end_offset)
        done: bool = await original(self, _Seen(tended, partition=_Seen(partition, log=log)))
        return done

    return copy_round


def expire_earlier_epochs(original: Any) -> Any:
    """A leader takes segments that earlier leaders wrote for those of another lineage."""

    def facts(self: Expirer, tended: Any) -> Any:
        log = tended.partition.log
        latest = _Seen(log.epochs, entries=lambda: log.epochs.entries()[-1:])
        partition = _Seen(tended.partition, log=_Seen(log, epochs=latest))
        return original(self, _Seen(tended, partition=partition))

    return facts


def begin_without_producers(original: Any) -> Any:
    """A follower that begins behind remote segments does not read who wrote them."""

    async def build(self: FollowerStates, *arguments: Any) -> RemoteState:
        state: RemoteState = await original(self, *arguments)
        return state._replace(producer_snapshot=encode_snapshot(()))

    return build


def begin_with_one_epoch(original: Any) -> Any:
    """A follower that begins behind remote segments knows their last leader epoch alone."""

    async def build(self: FollowerStates, *arguments: Any) -> RemoteState:
        state: RemoteState = await original(self, *arguments)
        return state._replace(leader_epochs=((state.leader_epochs[-1][0], 0),))

    return build


def skip_the_first_batch(original: Any) -> Any:
    """A read of a remote segment begins behind the batch that has the offset, unless that is the last one."""

    async def first_batch(self: RemoteReader, segment: RemoteSegment, offset: int, max_bytes: int) -> Any:
        found = await original(self, segment, offset, max_bytes)
        if found is None or found.header.last_offset == segment.end_offset:
            return found
        return await original(self, segment, found.header.next_offset, max_bytes)

    return first_batch


def list_no_aborted_transactions(_original: Any) -> Any:
    """Readers of committed records are not given what was aborted in remote segments."""

    async def aborted(self: RemoteReader, *_: Any) -> Sequence[AbortedTransaction]:
        return []

    return aborted


def let_tombstones_go(original: Any) -> Any:
    """A cleaner removes tombstones from the disk although older records of their keys are remote."""

    def init(self: Compaction, *arguments: Any, keeps_deletions: bool = False, **options: Any) -> None:
        original(self, *arguments, **options)

    return init


def map_the_last_segment_alone(original: Any) -> Any:
    """A pass does not read all keys that were copied since the last one."""

    async def map_keys(self: RemotePass) -> None:
        dirty = self._row.dirty_parts
        if len(dirty) > 1:
            self._row = Row(self._row.parts, dirty[-2].end_offset)
        await original(self)

    return map_keys


def take_all_for_clean(_original: Any) -> Any:
    """A pass says that what it has written is clean up to the end of the log."""

    def cleaned_to(self: RemotePass, group: Any) -> int:
        return self._tended.partition.log.log_end_offset

    return cleaned_to
