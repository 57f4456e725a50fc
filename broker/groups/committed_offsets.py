"""Core: committed offsets, and pending ones of open transactions.

Changed only by records and transaction markers, in log order. Knows neither requests nor kinds of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.broker.coordinator.outcome import CoordinatorRecord
from barnabas.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue

VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1
"""The only version with an expire timestamp."""


class CommittedOffset(NamedTuple):
    """The value of one commit to one partition."""

    offset: int
    leader_epoch: int
    """-1 if the client did not send it."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1 if the broker's retention applies; clients before version 5 could choose their own."""
    topic_id: bytes
    """Zero if unknown."""


class _Kept(NamedTuple):
    place: int
    """Position in the log order. A committed transaction does not replace offsets committed after its own record."""
    committed: CommittedOffset


Partitions = dict[int, _Kept]
Topics = dict[str, Partitions]


class CommittedOffsets:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}
        """By producer id, then group id."""
        self._open: dict[str, dict[int, None]] = {}
        """Producers with pending offsets, by group id. Dicts keep an order, which sets do not."""
        self._place = 0

    # -- lookup

    def __contains__(self, group_id: str) -> bool:
        """True if the group has committed or pending offsets."""
        return group_id in self._groups or group_id in self._open

    def __len__(self) -> int:
        """Number of committed offsets of all groups."""
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def groups(self) -> Iterator[str]:
        """Groups with committed or pending offsets."""
        yield from list(self._groups)
        yield from [group_id for group_id in self._open if group_id not in self._groups]

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        kept = self._groups.get(group_id, {}).get(topic, {}).get(partition)
        return None if kept is None else kept.committed

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction has a pending offset for the partition."""
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open.get(group_id, ())
        )

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Topic, partition and committed offset, without pending ones."""
        return _walk(self._groups.get(group_id, {}))

    def partitions_of(self, group_id: str) -> dict[str, list[int]]:
        """Partitions with committed offsets, by topic."""
        return {topic: list(partitions) for topic, partitions in self._groups.get(group_id, {}).items()}

    def partitions_and_pending(self, group_id: str) -> dict[str, list[int]]:
        """Partitions with committed or pending offsets, by topic."""
        found: dict[str, dict[int, None]] = {}
        for topics in self._sources(group_id):
            for topic, partitions in topics.items():
                found.setdefault(topic, {}).update(dict.fromkeys(partitions))
        return {topic: list(partitions) for topic, partitions in found.items()}

    def versions(self, group_id: str, topic: str, partition: int) -> Iterator[CommittedOffset]:
        """The committed and the pending offsets of one partition."""
        for topics in self._sources(group_id):
            kept = topics.get(topic, {}).get(partition)
            if kept is not None:
                yield kept.committed

    def _sources(self, group_id: str) -> Iterator[Topics]:
        yield self._groups.get(group_id, {})
        for producer_id in self._open.get(group_id, ()):
            yield self._pending[producer_id].get(group_id, {})

    def of_group_and_pending(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Like `of_group`, plus pending offsets; a partition may occur more than once."""
        for topics in self._sources(group_id):
            yield from _walk(topics)

    # -- replay

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int | None) -> None:
        """Apply a record. With `producer_id` it is part of that producer's open transaction."""
        self._place += 1
        if value is None:
            self._forget(key)
            return
        kept = _Kept(self._place, _committed(value))
        if producer_id is None:
            self._keep(self._groups, key.group, key.topic, key.partition, kept)
            return
        self._keep(self._pending.setdefault(producer_id, {}), key.group, key.topic, key.partition, kept)
        self._open.setdefault(key.group, {})[producer_id] = None

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """The producer's transaction was committed or aborted."""
        groups = self._pending.pop(producer_id, None)
        if groups is None:
            return
        for group_id, topics in groups.items():
            self._close(group_id, producer_id)
            if not committed:
                continue
            for topic, partitions in topics.items():
                for partition, kept in partitions.items():
                    before = self._groups.get(group_id, {}).get(topic, {}).get(partition)
                    if before is None or before.place < kept.place:
                        self._keep(self._groups, group_id, topic, partition, kept)

    @staticmethod
    def _keep(groups: dict[str, Topics], group_id: str, topic: str, partition: int, kept: _Kept) -> None:
        groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = kept

    def _forget(self, key: OffsetCommitKey) -> None:
        """A tombstone removes pending offsets, too."""
        _remove(self._groups, key)
        for producer_id in list(self._open.get(key.group, ())):
            groups = self._pending[producer_id]
            _remove(groups, key)
            if key.group not in groups:
                self._close(key.group, producer_id)
            if not groups:
                del self._pending[producer_id]

    def _close(self, group_id: str, producer_id: int) -> None:
        producers = self._open.get(group_id, {})
        producers.pop(producer_id, None)
        if not producers:
            self._open.pop(group_id, None)


def _walk(topics: Topics) -> Iterator[tuple[str, int, CommittedOffset]]:
    for topic, partitions in topics.items():
        for partition, kept in partitions.items():
            yield topic, partition, kept.committed


def _remove(groups: dict[str, Topics], key: OffsetCommitKey) -> None:
    topics = groups.get(key.group, {})
    partitions = topics.get(key.topic, {})
    partitions.pop(key.partition, None)
    if not partitions:
        topics.pop(key.topic, None)
    if not topics:
        groups.pop(key.group, None)


def _committed(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def commit_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    expires = committed.expire_timestamp_ms >= 0
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, value, VALUE_VERSION_WITH_EXPIRY if expires else VALUE_VERSION)


def tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
