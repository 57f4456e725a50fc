"""Migrations of modelled clusters, step by step, until nothing is left to do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.offset_reset import Partition
from barnabas.migration.plan import (
    AddVoter,
    CannotMigrate,
    Cluster,
    Elect,
    Migration,
    Move,
    Placement,
    Quorum,
    RemoveVoter,
    Step,
    Unregister,
    Wait,
    all_steps,
    next_step,
)

PAIRS = {1: 11, 2: 12, 3: 13}
CONTROLLERS = {101: 201, 102: 202, 103: 203}


def placed(*replicas: int) -> Placement:
    return Placement(replicas, replicas, replicas[0])


def cluster(placements: dict[Partition, Placement], leader: int = 101) -> Cluster:
    """Three old and three new nodes of each kind, all up."""
    quorum = Quorum(
        leader,
        {each: f"directory-{each}" for each in CONTROLLERS},
        {each: f"directory-{each}" for each in CONTROLLERS.values()},
        {},
    )
    return Cluster(frozenset({*PAIRS, *PAIRS.values()}), frozenset(), placements, frozenset(), quorum, 1)


@dataclass
class Model:
    """A cluster that carries out steps at once. Its operator stops brokers that have nothing left."""

    now: Cluster
    steps: int = 0

    def take(self, step: Step) -> None:
        now, quorum = self.now, self.now.quorum
        match step:
            case Move(replicas):
                moved = {each: Placement(to, to[::-1], to[-1]) for each, to in replicas.items()}
                self.now = replace(now, placements={**now.placements, **moved})
            case Elect(partitions):
                led = {each: now.placements[each] for each in partitions}
                led = {each: replace(placement, leader=placement.replicas[0]) for each, placement in led.items()}
                self.now = replace(now, placements={**now.placements, **led})
            case AddVoter(node, directory):
                assert quorum.observers[node] == directory
                self._voters({**quorum.voters, node: directory})
            case RemoveVoter(node, directory):
                assert quorum.voters[node] == directory
                self._voters({each: known for each, known in quorum.voters.items() if each != node})
            case Unregister(broker):
                assert broker in now.fenced
                self.now = replace(now, fenced=now.fenced - {broker})
            case Wait(_, by_operator):
                assert by_operator
                idle = now.in_service & PAIRS.keys()
                self.now = replace(now, in_service=now.in_service - idle, fenced=now.fenced | idle)

    def _voters(self, voters: dict[int, str | None]) -> None:
        quorum = self.now.quorum
        leader = quorum.leader if quorum.leader in voters else min(voters)
        self.now = replace(self.now, quorum=replace(quorum, voters=voters, leader=leader))

    def check(self, before: Cluster) -> None:
        for partition, placement in self.now.placements.items():
            assert len(set(placement.replicas)) == len(before.placements[partition].replicas)
        assert len(self.now.quorum.voters) in (3, 4), "one change at a time, and never fewer voters"


partitions = st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 30))
replicas = st.permutations([1, 2, 3, 4]).flatmap(lambda ids: st.sampled_from([ids[:1], ids[:2], ids[:3]]))
clusters = st.dictionaries(partitions, replicas.map(lambda ids: placed(*ids)), max_size=40)


@pytest.mark.feature("OP-05")
@given(clusters, st.integers(1, 7), st.sampled_from([101, 102, 103]))
def test_a_migration_ends_with_everything_on_the_new_nodes(
    placements: dict[Partition, Placement], at_once: int, leader: int
) -> None:
    wanted = Migration(PAIRS, CONTROLLERS, at_once)
    model = Model(cluster(placements, leader))
    before = model.now
    removed: list[int] = []
    while (step := next_step(model.now, wanted)) is not None:
        if isinstance(step, Move):
            assert len(step.replicas) <= at_once
        if isinstance(step, RemoveVoter):
            removed.append(step.controller)
        model.take(step)
        model.check(before)
        model.steps += 1
        assert model.steps <= 2 * len(placements) + 12
    after = model.now
    assert removed[-1] == leader, "leadership moves once"
    assert {*after.quorum.voters} == {*CONTROLLERS.values()}
    assert not (after.in_service | after.fenced) & PAIRS.keys()
    for partition, placement in after.placements.items():
        assert placement.replicas == tuple(PAIRS.get(each, each) for each in before.placements[partition].replicas)
        assert placement.leader == placement.replicas[0] or placement.replicas[0] not in PAIRS.values()
    assert list(all_steps(after, wanted)) == []


def test_the_plan_is_printed_before_anything_happens() -> None:
    found = list(all_steps(cluster({Partition("t", 0): placed(1, 2), Partition("t", 1): placed(2, 4)}, 102), FULL))
    assert found == [
        "move 1 replicas from broker 1 to broker 11, 20 at a time",
        "move 2 replicas from broker 2 to broker 12, 20 at a time",
        "add controller 201 to the voters",
        "remove controller 101 from the voters",
        "add controller 203 to the voters",
        "remove controller 103 from the voters",
        "add controller 202 to the voters",
        "remove controller 102 from the voters",
        "unregister broker 1, after you have stopped it",
        "unregister broker 2, after you have stopped it",
        "unregister broker 3, after you have stopped it",
    ]


FULL = Migration(PAIRS, CONTROLLERS)
TOPIC = {Partition("t", 0): placed(1, 2, 3)}


@pytest.mark.parametrize(
    ("changed", "wanted", "reason"),
    [
        ({}, Migration({1: 11, 2: 11}), "each new broker must take over from one old broker; got 1=11, 2=11"),
        ({}, Migration({1: 2, 2: 12}), "broker 2 is both an old and a new broker: 1=2, 2=12"),
        ({"in_service": frozenset({1, 2, 3})}, FULL, "broker 11 is not registered: start it before broker 1 is repl"),
        ({"kraft_version": 0}, FULL, "the voters of this cluster are fixed"),
        ({"quorum": Quorum(101, {101: "d"}, {}, {})}, FULL, "controller 201 does not fetch the metadata log"),
        (
            {"placements": {Partition("t", 0): placed(1, 11)}},
            FULL,
            "t-0 has replicas on an old broker and on the new one that takes over from it (11): reassign it by hand",
        ),
    ],
)
def test_an_impossible_migration_is_refused(changed: dict[str, object], wanted: Migration, reason: str) -> None:
    start = replace(cluster(TOPIC), **changed)  # type: ignore[arg-type]
    with pytest.raises(CannotMigrate) as caught:
        next_step(start, wanted)
    assert str(caught.value).startswith(reason)


def test_it_waits_for_reassignments_in_progress_and_for_fenced_brokers() -> None:
    start = cluster(TOPIC)
    assert next_step(replace(start, moving=frozenset(TOPIC)), FULL) == Wait("1 partitions are being reassigned")
    fenced = replace(start, in_service=start.in_service - {12}, fenced=frozenset({12}))
    assert next_step(fenced, FULL) == Wait("broker 12 does not serve", by_operator=True)


def test_a_controller_that_is_behind_does_not_vote_yet() -> None:
    start = cluster({})
    behind = replace(start, quorum=replace(start.quorum, lags={202: 5_000}, leader=103))
    assert next_step(behind, Migration({}, CONTROLLERS)) == AddVoter(201, "directory-201")
    voters = {202: "directory-202", 101: "directory-101", 201: "directory-201"}
    added = replace(behind, quorum=replace(behind.quorum, voters=voters, lags={201: 5_000}))
    assert next_step(added, Migration({}, {101: 201})) == Wait("controller 201 is 5000 records behind")
    assert next_step(behind, Migration({}, {102: 202})) == Wait("controller 202 is 5000 records behind")
