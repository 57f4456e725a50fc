"""Core: audits one partition by the batch headers of all its replicas; tables in, an account out.

The audit trusts no broker, only the files below the high watermark. Each offset must be accounted for: it is a record,
part of an aborted transaction, a marker, removed by compaction, or lost. Besides:

- replicas hold the same bytes, except where compaction has run, which each broker does independently
- each producer's sequences have no gap and no repetition
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from barnabas.protocol.records.batch import MAX_INT32, NO_SEQUENCE

Ints = npt.NDArray[np.int64]
Interval = tuple[int, int]
"""(first offset, offset after the last)"""

LOST, DUPLICATE, HOLE, DIVERGENT, MISSING = "lost", "duplicate", "sequence hole", "divergent", "missing"
_MAX_FINDINGS = 20
"""Maximum number of findings of one kind and partition that are listed."""


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """A replica apart from its batches."""

    node_id: int
    start_offset: int
    end_offset: int
    """The offset after its last batch, at most the high watermark."""
    cleaned_offset: int
    """Compaction may have removed records below it."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    topic: str
    partition: int
    high_watermark: int
    replicas: tuple[ReplicaFacts, ...]

    @property
    def start_offset(self) -> int:
        """From here on every replica must have everything."""
        return max((replica.start_offset for replica in self.replicas), default=0)


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation."""

    kind: str
    topic: str
    partition: int
    offset: int
    detail: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.kind} at offset {self.offset}: {self.detail}"


@dataclass(slots=True)
class Account:
    """The account of one partition."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records: int = 0
    aborted: int = 0
    """Records of aborted transactions."""
    markers: int = 0
    compacted: int = 0
    lost: int = 0
    batches: int = 0
    producers: int = 0
    digest: str = ""
    """Digest of all bytes from `compared_from` on, in one replica; a finding shows where others differ."""
    compared_from: int = 0
    behind: dict[int, int] = field(default_factory=dict)
    """Nodes whose logs end before the high watermark, and their ends: out of sync, or stopped earlier than others."""
    findings: list[Finding] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    """Number of violations by kind; `findings` lists at most _MAX_FINDINGS of each."""

    def add(self, kind: str, offset: int, detail: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self.kinds[kind] <= _MAX_FINDINGS:
            self.findings.append(Finding(kind, self.topic, self.partition, offset, detail))


class _Batches:
    """Columns of one replica's batches, in the order of base offsets."""

    def __init__(self, columns: Mapping[str, Any], chosen: npt.NDArray[np.bool_]) -> None:
        order = np.argsort(columns["base_offset"][chosen], kind="stable")

        def column(name: str) -> Any:
            return columns[name][chosen][order]

        self.base = column("base_offset")
        self.last = column("last_offset")
        self.records = np.maximum(column("records"), 0)
        self.digest = column("digest")
        self.producer = column("producer_id")
        self.epoch = column("producer_epoch")
        self.first_sequence = column("base_sequence")
        self.last_sequence = column("last_sequence")
        self.is_marker = column("is_marker")
        self.aborted = column("aborted")

    def __len__(self) -> int:
        return len(self.base)


def columns_of(table: Any) -> dict[str, Any]:
    """The columns of a pyarrow table of `batch_rows.SCHEMA`."""
    names = ("node", "base_offset", "last_offset", "records", "digest", "producer_id", "producer_epoch")
    columns = {name: _numbers(table, name) for name in (*names, "base_sequence", "last_sequence")}
    columns["is_marker"] = table.column("marker").is_valid().to_numpy(zero_copy_only=False)
    columns["aborted"] = table.column("aborted").to_numpy(zero_copy_only=False).astype(bool)
    return columns


def _numbers(table: Any, name: str) -> Ints:
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), dtype=np.int64)


def judge(facts: PartitionFacts, columns: Mapping[str, Any]) -> Account:
    """Audit a partition by its batches."""
    account = Account(facts.topic, facts.partition, facts.start_offset, facts.high_watermark)
    # Batches written after the facts were gathered do not count.
    counts = columns["base_offset"] < facts.high_watermark
    replicas = [
        (replica, _Batches(columns, counts & (columns["node"] == replica.node_id))) for replica in facts.replicas
    ]
    if not replicas:
        return account
    for replica, _ in replicas:
        if replica.end_offset < facts.high_watermark:
            account.behind[replica.node_id] = replica.end_offset
    # The longest replica is counted; the others are compared with it.
    chosen, batches = max(replicas, key=lambda each: (each[0].end_offset, -each[0].start_offset))
    account.start_offset = start = chosen.start_offset
    _count(account, chosen, batches)
    holes = _intersection([_holes(replica, each, start, facts.high_watermark) for replica, each in replicas])
    _judge_holes(account, holes)
    _judge_sequences(account, chosen, batches)
    _compare(account, replicas, chosen, batches, facts)
    return account


def _count(account: Account, chosen: ReplicaFacts, batches: _Batches) -> None:
    account.batches = len(batches)
    data = ~batches.is_marker
    account.records = int(batches.records[data & ~batches.aborted].sum())
    account.aborted = int(batches.records[data & batches.aborted].sum())
    account.markers = int(np.count_nonzero(batches.is_marker))
    if len(batches) and batches.base[0] < account.start_offset:
        # DeleteRecords moved the log start into this batch.
        account.start_offset = int(batches.base[0])
    account.producers = len(np.unique(batches.producer[batches.producer >= 0]))
    inside = batches.last - batches.base + 1 - np.where(batches.is_marker, 1, batches.records)
    account.compacted = int(inside.sum())
    account.compacted += sum(end - start for start, end in _gaps(batches, chosen) if end <= chosen.cleaned_offset)
    if (inside > 0).any() and not chosen.cleaned_offset:
        for slot in np.flatnonzero(inside > 0).tolist():
            detail = f"the batch up to {batches.last[slot]} has only {batches.records[slot]} records"
            account.add(LOST, int(batches.base[slot]), f"{detail}, and the log was never compacted")
        account.lost += account.compacted
        account.compacted = 0


def _gaps(batches: _Batches, replica: ReplicaFacts) -> list[Interval]:
    """Offsets before the first batch and between batches; not those after the last batch."""
    if not len(batches):
        return []
    before = np.concatenate(([replica.start_offset - 1], np.maximum.accumulate(batches.last)))[:-1]
    found = np.flatnonzero(batches.base - before > 1).tolist()
    return [(int(before[slot]) + 1, int(batches.base[slot])) for slot in found]


def _holes(replica: ReplicaFacts, batches: _Batches, start: int, end: int) -> list[Interval]:
    """Offsets of [start, end) that this replica lacks and that compaction has not removed. Retention does not excuse
    them: in other replicas it may start later."""
    gaps = [(max(low, replica.cleaned_offset), high) for low, high in _gaps(batches, replica)]
    gaps = [(start, min(replica.start_offset, end)), *gaps, (max(replica.end_offset, start), end)]
    clipped = [(max(low, start), min(high, end)) for low, high in gaps]
    return [(low, high) for low, high in clipped if low < high]


def _intersection(of_replicas: Sequence[list[Interval]]) -> list[Interval]:
    """Offsets that no replica has."""
    common = of_replicas[0]
    for other in of_replicas[1:]:
        pairs = [(max(a[0], b[0]), min(a[1], b[1])) for a in common for b in other]
        common = sorted({(low, high) for low, high in pairs if low < high})
    return common


def _judge_holes(account: Account, holes: Sequence[Interval]) -> None:
    for low, high in holes:
        account.lost += high - low
        account.add(LOST, low, f"no replica has offsets {low} to {high - 1}, which are below the high watermark")


def _judge_sequences(account: Account, replica: ReplicaFacts, batches: _Batches) -> None:
    chosen = np.flatnonzero((batches.producer >= 0) & (batches.first_sequence != NO_SEQUENCE) & ~batches.is_marker)
    if not len(chosen):
        return
    order = chosen[np.lexsort((batches.base[chosen], batches.epoch[chosen], batches.producer[chosen]))]
    earlier, later = order[:-1], order[1:]
    same = (batches.producer[earlier] == batches.producer[later]) & (batches.epoch[earlier] == batches.epoch[later])
    # Sequences have 31 bits and wrap around; steps are small, forwards or back.
    step = (batches.first_sequence[later] - batches.last_sequence[earlier] - 1) & MAX_INT32
    goes_back = same & (step > MAX_INT32 // 2)
    leaps = same & (step > 0) & ~goes_back & (batches.base[later] > replica.cleaned_offset)
    for slot in np.flatnonzero(goes_back).tolist():
        account.add(DUPLICATE, int(batches.base[later[slot]]), _sequences(batches, earlier[slot], later[slot]))
    for slot in np.flatnonzero(leaps).tolist():
        account.add(HOLE, int(batches.base[later[slot]]), _sequences(batches, earlier[slot], later[slot]))


def _sequences(batches: _Batches, earlier: int, later: int) -> str:
    return (
        f"producer {batches.producer[later]} in epoch {batches.epoch[later]} wrote sequences"
        f" {batches.first_sequence[later]} to {batches.last_sequence[later]} after {batches.first_sequence[earlier]}"
        f" to {batches.last_sequence[earlier]} at offset {batches.base[earlier]}"
    )


def _compare(
    account: Account,
    replicas: Sequence[tuple[ReplicaFacts, _Batches]],
    chosen: ReplicaFacts,
    batches: _Batches,
    facts: PartitionFacts,
) -> None:
    """Compares replicas byte by byte, above the offsets that any of them has compacted."""
    start = max(replica.start_offset for replica in facts.replicas)
    cleaned = max(replica.cleaned_offset for replica in facts.replicas)
    account.compared_from = start = max(start, cleaned)
    part = batches.base >= start
    account.digest = hashlib.sha256(batches.digest[part].astype(">i8").tobytes()).hexdigest()[:16]
    for replica, other in replicas:
        if replica is chosen:
            continue
        end = min(replica.end_offset, chosen.end_offset)
        mine = (batches.base >= start) & (batches.base < end)
        its = (other.base >= start) & (other.base < end)
        nodes = (replica.node_id, chosen.node_id)
        theirs, ours = (other.base[its], other.digest[its]), (batches.base[mine], batches.digest[mine])
        _compare_two(account, nodes, theirs, ours)


def _compare_two(account: Account, nodes: tuple[int, int], its: tuple[Ints, Ints], mine: tuple[Ints, Ints]) -> None:
    if np.array_equal(its[0], mine[0]) and np.array_equal(its[1], mine[1]):
        return
    _, its_slots, my_slots = np.intersect1d(its[0], mine[0], return_indices=True)
    differ = its_slots[its[1][its_slots] != mine[1][my_slots]]
    for slot in differ.tolist():
        account.add(DIVERGENT, int(its[0][slot]), f"the batch on node {nodes[0]} differs from that on node {nodes[1]}")
    for one, other, nodes_ in ((its[0], mine[0], nodes), (mine[0], its[0], nodes[::-1])):
        for base in np.setdiff1d(one, other).tolist():
            account.add(MISSING, base, f"node {nodes_[0]} has a batch that starts there, node {nodes_[1]} has none")
