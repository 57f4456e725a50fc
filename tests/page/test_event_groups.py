"""A broker's restart in a cluster of many partitions is a few events on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.page.event_groups import FEWEST, MOST_NAMED, grouped

pytestmark = pytest.mark.feature("OB-07")


def decision(kind: str, subject: str, number: int = 1, **facts: Any) -> Mapping[str, Any]:
    return {
        "number": number,
        "at_ms": 1000 + number,
        "node": "controller-101",
        "kind": kind,
        "subject": subject,
        "told": f"{kind} of {subject}",
        "cause": "broker 1 was killed",
        "facts": facts,
    }


def texts(*decisions: Mapping[str, Any], node: str = "controller-101") -> list[str]:
    return [event.text for event in grouped([(node, each) for each in decisions])]


def test_many_equal_isr_changes_are_one_event() -> None:
    news = [decision("isr", f"t-{index}", index, isr_before=[1, 2, 3], isr=[3, 2]) for index in range(123)]
    (event,) = grouped([("controller-101", each) for each in news])
    assert event.text == "broker 1 left the ISR of 123 partitions"
    assert event.subject == "broker 1"
    assert event.decision["also"] == [f"t-{index}" for index in range(MOST_NAMED)]
    assert event.decision["cause"] == "broker 1 was killed"


def test_requests_and_elections_are_grouped_by_the_brokers_concerned() -> None:
    asked = [decision("isr", f"t-{index}", leader=2, isr=[2], isr_wanted=[1, 2]) for index in range(5)]
    moved = [decision("election", f"t-{index}", leader=2 + index % 2, leader_before=1) for index in range(6)]
    lost = [decision("election", f"u-{index}", leader=-1, leader_before=1) for index in range(4)]
    assert texts(*asked, *moved, *lost) == [
        "broker 2 asks that broker 1 join the ISR of 5 partitions",
        "6 partitions led by broker 1 have another leader",
        "4 partitions led by broker 1 have no leader",
    ]


def test_the_order_of_events_stays_and_small_groups_stay_single() -> None:
    few = [decision("isr", f"t-{index}", isr_before=[1, 2], isr=[2]) for index in range(FEWEST - 1)]
    fenced = decision("fencing", "broker 1", fenced=True)
    assert texts(fenced, *few) == ["fencing of broker 1", "isr of t-0", "isr of t-1", "isr of t-2"]


def test_decisions_of_different_nodes_or_directions_are_not_mixed() -> None:
    left = [decision("isr", f"t-{index}", isr_before=[1, 2], isr=[2]) for index in range(4)]
    joined = [decision("isr", f"t-{index}", isr_before=[2], isr=[1, 2]) for index in range(4)]
    assert texts(*left, *joined) == [
        "broker 1 left the ISR of 4 partitions",
        "broker 1 joined the ISR of 4 partitions",
    ]
    news = [(f"controller-{100 + index}", each) for index, each in enumerate(left)]
    assert len(grouped(news)) == 4


@pytest.mark.parametrize("facts", [{}, {"isr": 5, "isr_before": None}, {"isr": [1], "isr_wanted": "x"}, {"isr": [1]}])
def test_malformed_facts_are_single_events(facts: dict[str, Any]) -> None:
    assert texts(*[decision("isr", f"t-{index}", **facts) for index in range(9)]) == [
        f"isr of t-{index}" for index in range(9)
    ]
