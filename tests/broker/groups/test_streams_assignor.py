"""The sticky task assignor beside Kafka's, and what holds for every assignment (KIP-1071)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.groups.streams.assignor import TASKS_OF_ONE_STEP, MemberSpec, assign_tasks
from barnabas.broker.groups.streams.configured_topology import ConfiguredSubtopology
from barnabas.broker.groups.streams.tasks import TaskId, Tasks, TaskSet, number_of
from barnabas.runtime.at_once import at_once

pytestmark = pytest.mark.feature("CG-20")

KAFKAS = Path(__file__).parent.parent / "data" / "streams_assignments.txt"
"""Assignments of Kafka 4.3.1's StickyTaskAssignor: standby replicas, subtopologies (id:tasks:is stateful), and for each
member its process and its previous and new active and standby tasks."""


class Case(NamedTuple):
    replicas: int
    subtopologies: dict[str, ConfiguredSubtopology]
    members: dict[str, MemberSpec]
    kafkas: dict[str, TaskSet]


def configured(number_of_tasks: int, *, stateful: bool = True) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(number_of_tasks, ("t",), stateful)


def read_case(line: str) -> Case:
    """`case 1 0:5:0,1:5:1,;m0|p0|{}|{}|{1=[0;4]}|{} …`"""
    head, _, listed = line.removeprefix("case ").partition(";")
    replicas, _, shapes = head.partition(" ")
    subtopologies = {
        name: configured(int(number), stateful=stateful == "1")
        for name, number, stateful in (shape.split(":") for shape in shapes.split(",") if shape)
    }
    members: dict[str, MemberSpec] = {}
    kafkas: dict[str, TaskSet] = {}
    for text in listed.split():
        member_id, process_id, *written = text.split("|")
        old_active, old_standby, active, standby = map(read_tasks, written)
        members[member_id] = MemberSpec(process_id, TaskSet(old_active, old_standby))
        kafkas[member_id] = TaskSet(active, standby)
    return Case(int(replicas), subtopologies, members, kafkas)


def read_tasks(text: str) -> Tasks:
    """`{0=[3];2=[0;1]}`"""
    entries = text.strip("{}").split("]")
    found = (entry.lstrip(";").split("=[") for entry in entries if entry)
    return {name: frozenset(map(int, numbers.split(";"))) for name, numbers in found}


def tasks_of(tasks: Tasks) -> set[TaskId]:
    return {TaskId(name, partition) for name, partitions in tasks.items() for partition in partitions}


def kept(targets: Mapping[str, TaskSet], members: Mapping[str, MemberSpec]) -> int:
    """Active tasks that stay with their member."""
    return sum(len(tasks_of(target.active) & tasks_of(members[it].target.active)) for it, target in targets.items())


CASES = [read_case(line) for line in KAFKAS.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case.members)} members, {case.replicas} standbys")
def test_it_is_as_sticky_and_as_even_as_kafkas(case: Case) -> None:
    ours = at_once(assign_tasks(case.members, case.subtopologies, case.replicas))
    check(case.members, case.subtopologies, case.replicas, ours)
    check(case.members, case.subtopologies, case.replicas, case.kafkas)
    assert kept(ours, case.members) == kept(case.kafkas, case.members)
    actives = [sorted(number_of(it.active) for it in each.values()) for each in (ours, case.kafkas)]
    assert actives[0] == actives[1]
    standbys = [sum(number_of(it.standby) for it in each.values()) for each in (ours, case.kafkas)]
    assert standbys[0] == standbys[1]


def check(
    members: Mapping[str, MemberSpec],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    replicas: int,
    targets: Mapping[str, TaskSet],
) -> None:
    """Each task is active once, and as often standby as there are other processes, at most once in each of them."""
    assert targets.keys() == members.keys()
    active = [task for target in targets.values() for task in tasks_of(target.active)]
    wanted = {TaskId(name, number) for name, one in subtopologies.items() for number in range(one.number_of_tasks)}
    assert len(active) == len(wanted) and set(active) == wanted
    in_process: Counter[tuple[str, TaskId]] = Counter()
    standbys: Counter[TaskId] = Counter()
    for member_id, target in targets.items():
        for task in (*tasks_of(target.active), *tasks_of(target.standby)):
            in_process[members[member_id].process_id, task] += 1
        standbys.update(tasks_of(target.standby))
        assert not target.warmup
    assert max(in_process.values(), default=1) == 1
    others = len({spec.process_id for spec in members.values()}) - 1
    expected = {task: min(replicas, others) for task in wanted if subtopologies[task.subtopology_id].is_stateful}
    assert {task: count for task, count in standbys.items() if count} == {it: n for it, n in expected.items() if n}


@st.composite
def _groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[str, ConfiguredSubtopology], int]:
    shapes = draw(st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=4))
    subtopologies = {str(i): configured(number, stateful=stateful) for i, (number, stateful) in enumerate(shapes)}
    processes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    every = [TaskId(name, number) for name, one in subtopologies.items() for number in range(one.number_of_tasks + 1)]
    members = {}
    for i, process in enumerate(processes):
        target = TaskSet(_some(draw, every), _some(draw, every))
        members[f"m{i}"] = MemberSpec(f"p{process}", target)
    return members, subtopologies, draw(st.integers(0, 2))


def _some(draw: st.DrawFn, every: list[TaskId]) -> Tasks:
    chosen: dict[str, set[int]] = {}
    for task in draw(st.lists(st.sampled_from(every), max_size=5)):
        chosen.setdefault(task.subtopology_id, set()).add(task.partition)
    return {name: frozenset(partitions) for name, partitions in chosen.items()}


@given(_groups())
def test_every_task_is_assigned_once_whatever_was_before(
    group: tuple[dict[str, MemberSpec], dict[str, ConfiguredSubtopology], int],
) -> None:
    members, subtopologies, replicas = group
    targets = at_once(assign_tasks(members, subtopologies, replicas))
    check(members, subtopologies, replicas, targets)


def test_a_second_run_moves_nothing() -> None:
    subtopologies = {"0": configured(8), "1": configured(3, stateful=False)}
    members = {f"m{i}": MemberSpec(f"p{i // 2}", TaskSet()) for i in range(4)}
    first = at_once(assign_tasks(members, subtopologies, 1))
    again = {it: MemberSpec(spec.process_id, first[it]) for it, spec in members.items()}
    assert at_once(assign_tasks(again, subtopologies, 1)) == first


def test_a_large_group_is_assigned_in_short_steps() -> None:
    subtopologies = {f"{i:03}": configured(40) for i in range(250)}
    members = {f"m{i}": MemberSpec(f"p{i // 4}", TaskSet()) for i in range(1000)}
    steps = sum(1 for _ in assign_tasks(members, subtopologies, 1))
    tasks = 250 * 40
    assert steps >= 3 * tasks / TASKS_OF_ONE_STEP, "active by stickiness, active by load, standby"


