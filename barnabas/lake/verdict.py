"""Core: compares the offsets in a table with those in its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from barnabas.lake.progress import Progress

Offsets = npt.NDArray[np.int64]
_NONE: Offsets = np.array([], dtype=np.int64)
MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """Offsets in the table and in the topic, by partition."""

    progress: Progress
    table: Mapping[int, Offsets]
    dead_letters: Mapping[int, Offsets]
    log: Mapping[int, Offsets]
    """Offsets of committed records from `starts` on."""
    starts: Mapping[int, int]
    """Where the log begins now: what is before cannot be compared."""
    is_compacted: bool = False
    """Records may disappear from the topic, but not from the table."""


@dataclass(frozen=True, slots=True)
class Verdict:
    records: int
    """Rows of the table."""
    compared: int
    """Those whose offset is still in the log."""
    dead_letters: int
    findings: Sequence[str] = field(default_factory=tuple)
    """One line for each kind of fault in each partition; empty if all is right."""


def judge(evidence: Evidence) -> Verdict:
    """Each committed record below the table's offsets is in it once, or a dead letter; and nothing else is."""
    findings: list[str] = []
    compared = 0
    partitions = sorted({*evidence.progress.offsets, *evidence.table})
    for partition in partitions:
        begin = evidence.starts.get(partition, 0)
        end = evidence.progress.offsets.get(partition, 0)
        rows = np.sort(evidence.table.get(partition, _NONE))
        dead = np.unique(evidence.dead_letters.get(partition, _NONE))
        log = evidence.log.get(partition, _NONE)
        log = log[log < end]
        own = np.unique(rows)
        in_log = own[(own >= begin) & (own < end)]
        compared += len(in_log)
        name = f"{evidence.progress.topic}-{partition}"
        missing = np.setdiff1d(np.setdiff1d(log, own), dead)
        for skipped_from, skipped_until in evidence.progress.skipped.get(partition, ()):
            missing = missing[(missing < skipped_from) | (missing >= skipped_until)]
        _add(findings, name, "twice or more", rows[1:][rows[1:] == rows[:-1]])
        _add(findings, name, "missing", missing)
        _add(findings, name, "beyond the offsets of the last commit", own[own >= end])
        if not evidence.is_compacted:
            _add(findings, name, "not committed in the topic", np.setdiff1d(in_log, log))
    return Verdict(
        sum(len(rows) for rows in evidence.table.values()),
        compared,
        sum(len(np.unique(each)) for each in evidence.dead_letters.values()),
        findings,
    )


def _add(findings: list[str], name: str, fault: str, offsets: Offsets) -> None:
    if len(offsets):
        shown = ", ".join(str(offset) for offset in offsets[:MOST_SHOWN])
        findings.append(
            f"{name}: {len(offsets)} records {fault}: offset {shown}{' …' if len(offsets) > MOST_SHOWN else ''}"
        )
