"""How far groups have come: the offsets that count, and those of transactions that are still open. A core.

Only records change it, and markers of transactions, in the order of the log. Knows no requests and no kinds of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.coordinator.outcome import CoordinatorRecord
from protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue

VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1
"""The only version that keeps an expire timestamp."""


class CommittedOffset(NamedTuple):
    """What one commit said of one partition."""

    offset: int
    leader_epoch: int
    """-1 if the client did not say."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1 where the broker's retention decides; clients before version 5 could say how long."""
    topic_id: bytes
    """Zero if it is not known."""


class _Kept(NamedTuple):
    place: int
    """Grows with the log. A transaction that commits changes nothing that was committed after its own record."""
    committed: CommittedOffset


Partitions = dict[int, _Kept]
Topics = dict[str, Partitions]


class CommittedOffsets:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}
        """By producer id."""
        self._open: dict[str, dict[int, None]] = {}
        """By group: the producers that have pending offsets in it. Ordered, where a set would not be."""
        self._place = 0

    # -- looking

    def __contains__(self, group_id: str) -> bool:
        """Whether the group has offsets, or will have some when a transaction commits."""
        return group_id in self._groups or group_id in self._open

    def __len__(self) -> int:
        """Offsets that count, of all groups."""
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def groups(self) -> Iterator[str]:
        """All that have offsets, or will have some when a transaction commits."""
        yield from list(self._groups)
        yield from [group_id for group_id in self._open if group_id not in self._groups]

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        kept = self._groups.get(group_id, {}).get(topic, {}).get(partition)
        return None if kept is None else kept.committed

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction may still change it."""
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open.get(group_id, ())
        )

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Topic, partition and what was committed, without what is pending."""
        return _walk(self._groups.get(group_id, {}))

    def partitions_of(self, group_id: str) -> dict[str, list[int]]:
        """The partitions for which the group has offsets, by topic."""
        return {topic: list(partitions) for topic, partitions in self._groups.get(group_id, {}).items()}

    def of_group_and_pending(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """As `of_group`, and what is pending; a partition may come more than once."""
        yield from _walk(self._groups.get(group_id, {}))
        for producer_id in self._open.get(group_id, ()):
            yield from _walk(self._pending[producer_id].get(group_id, {}))

    # -- what the log says

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int | None) -> None:
        """A record. With `producer_id` it belongs to that producer's open transaction."""
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
        """The producer's transaction ended."""
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
        """A tombstone takes what is pending, too."""
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
    """The record that says so."""
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
    """The record that forgets a partition's offset."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
