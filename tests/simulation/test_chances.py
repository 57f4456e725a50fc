"""Partitions must take records if they could, and get a chance if not, depending on which parts worked when."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from unittest import mock

import pytest
import trio

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from running.seed import run_plan
from simulation.chances import NEVER, Chances, Standing, chance_since
from simulation.findings import Findings
from simulation.invariants.places import PartitionKey
from tests.simulation.plans import usual

BROKERS, CONTROLLERS, PRODUCERS = ("1", "2", "3"), ("101", "102", "103"), ("p",)
TERM = ("active controller", 4)


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
    report = run_plan(usual(1, "set", nemesis=("clock",)))
    assert any("has had all that it needs" in line for line in report.broken)


@pytest.mark.feature("FI-05", "FI-11")
def test_and_when_all_is_healed_it_has_to_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, lambda now: now > 45)
    report = run_plan(usual(1, "set", nemesis=("clock",)))
    assert any("all faults are over, yet set-0: a record was not acked" in line for line in report.broken)


@pytest.mark.feature("FI-05")
def test_records_of_clients_that_crashed_are_not_waited_for() -> None:
    findings = Findings(lambda: 0.0)
    chances = Chances(mock.Mock(), mock.Mock(), findings, (0, 0), (), mock.Mock(), mock.Mock())
    key = PartitionKey("t", 0)
    for now, sent in ((1.0, 5), (25.0, 5), (26.0, 6), (30.0, 5), (40.0, 6), (49.0, 6)):
        chances.judge(key, since=0.0, acked=5, sent=sent, now=now)
    assert findings.broken == []
    chances.judge(key, since=0.0, acked=5, sent=6, now=51.0)
    assert "no record was acked that was sent to it in the last 11.0 s" in findings.broken[0]
