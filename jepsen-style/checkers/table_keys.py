"""Checks the last value of each key: the workload `table`.

A log is compacted, so a reader may miss what a later record of the same key has made void, and nothing else. In the
readings to the end, after the cluster was healed,

- the last record of a key is the acknowledged write with the highest offset, or a later one whose fate is unknown:
  else `lost-write`, and for a key that was deleted and is back as well, unless the reading took so long that the
  tombstone may have gone since the older record was read;
- nothing stands at an offset where something else was acknowledged: `inconsistent-offsets`;
- nothing was read that nobody wrote (`unexpected-read`) or whose write surely failed (`G1a`). The writes of an aborted
  transaction failed, also those that were acknowledged: an aborted tombstone is known by its offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from checkers.attempts import Attempt, attempts
from checkers.readings import concluded, readings_of
from checkers.verdict import Finding, Verdict
from operations import Place


class _Entry(NamedTuple):
    key: int
    value: int | None
    reader: int
    """The last `i` of the reading."""


TOMBSTONES_NS = 5_000_000_000
"""Readings that took longer may have missed a tombstone: they stay for `delete.retention.ms`, a little longer."""


@dataclass(slots=True)
class _Log:
    """The records that the readings of one partition to its end were given."""

    entries: dict[int, _Entry] = field(default_factory=dict)
    reached: int = 0
    """Everything below was read from the beginning on."""
    end: int | None = None
    """The end that the broker named; None if nobody has read up to it."""
    began_ns: int = 0
    ended_ns: int = 0


class TableChecker:
    name = "table"

    """Checker for the options of one run."""

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        writes = [write for attempt in whole for write in _writes_of(attempt)]
        readings = readings_of(whole)
        findings = list(_strangers(writes, readings))
        by_place: dict[Place, list[Attempt]] = {}
        for write in writes:
            by_place.setdefault(Place(*write.asked["place"]), []).append(write)
        complete, deleted = 0, 0
        for place, some in sorted(by_place.items()):
            logs = [log for log in _finals(readings, place) if log.end is not None and log.reached >= log.end]
            complete += bool(logs)
            for log in logs:
                findings += _lost(place, some, log)
            deleted += sum(write.asked["value"] is None for write in some)
        figures = {
            "written": sum(write.type == "ok" for write in writes),
            "unknown": sum(write.type == "info" for write in writes),
            "deletions": deleted,
            "aborted": sum(attempt.f == "txn" and attempt.type == "fail" for attempt in whole),
            "partitions read": complete,
        }
        return concluded(history, findings, figures, complete=complete == len(by_place))


def _writes_of(attempt: Attempt) -> list[Attempt]:
    """The writes of one operation; those of a transaction have its outcome."""
    if attempt.f == "write":
        return [attempt]
    if attempt.f != "txn":
        return []
    return [attempt._replace(asked=write, value=write) for write in attempt.value["writes"]]


def _finals(readings: Sequence[Attempt], place: Place) -> Iterator[_Log]:
    """The final reading of each process, put together from its pieces."""
    logs: dict[int, _Log] = {}
    for reading in readings:
        if not (reading.asked and reading.asked.get("final")):
            continue
        log = logs.setdefault(reading.process, _Log(began_ns=reading.began_ns))
        log.ended_ns = reading.ended_ns
        for topic, partition, start, end, records in reading.value["parts"]:
            if Place(topic, partition) != place or start > log.reached:
                continue
            for offset, (key, value) in records:
                log.entries[offset] = _Entry(key, value, reading.evidence[-1])
            log.reached = max(log.reached, end)
        if reading.type == "ok" and reading.value.get("end"):
            ends = {Place(topic, partition): end for topic, partition, end in reading.value["ends"]}
            log.end = ends.get(place, log.end)
    yield from logs.values()


def _lost(place: Place, writes: Sequence[Attempt], log: _Log) -> Iterator[Finding]:
    """Keys whose last record is not the one that it must be."""
    read: dict[int, tuple[int, _Entry]] = {}
    for offset, entry in sorted(log.entries.items()):
        read[entry.key] = (offset, entry)
    acknowledged: dict[int, tuple[int, Attempt]] = {}
    for write in writes:
        known = write.value.get("offset") if write.type == "ok" else None
        if known is not None and known > acknowledged.get(write.asked["key"], (-1, write))[0]:
            acknowledged[write.asked["key"]] = (known, write)
    for key, (offset, write) in sorted(acknowledged.items()):
        found, value = read.get(key), write.asked["value"]
        if found is None:
            if value is not None:
                yield _finding(place, write, f"key {key} of {place} is not there; {value} was written at {offset}")
        elif found[0] < offset and (value is not None or log.ended_ns - log.began_ns < TOMBSTONES_NS):
            last = f"the last record of key {key} of {place} is {found[1].value} at {found[0]}"
            yield _finding(place, write, f"{last}; {value} was written at {offset}", found[1].reader)


def _finding(place: Place, write: Attempt, text: str, *readers: int) -> Finding:
    return Finding("lost-write", str(place), sorted({*write.evidence, *readers}), text)


def _strangers(writes: Sequence[Attempt], readings: Sequence[Attempt]) -> Iterator[Finding]:
    """Records that cannot be in the log."""
    at: dict[tuple[Place, int], Attempt] = {}
    wrote: dict[tuple[Place, int, int | None], list[Attempt]] = {}
    for write in writes:
        place = Place(*write.asked["place"])
        wrote.setdefault((place, write.asked["key"], write.asked["value"]), []).append(write)
        # An aborted write has its offset, too, if it was acknowledged.
        offset = write.value.get("offset") if write.value else None
        if offset is not None and write.type in ("ok", "fail"):
            at[place, offset] = write
    seen: set[tuple[Place, int, int, int | None]] = set()
    for reading in readings:
        for topic, partition, _, _, records in reading.value["parts"]:
            place = Place(topic, partition)
            for offset, (key, value) in records:
                if (place, offset, key, value) in seen:
                    continue
                seen.add((place, offset, key, value))
                yield from _judge(reading, (place, offset), (key, value), at, wrote)


def _judge(
    reading: Attempt,
    where: tuple[Place, int],
    record: tuple[int, int | None],
    at: dict[tuple[Place, int], Attempt],
    wrote: dict[tuple[Place, int, int | None], list[Attempt]],
) -> Iterator[Finding]:
    place, offset = where
    key, value = record
    evidence = reading.evidence[-1]
    here = at.get(where)
    if here is not None and (here.asked["key"], here.asked["value"]) != record:
        text = f"key {key} with {value} was read at {offset} of {place}, where another write was acknowledged"
        yield Finding("inconsistent-offsets", str(place), sorted({*here.evidence, evidence}), text)
    elif here is not None and here.type == "fail":
        text = f"key {key} with {value} was read at {offset} of {place}, though its transaction was aborted"
        yield Finding("G1a", str(place), sorted({*here.evidence, evidence}), text)
        return
    known = wrote.get((place, key, value), [])
    if not known:
        text = f"key {key} with {value} at {offset} of {place} was never written"
        yield Finding("unexpected-read", str(place), [evidence], text)
    elif all(write.type == "fail" for write in known):
        text = f"key {key} with {value} was read from {place}, though writing it failed"
        yield Finding("G1a", str(place), sorted({*known[0].evidence, evidence}), text)
