"""Differences between two polls of a cluster that exports no decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.page.changes import WHY, ClusterView, PartitionView, changes

pytestmark = pytest.mark.feature("FI-10")

BEFORE = ClusterView(
    partitions={("flights", 0): PartitionView(1, 3, (1, 2, 3)), ("flights", 1): PartitionView(2, 0, (2, 3))},
    fenced={1: False, 2: False},
    quorum_leader=101,
    quorum_epoch=5,
)


def texts(after: ClusterView) -> list[str]:
    return [f"{it.kind.value} {it.subject}: {it.text.removesuffix(f': {WHY}')}" for it in changes(BEFORE, after)]


def test_an_unchanged_cluster_has_no_changes() -> None:
    assert texts(BEFORE) == []
    in_another_order = {**BEFORE.partitions, ("flights", 0): PartitionView(1, 3, (3, 2, 1))}
    assert texts(replace(BEFORE, partitions=in_another_order)) == []


def test_a_broker_fails_and_returns() -> None:
    after = ClusterView(
        partitions={("flights", 0): PartitionView(2, 4, (2, 3)), ("flights", 1): PartitionView(2, 0, (2, 3))},
        fenced={1: True, 2: False},
        quorum_leader=101,
        quorum_epoch=5,
    )
    assert texts(after) == [
        "fencing broker 1: broker 1 is fenced",
        "election flights-0: leader of flights-0 moved 1 -> 2 in epoch 4",
        "isr flights-0: ISR of flights-0 changed [1, 2, 3] -> [2, 3]",
    ]
    back = [it.text for it in changes(after, BEFORE)]
    assert back[0] == f"broker 1 is unfenced: {WHY}"


def test_a_partition_loses_its_leader_and_gets_one() -> None:
    alone = replace(BEFORE, partitions={("flights", 1): PartitionView(None, 1, ())})
    assert texts(alone)[0] == "election flights-1: flights-1 has no leader since epoch 1"
    again = changes(alone, replace(BEFORE, partitions={("flights", 1): PartitionView(3, 2, (3,))}))
    assert again[0].text.startswith("leader of flights-1 is 3 in epoch 2, after there was none")


def test_another_controller_leads() -> None:
    assert texts(replace(BEFORE, quorum_leader=103, quorum_epoch=6)) == [
        "quorum quorum: controller 103 leads the quorum in epoch 6"
    ]
    assert texts(replace(BEFORE, quorum_leader=None, quorum_epoch=None)) == []


def test_a_topic_that_was_not_shown_before_has_no_changes() -> None:
    assert texts(replace(BEFORE, partitions={("clocks", 0): PartitionView(9, 9, (9,))}, fenced={3: True})) == []
    assert changes(ClusterView(), BEFORE) == []
