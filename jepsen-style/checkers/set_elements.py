"""Checks the fate of each added element: the workload `set`.

An element is *known* from its acknowledgement on, or from the first reading that has it. It is

- lost if it is known and a reading to the end, after the cluster was healed, does not have it: `unseen` if no reading
  ever had it (it was only acknowledged), else `lost-write`;
- stale if a reading that began after its acknowledgement ended before it, and a later one had it: `stale-read`. That is
  legal: a leader that was cut off from its cluster continues to answer readers, and a new one may know a lower high
  watermark until its followers have fetched (KIP-207); the figures show for how long;
- `duplicate` if it stands in the log twice; a bug if producers are idempotent;
- `skipped-record` and `inconsistent-offsets`: see `checkers.readings`;
- `G1a` if it was read although adding it surely failed, `unexpected-read` if it was never added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from checkers.attempts import NEVER, Attempt, attempts
from checkers.readings import Logs, concluded, gather, readings_of
from checkers.verdict import Finding, Verdict
from operations import Place


class ElementsChecker:
    name = "set"

    """Checker for the options of one run."""

    def __init__(self, *, idempotence: bool = True) -> None:
        self._idempotence = idempotence

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        adds = [attempt for attempt in whole if attempt.f == "add"]
        readings = readings_of(whole)
        logs = gather(readings)
        found = logs.found()
        findings = [*logs.findings, *_unwritten(adds, logs)]
        never_read = duplicates = 0
        for add in adds:
            record = place, value = Place(*add.asked["place"]), add.asked["element"]
            offsets = found.get(record, [])
            if not offsets and add.type == "ok" and place in logs.complete:
                never_read += 1
                findings.append(
                    Finding("unseen", str(place), add.evidence, f"{value} was added to {place} and is not there")
                )
            if offsets and add.type == "fail":
                readers = [logs.read_by[place][offset] for offset in offsets]
                text = f"{value} was read from {place}, though adding it failed"
                findings.append(Finding("G1a", str(place), sorted({*add.evidence, *readers}), text))
            if len(offsets) > 1:
                duplicates += 1
                text = f"{value} is in {place} at the offsets {offsets}"
                readers = [logs.read_by[place][offset] for offset in offsets]
                evidence = sorted({*add.evidence, *readers})
                findings.append(Finding("duplicate", str(place), evidence, text, legal=not self._idempotence))
            acknowledged = add.value.get("offset") if add.type == "ok" else None
            if offsets and acknowledged is not None and acknowledged not in offsets:
                text = f"{value} was acknowledged at offset {acknowledged} of {place}, and is at {offsets}"
                findings.append(Finding("inconsistent-offsets", str(place), add.evidence, text))
        stale, longest_ns, worst = _staleness(adds, readings)
        if worst is not None:
            text = f"{stale} readings ended before elements that were known; the longest {longest_ns / 1e9:.3f} s later"
            findings.append(Finding("stale-read", "set", worst, text, legal=True))
        places = {Place(*add.asked["place"]) for add in adds}
        figures = {
            "added": sum(add.type == "ok" for add in adds),
            "unknown": sum(add.type == "info" for add in adds),
            "read": len(found),
            "never read": never_read,
            "lost": sum(finding.anomaly == "lost-write" for finding in logs.findings),
            "duplicated": duplicates,
            "stale readings": stale,
            "longest staleness ms": round(longest_ns / 1e6, 3),
        }
        return concluded(history, findings, figures, complete=places <= logs.complete)


def _unwritten(adds: Sequence[Attempt], logs: Logs) -> list[Finding]:
    added = {(Place(*add.asked["place"]), add.asked["element"]) for add in adds}
    return [
        Finding("unexpected-read", str(place), [logs.read_by[place][offset]], f"{value} in {place} was never added")
        for place, log in logs.values.items()
        for offset, value in log.items()
        if (place, value) not in added
    ]


def _staleness(adds: Sequence[Attempt], readings: Sequence[Attempt]) -> tuple[int, int, list[int] | None]:
    """Number of partition ends returned to readings that began when an offset at or behind that end had been
    acknowledged; how long before they began at most, and the evidence for that."""
    acks: dict[Place, list[tuple[int, int, int]]] = {}
    for add in adds:
        if add.type == "ok" and add.value.get("offset") is not None and add.ended != NEVER:
            acks.setdefault(Place(*add.asked["place"]), []).append((add.ended, add.value["offset"], add.ended_ns))
    orders = {place: _Acks(found) for place, found in acks.items()}
    count, longest_ns, worst = 0, 0, None
    for reading in readings:
        for topic, partition, end in reading.value["ends"]:
            if (order := orders.get(Place(topic, partition))) is None:
                continue
            known = order.first_beyond(reading.began, end)
            if known is not None:
                count += 1
                since_ns = reading.began_ns - known[1]
                if worst is None or since_ns > longest_ns:
                    longest_ns, worst = since_ns, [known[0], *reading.evidence]
    return count, longest_ns, worst


class _Acks:
    """Acknowledgements of one partition, in order of arrival."""

    def __init__(self, found: list[tuple[int, int, int]]) -> None:
        found.sort()
        self._ended = np.asarray([ack[0] for ack in found], np.int64)
        self._highest = np.maximum.accumulate(np.asarray([ack[1] for ack in found], np.int64))
        self._ended_ns = [ack[2] for ack in found]

    def first_beyond(self, before: int, end: int) -> tuple[int, int] | None:
        """The first acknowledgement, completed before operation `before`, of an offset at or after `end`: its `i` and
        when it came."""
        index = int(np.searchsorted(self._highest, end))
        if index < len(self._ended) and int(self._ended[index]) < before:
            return int(self._ended[index]), self._ended_ns[index]
        return None
