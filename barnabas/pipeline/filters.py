"""Core: filters that Spark pushes down, as far as they save fetches: topic, partition, offset, timestamp.

Filters are recognised by the names of their classes, so this module needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from barnabas.pipeline.columns import END

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


@dataclass(slots=True)
class Pushed:
    """The pushed filters: rows that do not match all of them need not be read."""

    topics: frozenset[str] | None = None
    """None: any."""
    partitions: frozenset[int] | None = None
    """None: any within the bounds."""
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Column (`partition`, `offset`, `timestamp` in ms) to its range, without the end."""

    def take(self, filters: Iterable[Any]) -> list[Any]:
        """Accept the supported filters; returns the others."""
        return [each for each in filters if not self._take(each)]

    def wants(self, topic: str, partition: int) -> bool:
        low, high = self.between("partition")
        if self.topics is not None and topic not in self.topics:
            return False
        return low <= partition < high and (self.partitions is None or partition in self.partitions)

    def between(self, column: str) -> tuple[int, int]:
        return self.bounds.get(column, (-END, END))

    def _take(self, each: Any) -> bool:
        kind = type(each).__name__
        path: tuple[str, ...] = getattr(each, "attribute", ())
        if len(path) != 1:
            return False
        [column] = path
        if kind == "IsNotNull":
            return column in _NEVER_NULL
        value = getattr(each, "value", None)
        if column == "topic":
            return self._take_topic(kind, value)
        if column == "partition" and kind == "In":
            return self._take_partitions(value)
        if column in ("partition", "offset") and type(value) is int:
            return self._narrow(column, kind, value, value + 1)
        if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
            micros = (value - _EPOCH) // _MICROSECOND
            # Record timestamps have milliseconds: the first one not below the value, and the first one above it.
            return self._narrow(column, kind, -(-micros // 1000), micros // 1000 + 1)
        return False

    def _take_topic(self, kind: str, value: Any) -> bool:
        if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
            names = frozenset({value})
        elif kind == "In" and all(isinstance(each, str) for each in value):
            names = frozenset(value)
        else:
            return False
        self.topics = names if self.topics is None else self.topics & names
        return True

    def _take_partitions(self, value: Any) -> bool:
        if not all(type(each) is int for each in value):
            return False
        numbers = frozenset(value)
        self.partitions = numbers if self.partitions is None else self.partitions & numbers
        return True

    def _narrow(self, column: str, kind: str, at: int, behind: int) -> bool:
        """`at` is the lowest number not below the filter's value, `behind` the lowest above it."""
        match kind:
            case "EqualTo" | "EqualNullSafe":
                narrower = (at, behind)
            case "GreaterThan":
                narrower = (behind, END)
            case "GreaterThanOrEqual":
                narrower = (at, END)
            case "LessThan":
                narrower = (-END, at)
            case "LessThanOrEqual":
                narrower = (-END, behind)
            case _:
                return False
        low, high = self.between(column)
        self.bounds[column] = (max(low, narrower[0]), min(high, narrower[1]))
        return True
