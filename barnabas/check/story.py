"""Core: the story of a finding: where its record was, who had it, what was committed, and which faults were near."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.check.journal import Event, What
from barnabas.check.judge import Finding
from barnabas.check.records import Input
from barnabas.times import clock_text

NEAR_S = 6.0
"""Seconds around the passing of the record in which faults belong to its story."""
_MOST_LINES = 24


def clock(at_s: float) -> str:
    """`12:34:56.789`, in UTC."""
    return clock_text(int(at_s * 1000))


def story(finding: Finding, events: Sequence[Event]) -> list[str]:
    """Lines in the order of time, each with its time; empty for a finding without a record."""
    record = finding.input
    lines = [(output.at_s, f"output {output.id} seen in {output}") for output in finding.outputs]
    if record is not None:
        place = f"partition {record.partition} at offset {record.offset}"
        lines.append((record.at_s, f"produced to {place}, key {record.key}"))
        before, after = _commits(record, events)
        if after is not None:
            lines.append((after.at_s, f"{_committed(after)}: past {record.offset}"))
    if not lines:
        return []
    start, end = _window(lines)
    if record is not None:
        if before is not None:
            lines.append((before.at_s, _committed(before) + ("" if after is not None else ", the last")))
        lines += _owners(record.partition, (start, end), events)
    lines += [(event.at_s, event.text) for event in _near(start, end, events)]
    lines.sort(key=lambda line: line[0])
    return _shortened([f"{clock(at_s)}  {text}" for at_s, text in lines])


def _near(start: float, end: float, events: Sequence[Event]) -> list[Event]:
    """Faults that were there within the window, from their begin to their repair, and starts and ends of instances."""
    repaired = {event.fault: event.at_s for event in events if event.what is What.REPAIR}
    near = set()
    for event in events:
        if event.what is What.FAULT and event.at_s <= end and repaired.get(event.fault, end) >= start:
            near.add(event.fault)
    return [
        event
        for event in events
        if (event.what in (What.FAULT, What.REPAIR) and event.fault in near)
        or (event.what is What.INSTANCE and start <= event.at_s <= end)
    ]


def _window(lines: Iterable[tuple[float, str]]) -> tuple[float, float]:
    times = [at_s for at_s, _text in lines]
    return min(times) - 1.0, max(times) + NEAR_S


def _commits(record: Input, events: Sequence[Event]) -> tuple[Event | None, Event | None]:
    """The last committed offset that did not pass the record, and the first that did."""
    before: Event | None = None
    for event in events:
        if event.what is not What.COMMITTED or event.partition != record.partition or event.offset is None:
            continue
        if event.offset > record.offset:
            return before, event
        before = event
    return before, None


def _committed(event: Event) -> str:
    return f"committed offset of partition {event.partition} is {event.offset}"


def _owners(partition: int, window: tuple[float, float], events: Sequence[Event]) -> list[tuple[float, str]]:
    """The owner of the partition when the window began, and those that got it until its end."""
    start, end = window
    before: list[tuple[float, str]] = []
    within = []
    for event in events:
        if event.what is What.ASSIGNED and event.partition == partition:
            if event.at_s < start:
                before = [(event.at_s, event.text)]
            elif event.at_s <= end:
                within.append((event.at_s, event.text))
    return before + within


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    half = _MOST_LINES // 2
    return [*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]]
