"""The promises of share groups, checked at every acquisition, and at every write and read of a stored state.

- A write that was confirmed to a leader is durable: each later read of the state has it, or something further in the
  life of the records (a higher delivery count, then a higher state). The start offset does not go back in one state
  epoch, nor does a state epoch.
- Once the state was read in a leader epoch, no write of an earlier epoch is confirmed that is asked for later.
- No leader of the newest epoch delivers a record that is stored as acknowledged or archived, or that is before the
  stored start offset. A leader that was deposed and does not know it yet may: it cannot confirm what becomes of it.
- Delivery counts are at most the limit, at most one more than there ever were, and more than is stored.
- While a lock lasts and nothing was said about its record, its leader gives the record to nobody else. One leader epoch
  has one leader.
- When all is quiet, nothing is acquired, and leaders and share coordinators agree about each record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.broker.parts import BrokerParts
from barnabas.broker.shares.acquisition import Wanted
from barnabas.broker.shares.led_partitions import LedSharePartition
from barnabas.broker.shares.record_state import RecordState
from barnabas.broker.shares.state import SharePartitionKey, ShareState, ShareStateChange, StateBatch
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.share_fetch import AcquiredRecords
from simulation.findings import Findings

MARGIN_MS = 20
"""A lock begins when its leader reads the time, a little before the acquisition is seen here."""


class _Cell(NamedTuple):
    """The stored state of a record; the greater one wins."""

    deliveries: int
    state: int


class _Holder(NamedTuple):
    """The member that got a record last, from one leader."""

    led: LedSharePartition
    member: str
    until_ms: int
    """End of the lock, by the leader's clock."""


@dataclass(slots=True)
class _Ghost:
    """One share partition, as it must at least be stored."""

    state_epoch: int = -1
    start_offset: int = -1
    start_by: int = -1
    """Leader epoch of the write that stored the start offset."""
    read_epoch: int = -1
    """Highest leader epoch whose leader has read the state."""
    cells: dict[int, _Cell] = field(default_factory=dict)
    """By offset, from the start offset on."""
    counts: dict[int, int] = field(default_factory=dict)
    """Highest delivery count that a member ever got, by offset."""
    holders: dict[int, _Holder] = field(default_factory=dict)

    def begin_again(self, state_epoch: int) -> None:
        self.state_epoch, self.start_offset, self.start_by = state_epoch, -1, -1
        self.cells.clear()
        self.counts.clear()
        self.holders.clear()

    def move_start(self, offset: int) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            for each in [it for it in self.cells if it < offset]:
                del self.cells[each]


class Asked(NamedTuple):
    """The epochs of a share partition when a write was asked for."""

    read_epoch: int
    state_epoch: int


class SharePromises:
    """One per universe."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._ghosts: dict[SharePartitionKey, _Ghost] = defaultdict(_Ghost)

    # ---- stored states

    def write_asked(self, key: SharePartitionKey, change: ShareStateChange) -> Asked:
        ghost = self._ghosts[key]
        for offset in _offsets(change.batches):
            ghost.holders.pop(offset, None)
        return Asked(ghost.read_epoch, ghost.state_epoch)

    def written(self, key: SharePartitionKey, change: ShareStateChange, asked: Asked) -> None:
        """The write is confirmed."""
        ghost = self._ghosts[key]
        self._findings.count("share states written")
        self._findings.check(
            change.leader_epoch >= asked.read_epoch,
            lambda: (
                f"{_named(key)}: a write of leader epoch {change.leader_epoch} was confirmed, after the state was read"
                f" in epoch {asked.read_epoch}"
            ),
        )
        self._findings.check(
            change.state_epoch >= asked.state_epoch,
            lambda: (
                f"{_named(key)}: a write of state epoch {change.state_epoch} was confirmed after {asked.state_epoch}"
            ),
        )
        if change.state_epoch < ghost.state_epoch:
            return
        if change.state_epoch > ghost.state_epoch:
            ghost.begin_again(change.state_epoch)
        if change.leader_epoch == ghost.start_by:
            self._findings.check(
                change.start_offset >= ghost.start_offset,
                lambda: (
                    f"{_named(key)}: its leader stored start offset {change.start_offset} after {ghost.start_offset}"
                ),
            )
        ghost.start_by = max(ghost.start_by, change.leader_epoch)
        ghost.move_start(change.start_offset)
        for batch in change.batches:
            for offset in range(max(batch.first_offset, ghost.start_offset), batch.last_offset + 1):
                cell = _Cell(batch.delivery_count, batch.state)
                ghost.cells[offset] = max(cell, ghost.cells.get(offset, cell))

    def read(self, key: SharePartitionKey, leader_epoch: int, state: ShareState) -> None:
        """A leader has read the state."""
        ghost = self._ghosts[key]
        self._findings.count("share states read")
        if state.state_epoch > ghost.state_epoch:
            ghost.begin_again(state.state_epoch)
        elif leader_epoch >= ghost.read_epoch:
            self._check_read(key, ghost, state)
        ghost.read_epoch = max(ghost.read_epoch, leader_epoch)

    def _check_read(self, key: SharePartitionKey, ghost: _Ghost, state: ShareState) -> None:
        self._findings.check(
            state.state_epoch == ghost.state_epoch,
            lambda: f"{_named(key)}: state epoch {state.state_epoch} was read, after {ghost.state_epoch}",
        )
        self._findings.check(
            state.start_offset >= ghost.start_offset,
            lambda: f"{_named(key)}: start offset {state.start_offset} was read; {ghost.start_offset} was stored",
        )
        stored = dict(_cells(state.batches))
        for offset, cell in ghost.cells.items():
            if offset >= state.start_offset and stored.get(offset, _Cell(-1, -1)) < cell:
                self._findings.report(
                    f"{_named(key)}: {stored.get(offset)} was read of offset {offset}; {cell} was stored"
                )
                return

    # ---- leaders

    def acquired(
        self, led: LedSharePartition, lock: tuple[int, int], wanted: Wanted, ranges: Sequence[AcquiredRecords]
    ) -> None:
        """A leader has given records to a member. `lock`: begin and end in milliseconds of its clock."""
        now_ms, until_ms = lock
        ghost = self._ghosts[led.key]
        is_newest = led.leader_epoch >= ghost.read_epoch and led.core is not None
        is_newest = is_newest and led.core is not None and led.core.state_epoch == ghost.state_epoch
        holder = _Holder(led, wanted.member_id, until_ms)
        for each in ranges:
            for offset in range(each.first_offset, each.last_offset + 1):
                self._findings.count("records acquired")
                before = ghost.holders.get(offset)
                if before is not None and before.led is led:
                    self._findings.check(
                        now_ms >= before.until_ms - MARGIN_MS,
                        lambda before=before, offset=offset: (  # type: ignore[misc]
                            f"{_named(led.key)}: offset {offset} is acquired by {wanted.member_id} and by"
                            f" {before.member} at once"
                        ),
                    )
                self._check_count(ghost, led, (offset, each.delivery_count), wanted.delivery_count_limit)
                if is_newest:
                    self._check_stored(ghost, led.key, offset, each.delivery_count)
                ghost.holders[offset] = holder
                ghost.counts[offset] = max(each.delivery_count, ghost.counts.get(offset, 0))

    def renewal_asked(self, key: SharePartitionKey, ranges: Iterable[tuple[int, int]]) -> None:
        """Their locks may last longer."""
        ghost = self._ghosts[key]
        for first, last in ranges:
            for offset in [each for each in ghost.holders if first <= each <= last]:
                del ghost.holders[offset]

    def _check_count(self, ghost: _Ghost, led: LedSharePartition, record: tuple[int, int], limit: int) -> None:
        offset, count = record
        most = ghost.counts.get(offset, 0) + 1
        self._findings.check(
            1 <= count <= min(limit, most),
            lambda: (
                f"{_named(led.key)}: offset {offset} is delivered with count {count}; the limit is {limit}, and it was"
                f" {most - 1} at most"
            ),
        )

    def _check_stored(self, ghost: _Ghost, key: SharePartitionKey, offset: int, count: int) -> None:
        self._findings.check(
            offset >= ghost.start_offset,
            lambda: f"{_named(key)}: offset {offset} is delivered; start offset {ghost.start_offset} is stored",
        )
        cell = ghost.cells.get(offset)
        if cell is not None:
            self._findings.check(
                cell.state == RecordState.AVAILABLE and count > cell.deliveries,
                lambda: f"{_named(key)}: offset {offset} is delivered with count {count}; {cell} is stored",
            )

    # ---- rest

    def not_at_rest(self, brokers: Iterable[BrokerParts]) -> str:
        """A record that is still acquired; empty if there is none."""
        for broker in brokers:
            for led in broker.shares.partitions:
                for first, last, state, _ in led.core.spans() if led.core is not None else ():
                    if state is RecordState.ACQUIRED:
                        return f"{_named(led.key)}: offsets {first} to {last} are acquired"
        return ""

    def check_agreement(self, brokers: Sequence[BrokerParts]) -> None:
        """Leaders and share coordinators, when nothing is acquired and nothing is being stored."""
        for broker in brokers:
            for led in broker.shares.partitions:
                if led.core is None or led._is_storing:
                    continue
                state = _stored(brokers, led.key)
                if state is not None and state.state_epoch == led.core.state_epoch:
                    self._findings.count("share partitions compared with their stored states")
                    for problem in _differences(led, state):
                        self._findings.report(f"{_named(led.key)}: {problem}")


def _differences(led: LedSharePartition, state: ShareState) -> Iterator[str]:
    core = led.core
    assert core is not None
    if state.start_offset > core.start_offset:
        yield f"the stored start offset is {state.start_offset}, that of the leader {core.start_offset}"
    live = {
        offset: _Cell(count, int(each))
        for first, last, each, count in core.spans()
        for offset in range(first, last + 1)
    }
    for offset, cell in _cells(state.batches):
        here = live.get(offset)
        if here is None:
            if core.start_offset <= offset < core.end_offset:
                yield f"offset {offset} is stored as {cell}, and its leader does not have it"
            continue

    cells = dict(_cells(state.batches))
    for offset, here in live.items():
        stored = cells.get(offset)
        if here.state == RecordState.ACKNOWLEDGED and (stored is None or not RecordState(stored.state).is_terminal):
            yield f"offset {offset} is acknowledged at its leader, and stored as {stored}"


def _stored(brokers: Sequence[BrokerParts], key: SharePartitionKey) -> ShareState | None:
    """None if no coordinator has it."""
    for broker in brokers:
        try:
            shard = broker.coordination.shares.shard(key.coordinator_key)
        except KafkaError:
            continue
        stored = shard.machine._states.get(key)
        return None if stored is None else stored.state()
    return None


def _cells(batches: Iterable[StateBatch]) -> Iterator[tuple[int, _Cell]]:
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            yield offset, _Cell(batch.delivery_count, batch.state)


def _offsets(batches: Iterable[StateBatch]) -> Iterator[int]:
    return (offset for offset, _ in _cells(batches))


def _named(key: SharePartitionKey) -> str:
    return f"share partition {key.coordinator_key}"
