"""Core: which records a reader wants, and where in each partition it goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.rest.errors import refused
from barnabas.rest.records import FORMATS
from barnabas.times import moment_ms

MOST_AT_ONCE = 1_000
MOST_WAIT_MS = 30_000
_QUERY = frozenset({"from", "partition", "group", "key", "value", "max", "wait_ms", "contains"})
_NUMBER = re.compile(r"\d{1,18}")
_POSITION = re.compile(r"(\d{1,9}):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query for records of one topic."""

    group: str | None = None
    """Read as a member of this group, and commit what was delivered; None: read without a group."""
    partition: int | None = None
    """None: all partitions."""
    start: str = "latest"
    """earliest, latest, or one of the next two."""
    start_offset: int | None = None
    start_ms: int | None = None
    formats: tuple[str, str] = ("string", "string")
    """Formats of key and value, one of `FORMATS` each."""
    contains: str = ""
    """Only records that have this text in key or value."""
    most: int = 100
    """Records of a list."""
    wait_ms: int = 1_000
    """Longest wait for the first record of a list."""
    positions: Mapping[int, int] = field(default_factory=dict)
    """Where an interrupted reader goes on, by partition: it wins over `start`."""


def wanted_of(query: Mapping[str, str], last_event_id: str = "") -> Wanted:
    """The meaning of a query. Raises `RestError` with what is allowed."""
    unknown = sorted(set(query) - _QUERY)
    if unknown:
        raise refused(f"there is no parameter {unknown[0]}; allowed are {', '.join(sorted(_QUERY))}")
    group = query.get("group")
    if group is not None and ("partition" in query or query.get("from") not in (None, "earliest", "latest")):
        raise refused("a group reads all partitions from its committed offsets: from may be earliest or latest")
    start = query.get("from", "latest")
    offset = int(start) if _NUMBER.fullmatch(start) else None
    time_ms = None
    if offset is None and start not in ("earliest", "latest"):
        time_ms = moment_ms(start)
        if time_ms is None or time_ms < 0:
            allowed = "earliest, latest, an offset or a time like 2026-01-31T12:00:00Z"
            raise refused(f"from must be {allowed}; got {start!r}")
    return Wanted(
        group,
        _number(query, "partition", 2**31 - 1),
        start,
        offset,
        time_ms,
        (_format(query, "key"), _format(query, "value")),
        query.get("contains", ""),
        _number(query, "max", MOST_AT_ONCE, 1) or 100,
        wait_ms if (wait_ms := _number(query, "wait_ms", MOST_WAIT_MS)) is not None else 1_000,
        positions_in(last_event_id) if group is None else {},
    )


def _number(query: Mapping[str, str], name: str, most: int, least: int = 0) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise refused(f"{name} must be a number from {least} to {most}; got {text!r}")
    return int(text)


def _format(query: Mapping[str, str], name: str) -> str:
    found = query.get(name, "string")
    if found not in FORMATS:
        raise refused(f"{name} must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; got {found!r}")
    return found


def positions_in(event_id: str) -> dict[int, int]:
    """Next offsets by partition, from the id of the last event that a reader got; empty if that has none."""
    return {int(partition): int(offset) for partition, offset in _POSITION.findall(event_id)}


def event_id(positions: Mapping[int, int]) -> str:
    """`0:17,1:4`"""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))
