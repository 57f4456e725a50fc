"""The comparison finds what it is there to find."""

from __future__ import annotations

from tests.compat.history import Verdict, judge
from tests.compat.load import UNKNOWN_OFFSET, Ack, Stored

VALUES = ["0:1", "0:2", "0:3", "0:4"]
ACKS = [Ack(offset, value, 0.0, 0.0) for offset, value in enumerate(VALUES)]


def stored(*values: str) -> list[Stored]:
    return [Stored(0, offset, value) for offset, value in enumerate(values)]


def test_all_is_well() -> None:
    assert judge(ACKS, stored(*VALUES)) == Verdict()
    assert not judge(ACKS, stored(*VALUES, "0:5")), "a record whose ack did not come may be there"
    assert not judge([Ack(UNKNOWN_OFFSET, "0:2", 0.0, 0.0)], stored(*VALUES)), "the client knows only that it is there"


def test_anomalies_are_named() -> None:
    assert judge(ACKS, stored("0:1", "0:2", "0:3")) == Verdict(lost=["0:4"])
    assert judge([Ack(UNKNOWN_OFFSET, "0:9", 0.0, 0.0)], stored(*VALUES)) == Verdict(lost=["0:9"])
    assert judge(ACKS[:3], stored("0:1", "0:2", "0:3", "0:2")) == Verdict(duplicated=["0:2"], reordered=["0:2"])
    swapped = judge(ACKS, stored("0:1", "0:3", "0:2", "0:4"))
    assert swapped == Verdict(moved=["0:2", "0:3"], reordered=["0:2"])
    assert judge(ACKS, [*stored(*VALUES[:3]), Stored(0, 4, "0:4")]) == Verdict(moved=["0:4"], holes=[4])
    assert judge(ACKS, stored("0:1", "0:2", "other:9", "0:4")).lost == ["0:3"]
