"""Logs of partitions as readers saw them: one per partition, merged from all readings, with contradictions.

A reading's value is `{"parts": [[topic, partition, from, to, [[offset, value], ...]], ...], "end": ...}`: everything
that the reader was given of the offsets `from` up to `to`, `to` left out. A read_committed reader is given nothing that
is still undecided, so that a record which one reader saw is missing in no other reading that went past it. `end` is
true if every part reached the end that the broker named, `"quiet"` if the library does not report that it passed the
last offsets (a transaction's marker) and no more records came. `ends` are those that the broker named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from checkers.attempts import Attempt
from checkers.budget_of_loss import budget_of
from checkers.gathering import Gathered
from checkers.verdict import Finding, Verdict
from histories.history import History
from operations import Place

_SHOWN = 20
"""Findings of one kind and partition that are reported one by one."""


@dataclass(slots=True)
class Logs:
    """By partition; values are JSON's, with tuples for lists."""

    values: dict[Place, dict[int, Any]] = field(default_factory=dict)
    """Values by offset, as far as any reader got them; in the order of offsets."""
    others: dict[Place, list[tuple[int, Any]]] = field(default_factory=dict)
    """Other values that readers got at these offsets; each is a finding."""
    read_by: dict[Place, dict[int, int]] = field(default_factory=dict)
    """The first reading (its last `i`) that was given it."""
    offset_of: dict[Place, dict[Any, int]] = field(default_factory=dict)
    """The first offset of each value."""
    complete: frozenset[Place] = frozenset()
    """Read from the start to the end when the cluster was healed: what is not there is not in the log."""
    findings: list[Finding] = field(default_factory=list)
    """`inconsistent-offsets`, `skipped-record`, `lost-write`, `unseen`."""

    def found(self) -> dict[tuple[Place, Any], list[int]]:
        """The offsets of each value."""
        offsets: dict[tuple[Place, Any], list[int]] = {}
        for place, log in self.values.items():
            for offset, value in (*log.items(), *self.others.get(place, ())):
                offsets.setdefault((place, value), []).append(offset)
        return offsets


def frozen(value: Any) -> Any:
    """Tuples for lists."""
    if not isinstance(value, list | tuple):
        return value
    return tuple([frozen(each) if isinstance(each, list | tuple) else each for each in value])


def gather(readings: Iterable[Attempt]) -> Logs:
    """Merge readings of one isolation (see `readings_of`), in the order of their invocations, whatever their
    outcome."""
    logs = Logs()
    parts: list[tuple[Attempt, Place, int, int, Sequence[Any]]] = []
    covered: dict[tuple[int, Place], int] = {}
    last: list[tuple[Attempt, Place, int]] = []
    as_given: dict[Place, dict[int, Any]] = {}
    for reading in readings:
        final = bool(reading.asked and reading.asked.get("final"))
        for topic, partition, start, end, records in reading.value["parts"]:
            place = Place(topic, partition)
            parts.append((reading, place, start, end, records))
            _take(logs, as_given, reading, place, records)
            if start == 0 or covered.get((reading.process, place)) == start:
                covered[reading.process, place] = end
                if final and reading.type == "ok" and reading.value.get("end"):
                    last.append((reading, place, end))
    for place in logs.values:
        log = logs.values[place] = dict(sorted(logs.values[place].items()))
        logs.offset_of[place] = {value: offset for offset, value in reversed(log.items())}
    logs.complete = frozenset(place for reading, place, end in last if not _not_given(logs, reading, place, end))
    _find_unseen(logs, last)
    _find_holes(logs, parts)
    _find_vanished(logs, parts)
    return logs


def _take(
    logs: Logs, given_before: dict[Place, dict[int, Any]], reading: Attempt, place: Place, records: Sequence[Any]
) -> None:
    """Most records are read by many: those are compared as they were given, and made into tuples once."""
    log = logs.values.setdefault(place, {})
    read_by = logs.read_by.setdefault(place, {})
    reader = reading.evidence[-1]
    as_given = given_before.setdefault(place, {})
    for offset, given in records:
        if offset not in as_given:
            as_given[offset] = given
            log[offset] = frozen(given)
            read_by[offset] = reader
        elif as_given[offset] != given:
            other = offset, frozen(given)
            if other not in logs.others.setdefault(place, []):
                logs.others[place].append(other)
            logs.findings.append(
                Finding(
                    "inconsistent-offsets",
                    str(place),
                    sorted({read_by[offset], reader}),
                    f"offset {offset} of {place} was {log[offset]} for one reader and {given} for another",
                )
            )


def _find_holes(logs: Logs, parts: Sequence[tuple[Attempt, Place, int, int, Sequence[Any]]]) -> None:
    known = {place: np.fromiter(log, np.int64, len(log)) for place, log in logs.values.items()}
    shown: dict[Place, int] = {}
    for reading, place, start, end, records in parts:
        offsets = known[place]
        low, high = (int(bound) for bound in np.searchsorted(offsets, (start, end)))
        given = np.unique(np.fromiter((record[0] for record in records), np.int64, len(records)))
        if len(given) == high - low:
            continue
        missing = np.setdiff1d(offsets[low:high], given, assume_unique=True)
        for offset in missing.tolist():
            if (count := shown.get(place, 0)) >= _SHOWN:
                break
            shown[place] = count + 1
            logs.findings.append(
                Finding(
                    "skipped-record",
                    str(place),
                    sorted({logs.read_by[place][offset], reading.evidence[-1]}),
                    f"a reader went past offset {offset} of {place} without being given {logs.values[place][offset]}",
                )
            )


def _not_given(logs: Logs, reading: Attempt, place: Place, end: int) -> list[int]:
    """Offsets of records that other readers got after `end`, where this reader stopped although the broker named a
    later end: it is stuck, and proves nothing about the log after it."""
    if reading.value.get("end") != "quiet":
        return []
    named = next((at for topic, index, at in reading.value.get("ends", ()) if Place(topic, index) == place), end)
    return [offset for offset in logs.values[place] if end <= offset < named]


def _find_unseen(logs: Logs, last: Sequence[tuple[Attempt, Place, int]]) -> None:
    for reading, place, end in last:
        if missing := _not_given(logs, reading, place, end):
            text = f"a reader got nothing from offset {end} of {place} on, and others {len(missing)} records"
            evidence = sorted({logs.read_by[place][missing[0]], reading.evidence[-1]})
            logs.findings.append(Finding("unseen", str(place), evidence, text))


def _find_vanished(logs: Logs, parts: Sequence[tuple[Attempt, Place, int, int, Sequence[Any]]]) -> None:
    """Read once, and behind the end of a log that was read to its end later."""
    reported: set[tuple[Place, int]] = set()
    for reading, place, _, end, _ in parts:
        if place not in logs.complete or reading.type != "ok" or not reading.value.get("end"):
            continue
        if not (reading.asked and reading.asked.get("final")):
            continue
        stuck = set(_not_given(logs, reading, place, end))
        for offset, value in reversed(logs.values[place].items()):
            if offset < end:
                break
            if offset in stuck:
                continue
            read_by = logs.read_by[place][offset]
            if read_by < reading.began and (place, offset) not in reported:
                reported.add((place, offset))
                sentence = f"{value} was read at offset {offset} of {place}, whose log ends at {end}"
                evidence = sorted({read_by, reading.evidence[-1]})
                logs.findings.append(Finding("lost-write", str(place), evidence, sentence))


def concluded(history: History, findings: Sequence[Finding], figures: Mapping[str, Any], *, complete: bool) -> Verdict:
    """`unknown` where nothing was found, and not everything was read. What the faults excuse is legal."""
    gathered = Gathered()
    for finding in budget_of(history).excused(findings):
        gathered.add(finding)
    verdict = gathered.verdict(figures)
    if complete or verdict.valid == "false":
        return verdict
    return replace(verdict, valid="unknown", unknown_because="no reader reached every end")


def readings_of(whole: Iterable[Attempt]) -> list[Attempt]:
    """Completed readings among a history's attempts."""
    return [attempt for attempt in whole if isinstance(attempt.value, dict) and "parts" in attempt.value]
