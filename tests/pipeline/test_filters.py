"""Filters that the source accepts, and those that it returns to Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from barnabas.pipeline.columns import END
from barnabas.pipeline.filters import Pushed

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@dataclass
class Filter:
    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(Filter): ...


class GreaterThan(Filter): ...


class GreaterThanOrEqual(Filter): ...


class LessThan(Filter): ...


class LessThanOrEqual(Filter): ...


class In(Filter): ...


class IsNotNull(Filter): ...


class IsNull(Filter): ...


@dataclass
class Not:
    child: Filter


def pushed(*filters: Any) -> Pushed:
    found = Pushed()
    assert found.take(filters) == []
    return found


@pytest.mark.feature("PL-04")
def test_offsets_are_narrowed_from_both_sides() -> None:
    assert pushed(GreaterThan(("offset",), 9), LessThanOrEqual(("offset",), 20)).between("offset") == (10, 21)
    assert pushed(GreaterThanOrEqual(("offset",), 9), LessThan(("offset",), 20)).between("offset") == (9, 20)
    assert pushed(EqualTo(("offset",), 9), LessThan(("offset",), 20)).between("offset") == (9, 10)
    assert Pushed().between("offset") == (-END, END)


def test_topics_and_partitions_are_chosen() -> None:
    found = pushed(EqualTo(("topic",), "flights"), In(("partition",), (1, 2)), GreaterThan(("partition",), 1))
    assert [found.wants("flights", number) for number in range(4)] == [False, False, True, False]
    assert not found.wants("trains", 2)
    assert pushed(In(("topic",), ("a", "b")), EqualTo(("topic",), "b")).topics == {"b"}


@pytest.mark.parametrize("micros", [0, 1, 999])
def test_times_within_a_millisecond_keep_their_meaning(micros: int) -> None:
    """Records have milliseconds: each filter selects the same records as it selects rows."""
    time = NOON + timedelta(microseconds=micros)
    for kind, takes in (
        (EqualTo, lambda at: at == time),
        (GreaterThan, lambda at: at > time),
        (GreaterThanOrEqual, lambda at: at >= time),
        (LessThan, lambda at: at < time),
        (LessThanOrEqual, lambda at: at <= time),
    ):
        low, high = pushed(kind(("timestamp",), time)).between("timestamp")
        for delta in (-1, 0, 1, 2):
            at = NOON + timedelta(milliseconds=delta)
            assert (low <= NOON_MS + delta < high) is takes(at), (kind, delta)


def test_unsupported_filters_are_left_to_spark() -> None:
    others = [
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        Not(EqualTo(("offset",), 3)),
        IsNull(("offset",)),
        EqualTo(("offset",), True),
        EqualTo(("timestamp",), NOON.replace(tzinfo=None)),
        In(("offset",), (1, 2)),
        In(("partition",), (1, None)),
        GreaterThan(("topic",), "a"),
        IsNotNull(("key",)),
    ]
    found = Pushed()
    assert found.take([*others, IsNotNull(("offset",))]) == others
    assert (found.bounds, found.topics, found.partitions) == ({}, None, None)
