"""The events `cluster` and `partitions`, computed from answers of nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.page.node_state import (
    BrokerState,
    MetadataState,
    NodeName,
    NodeState,
    NotAState,
    PartitionState,
    read_state,
)
from barnabas.page.sight import FRESH_MS, Sight, cluster_event, partitions_event

NOW = 100_000


def broker(number: int, state: str = "running", **more: Any) -> Sight:
    sight = Sight(NodeName.of("broker", number))
    metadata = MetadataState(101, 5, 40, 41, 40)
    answer = NodeState(number, "broker", state, epoch=7, metadata=metadata, topics={"flights": 1}, **more)
    sight.answered(answer, "flights", NOW)
    return sight


def controller(number: int, state: str = "follower", epoch: int = 5, **more: Any) -> Sight:
    sight = Sight(NodeName.of("controller", number))
    metadata = MetadataState(101, epoch, 40, 41, 40)
    sight.answered(NodeState(number, "controller", state, metadata=metadata, **more), None, NOW)
    return sight


def words(*sights: Sight, now_ms: int = NOW) -> dict[str, str]:
    event = cluster_event(sights, now_ms, 0, [])
    return {node["name"]: node["state"] for node in event["nodes"]}


def test_a_healthy_cluster_is_shown_as_its_nodes_report_it() -> None:
    known = {1: BrokerState(7, fenced=False), 2: BrokerState(7, fenced=False)}
    sights = [broker(1), broker(2), controller(101, "leader", brokers=known), controller(102)]
    event = cluster_event(sights, NOW, 1234, [("broker-1", "broker-2")])
    assert event["at_ms"] == 1234
    assert [node["state"] for node in event["nodes"]] == ["running", "running", "leader", "follower"]
    assert event["nodes"][0] == {
        "name": "broker-1",
        "id": 1,
        "role": "broker",
        "state": "running",
        "epoch": 7,
        "metadata_end": 41,
        "metadata_high_watermark": 40,
        "told": "",
    }
    assert event["quorum"] == {"leader": 101, "epoch": 5, "high_watermark": 40, "log_end_offset": 41}
    assert event["topics"] == [{"name": "flights", "partitions": 1}]
    assert event["cut"] == [["broker-1", "broker-2"]]
    assert event["away"] is False


@pytest.mark.parametrize(
    ("process", "refused", "expected"),
    [
        ("paused", False, "paused"),
        ("dead", False, "dead"),
        ("stopped", False, "dead"),
        ("", True, "dead"),
        ("running", True, "dead"),
        ("running", False, "unreachable"),
        ("", False, "unreachable"),
    ],
)
def test_a_silent_node_is_dead_only_if_that_is_known(process: str, refused: bool, expected: str) -> None:
    sight = broker(1)
    sight.not_answered("no answer", refused=refused)
    sight.process = process
    assert words(sight, now_ms=NOW + FRESH_MS + 1) == {"broker-1": expected}


def test_one_late_answer_changes_nothing() -> None:
    sight = broker(1)
    sight.not_answered("no answer within 1.5 s", refused=False)
    assert words(sight, now_ms=NOW + FRESH_MS) == {"broker-1": "running"}


def test_a_process_without_a_first_answer_is_starting() -> None:
    sight = Sight(NodeName.of("broker", 1), process="running")
    assert words(sight) == {"broker-1": "starting"}


def test_the_active_controllers_view_of_a_broker_counts() -> None:
    known = {
        1: BrokerState(7, fenced=True),
        2: BrokerState(7, fenced=False, out_of_sync=3),
        3: BrokerState(7, fenced=False),
    }
    leader = controller(101, "leader", brokers=known)
    assert words(broker(1), broker(2), broker(3), leader) == {
        "broker-1": "fenced",
        "broker-2": "catching up",
        "broker-3": "running",
        "controller-101": "leader",
    }
    answer = cluster_event([broker(2), leader], NOW, 0, [])["nodes"][0]["told"]
    assert answer == "3 of its replicas are not in sync"


def test_an_old_leader_that_wakes_up_is_not_believed() -> None:
    old = controller(101, "leader", epoch=5, brokers={1: BrokerState(7, fenced=False)})
    new = controller(102, "leader", epoch=6, brokers={1: BrokerState(7, fenced=True)})
    assert words(broker(1), old, new)["broker-1"] == "fenced"
    assert cluster_event([old, new], NOW, 0, [])["quorum"]["epoch"] == 6


@pytest.mark.parametrize("state", ["prospective", "unattached", "resigned", "candidate"])
def test_a_voter_without_leader_is_a_candidate(state: str) -> None:
    assert words(controller(101, state)) == {"controller-101": "candidate"}
    event = cluster_event([controller(101, state)], NOW, 0, [])
    assert event["quorum"]["leader"] is None and event["quorum"]["epoch"] == 5


def test_a_cluster_that_does_not_answer_is_away_and_keeps_its_nodes() -> None:
    sights = [broker(1), controller(101, "leader")]
    event = cluster_event(sights, NOW + 60_000, 0, [])
    assert event["away"] is True
    assert [node["state"] for node in event["nodes"]] == ["unreachable", "unreachable"]
    assert event["nodes"][0]["metadata_end"] == 41
    assert cluster_event([], NOW, 0, [])["away"] is True


LEADING = PartitionState(
    0, 1, 3, (1, 2, 3), (1, 2), is_leader=True, log_start_offset=0, log_end_offset=9, high_watermark=7
)
FOLLOWING = replace(LEADING, is_leader=False, log_end_offset=7, high_watermark=6)


def with_partition(number: int, partition: PartitionState) -> Sight:
    return broker(number, partitions=[partition])


def test_offsets_of_replicas_come_from_their_own_brokers() -> None:
    late = replace(FOLLOWING, log_end_offset=2)
    sights = [with_partition(1, LEADING), with_partition(2, FOLLOWING), with_partition(3, late)]
    (partition,) = partitions_event(sights, "flights", NOW, 0)["partitions"]
    assert (partition["leader"], partition["leader_epoch"], partition["isr"]) == (1, 3, [1, 2])
    assert [(each["broker"], each["state"], each["log_end_offset"]) for each in partition["replicas"]] == [
        (1, "leader", 9),
        (2, "follower", 7),
        (3, "out of sync", 2),
    ]


def test_a_dead_leader_keeps_its_bar_and_loses_its_lead() -> None:
    dead = with_partition(1, LEADING)
    dead.not_answered("refused", refused=True)
    heir = with_partition(2, replace(FOLLOWING, leader=2, leader_epoch=4, isr=(2,), is_leader=True))
    (partition,) = partitions_event([dead, heir], "flights", NOW, 0)["partitions"]
    assert (partition["leader"], partition["leader_epoch"], partition["isr"]) == (2, 4, [2])
    assert [(each["state"], each["log_end_offset"]) for each in partition["replicas"]] == [
        ("gone", 9),
        ("leader", 7),
        ("gone", None),
    ]


def test_a_leader_of_an_old_epoch_is_ignored() -> None:
    zombie = with_partition(1, LEADING)
    heir = with_partition(2, replace(LEADING, leader=2, leader_epoch=4, isr=(2, 3)))
    (partition,) = partitions_event([zombie, heir], "flights", NOW, 0)["partitions"]
    assert (partition["leader"], partition["isr"]) == (2, [2, 3])
    assert partition["replicas"][0]["state"] == "out of sync"


def test_a_partition_without_answers_has_no_leader() -> None:
    (partition,) = partitions_event([with_partition(1, LEADING)], "flights", NOW + 60_000, 0)["partitions"]
    assert partition["leader"] is None
    assert partition["replicas"][0]["state"] == "gone"
    leaderless = replace(LEADING, leader=-1, is_leader=False)
    assert partitions_event([with_partition(1, leaderless)], "flights", NOW, 0)["partitions"][0]["leader"] is None


HALF = {"id": 1, "role": "broker", "state": "running", "missing": "", "metadata": []}


@pytest.mark.parametrize("answer", [None, [], 7, {}, {"id": "x"}, HALF])
def test_malformed_states_are_refused(answer: Any) -> None:
    with pytest.raises(NotAState):
        read_state(answer)
