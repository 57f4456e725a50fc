"""Checks when and how often delayed records are delivered: the workload `delayed`.

- Every acknowledged record is read in the end, in the partition that its producer chose, or it is `undelivered`. One
  of unknown outcome may be. A record whose producer was refused is not (`G1a`).
- It is delivered once; `delivered-twice` otherwise, unless producers are not idempotent.
- Nobody reads it before its time: `early`. The time goes by the wall clock of the leader, so in runs with jumping
  clocks it is legal, and a record with a time by its producer's clock may be early by as much as these two differ.
- Of two records that wait in one partition at the same time, the one whose time comes first has the lower offset:
  `out-of-order`. The leader learns of a record at some time between the request and the acknowledgement, so only pairs
  count for which that makes no difference, nor that two leaders have two clocks.
- What readers get of the logs is consistent: see `checkers.readings`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.attempts import Attempt, attempts
from checkers.readings import Logs, concluded, gather, readings_of
from checkers.verdict import Finding, Verdict
from operations import Place

TOLERANCE_NS = 2_000_000
"""Clocks are read in milliseconds."""
SKEW_NS = 2_000_000_000
"""The clocks of two machines may differ by this much."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """One acknowledged record that was to be delivered later."""

    attempt: Attempt
    offset: int
    """Where it was delivered."""
    first_ns: int
    """Its time at the earliest."""
    last_ns: int
    """Its time at the latest."""


class DelayedChecker:
    name = "delayed"

    def __init__(self, *, idempotence: bool = True) -> None:
        self._idempotence = idempotence

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        sends = [attempt for attempt in whole if attempt.f == "send"]
        readings = readings_of(whole)
        logs = gather(readings)
        found = logs.found()
        clocks_jump = any(fault.kind == "clock" for fault in history.faults)
        findings = [*logs.findings, *self._fates(sends, logs, found), *_unknown(sends, logs)]
        seen = _first_seen(readings)
        # Two leaders go by two clocks: one writes the time down, and the other one delivers.
        margin_ns = SKEW_NS if history.faults else TOLERANCE_NS
        findings += _early(sends, seen, margin_ns, legal=clocks_jump)
        findings += _disorder(_waits(sends, found), margin_ns, legal=clocks_jump)
        late_ms = sorted(_lateness_ms(sends, seen))
        figures = {
            "sent": sum(send.type == "ok" for send in sends),
            "unknown": sum(send.type == "info" for send in sends),
            "delivered": len(found),
            "undelivered": sum(finding.anomaly == "undelivered" for finding in findings),
            "median ms until it was read": late_ms[len(late_ms) // 2] if late_ms else None,
        }
        places = {Place(*send.asked["place"]) for send in sends}
        return concluded(history, findings, figures, complete=places <= logs.complete)

    def _fates(
        self, sends: Sequence[Attempt], logs: Logs, found: dict[tuple[Place, Any], list[int]]
    ) -> Iterator[Finding]:
        for send in sends:
            place, value = Place(*send.asked["place"]), send.asked["value"]
            offsets = found.get((place, value), [])
            if not offsets and send.type == "ok" and place in logs.complete:
                text = f"{value} was to be delivered in {place} after {_delay_ms(send)} ms, and never was"
                yield Finding("undelivered", str(place), send.evidence, text)
            readers = [logs.read_by[place][offset] for offset in offsets]
            evidence = sorted({*send.evidence, *readers})
            if offsets and send.type == "fail":
                yield Finding("G1a", str(place), evidence, f"{value} is in {place}, though its producer was refused")
            if len(offsets) > 1:
                text = f"{value} was delivered at the offsets {offsets} of {place}"
                yield Finding("delivered-twice", str(place), evidence, text, legal=not self._idempotence)


def _delay_ms(send: Attempt) -> int:
    return 0 if send.asked["by"] == "none" else int(send.asked["delay_ms"])


def _unknown(sends: Sequence[Attempt], logs: Logs) -> Iterator[Finding]:
    sent = {(Place(*send.asked["place"]), send.asked["value"]) for send in sends}
    for place, log in logs.values.items():
        for offset, value in log.items():
            if (place, value) not in sent:
                text = f"{value} in {place} was never sent"
                yield Finding("unexpected-read", str(place), [logs.read_by[place][offset]], text)


def _first_seen(readings: Sequence[Attempt]) -> dict[tuple[Place, Any], Attempt]:
    """The reading that ended first of those with a record."""
    seen: dict[tuple[Place, Any], Attempt] = {}
    for reading in sorted(readings, key=lambda each: each.ended_ns):
        for topic, partition, _, _, records in reading.value["parts"]:
            for _, value in records:
                seen.setdefault((Place(topic, partition), value), reading)
    return seen


def _early(
    sends: Sequence[Attempt], seen: dict[tuple[Place, Any], Attempt], margin_ns: int, *, legal: bool
) -> Iterator[Finding]:
    for send in sends:
        place, value = Place(*send.asked["place"]), send.asked["value"]
        reading = seen.get((place, value))
        due_ns = send.began_ns + _delay_ms(send) * 1_000_000 - (SKEW_NS if send.asked["by"] == "at" else 0)
        if reading is not None and reading.ended_ns + margin_ns < due_ns:
            early_ms = (due_ns - reading.ended_ns) / 1e6
            text = f"{value} was read from {place} at least {early_ms:.0f} ms before its time"
            yield Finding("early", str(place), sorted({*send.evidence, *reading.evidence}), text, legal)


def _lateness_ms(sends: Sequence[Attempt], seen: dict[tuple[Place, Any], Attempt]) -> Iterator[float]:
    for send in sends:
        reading = seen.get((Place(*send.asked["place"]), send.asked["value"]))
        if reading is not None and _delay_ms(send):
            yield round((reading.ended_ns - send.began_ns) / 1e6 - _delay_ms(send), 3)


def _waits(sends: Sequence[Attempt], found: dict[tuple[Place, Any], list[int]]) -> dict[Place, list[_Wait]]:
    waits: dict[Place, list[_Wait]] = defaultdict(list)
    for send in sends:
        place, delay_ns = Place(*send.asked["place"]), _delay_ms(send) * 1_000_000
        offsets = found.get((place, send.asked["value"]), [])
        if send.type == "ok" and len(offsets) == 1 and delay_ns:
            skew_ns = SKEW_NS if send.asked["by"] == "at" else 0
            bounds = send.began_ns + delay_ns - skew_ns, send.ended_ns + delay_ns + skew_ns
            waits[place].append(_Wait(send, offsets[0], *bounds))
    return waits


def _disorder(waits: dict[Place, list[_Wait]], margin_ns: int, *, legal: bool) -> Iterator[Finding]:
    """Pairs of which the first was surely due first, by this margin, and the second was surely there by then."""
    for place, of_place in waits.items():
        of_place.sort(key=lambda wait: wait.first_ns)
        for i, first in enumerate(of_place):
            for second in of_place[i + 1 :]:
                both_waited = max(first.attempt.ended_ns, second.attempt.ended_ns) < first.first_ns
                if first.last_ns + margin_ns < second.first_ns and both_waited and first.offset > second.offset:
                    one, other = first.attempt.asked["value"], second.attempt.asked["value"]
                    text = f"{one} was due before {other}, and is behind it in {place}"
                    evidence = sorted({*first.attempt.evidence, *second.attempt.evidence})
                    yield Finding("out-of-order", str(place), evidence, text, legal)
                    break
