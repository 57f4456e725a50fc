"""Partitions must take records if they could, and get a chance if not, depending on which parts worked when."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest
import trio

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from simulation import seed
from simulation.chances import NEVER, Standing, chance_since
from simulation.swarm import PLAIN, TopicPlan

BROKERS, CONTROLLERS, PRODUCERS = ("1", "2", "3"), ("101", "102", "103"), ("p",)
TERM = ("active controller", 4)
UNEVENTFUL = {**PLAIN, "fault_weights": {"clock": 1}, "groups": (), "transactions": None, "core_probability": 0.0}
CROWDED = {
    **PLAIN,
    "topics": (TopicPlan("topic-0", 2, 2, {"min.insync.replicas": "2"}),),
    "brokers": 2,
    "controllers": 1,
    "fault_weights": {"kill": 1},
    "fault_pause_seconds": 0.1,
    "fault_length_seconds": 60.0,
    "faults_at_once": 3,
    "groups": (),
    "transactions": None,
    "core_probability": 0.0,
}
"""Three nodes of which none is spared for long."""


class World:
    """Hosts, links between them, and an active controller, which a test breaks step by step."""

    def __init__(self) -> None:
        self.standing = Standing()
        hosts = (*BROKERS, *CONTROLLERS, *PRODUCERS)
        self.marks: dict[Hashable, Hashable | None] = dict.fromkeys(hosts, 0)
        self.marks |= {(one, other): 0 for one in hosts for other in hosts if one != other}
        self.marks[TERM] = 0

    def look(self, now: float, **changes: Hashable | None) -> float:
        """`changes`: hosts and links, named `n1` and `l1_2`, with their marks."""
        for name, mark in changes.items():
            self.marks[name[1:] if name[0] == "n" else tuple(name[1:].split("_"))] = mark
        for thing, mark in self.marks.items():
            self.standing.look(thing, mark, now)
        return chance_since(self.standing, ("1", "2"), PRODUCERS, CONTROLLERS, ("101", TERM))


@pytest.mark.feature("FI-05")
def test_a_chance_is_all_that_a_partition_needs() -> None:
    world = World()
    assert world.look(1.0) == 1.0
    assert world.look(2.0, n3=None) == 1.0, "1 and 2 have the partition"
    assert world.look(3.0, l1_2=None) == NEVER, "and it is cut in two"
    assert world.look(4.0, l1_2=0) == 4.0
    assert world.look(5.0, lp_2=None) == NEVER, "nobody can write"
    assert world.look(6.0, lp_2=0, n1=None, n3=1) == NEVER, "its replica is down"
    assert world.look(7.0, n1=1) == 7.0


@pytest.mark.feature("FI-05")
def test_parts_that_broke_between_two_looks_work_from_the_second_on() -> None:
    world = World()
    world.look(1.0)
    assert world.look(2.0) == 1.0
    assert world.look(3.0, n2=1) == 3.0, "it was started again"
    assert world.look(4.0, l1_2=2, l2_3=2) == 4.0
    assert world.look(5.0, l2_3=3) == 4.0


@pytest.mark.feature("FI-05")
def test_a_quorum_is_all_controllers_or_the_active_one_with_a_majority() -> None:
    world = World()
    world.look(1.0)
    world.marks[TERM] = 1
    assert world.look(2.0) == 1.0, "there may be an active controller: all voters ran"
    assert world.look(3.0, n103=None) == 2.0, "102 can receive its messages"
    assert world.look(4.0, n103=1, n102=None) == 4.0
    assert world.look(5.0, n103=None) == NEVER
    assert world.look(6.0, n102=1, n103=2, l2_101=None) == NEVER, "a broker does not reach the active one"


def refusing(monkeypatch: pytest.MonkeyPatch, refuses: Callable[[float], bool]) -> None:
    """The mistake: while `refuses` says so, leaders take no records of clients."""
    append = Partition.append

    def forgetful(self: Partition, *arguments: Any, **more: Any) -> Any:
        if refuses(trio.current_time()) and not self.topic.startswith("__"):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return append(self, *arguments, **more)

    monkeypatch.setattr(Partition, "append", forgetful)


@pytest.mark.feature("FI-05", "FI-11")
def test_a_cluster_that_takes_no_records_though_it_can_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would work again if it were only waited for."""
    refusing(monkeypatch, lambda now: 5 < now < 45)
    report = seed.run_seed(1, changes=UNEVENTFUL)
    assert "has had all that it needs" in report.broken[0]


@pytest.mark.feature("FI-05")
def test_a_cluster_that_never_has_the_chance_is_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed, "FAULT_PHASE_TIMEOUT_SECONDS", 70.0)
    report = seed.run_seed(1, changes=CROWDED)
    assert report.passed, report.broken
    assert report.counts["runs whose faults left no time for acks"] == 1
    assert report.counts["acks"] >= seed.LEAST_ACKS


@pytest.mark.feature("FI-05", "FI-11")
def test_and_has_to_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed, "FAULT_PHASE_TIMEOUT_SECONDS", 70.0)
    refusing(monkeypatch, lambda now: True)
    (broken,) = seed.run_seed(1, changes=CROWDED).broken
    assert "enough records are acked" in broken
