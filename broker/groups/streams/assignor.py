"""Core: the sticky task assignor (KIP-1071): members keep their tasks, and processes get tasks by their capacity.

The input and the order of decisions are those of Kafka's `StickyTaskAssignor`. It knows neither racks nor client tags,
as Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from barnabas.broker.groups.streams.configured_topology import ConfiguredSubtopology
from barnabas.broker.groups.streams.tasks import TaskId, Tasks, TaskSet
from barnabas.runtime.at_once import Stepwise

TASKS_OF_ONE_STEP = 200
"""Tasks that one step assigns, or members that it prepares."""


class MemberSpec(NamedTuple):
    """A member as the assignor sees it."""

    process_id: str
    target: TaskSet
    """Its previous target assignment."""


def assign_tasks(
    members: Mapping[str, MemberSpec], subtopologies: Mapping[str, ConfiguredSubtopology], num_standby_replicas: int
) -> Stepwise[dict[str, TaskSet]]:
    """A target for every member, by member id. Each task is active at exactly one of them, and a standby at most once
    in a process. `members` must not be empty."""
    assignment = _Assignment(members, subtopologies, num_standby_replicas)
    yield from assignment.prepare()
    yield from assignment.assign_active()
    yield
    if num_standby_replicas > 0:
        yield from assignment.assign_standby()
    return (yield from assignment.result())


class _Process:
    """A process with its members: it takes tasks in proportion to their number."""

    __slots__ = ("_by_load", "active", "counts", "standby", "tasks", "total")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Tasks by member id."""
        self.active: dict[str, list[TaskId]] = {}
        self.standby: dict[str, list[TaskId]] = {}
        self.tasks: set[TaskId] = set()
        self.total = 0
        self._by_load: list[tuple[int, int, str]] | None = None

    @property
    def load(self) -> float:
        return self.total / len(self.counts)

    def add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Returns the member's number of tasks."""
        self._by_load = None
        return self._add(member_id, task, is_active=is_active)

    def add_to_least_loaded(self, task: TaskId, *, is_active: bool) -> int:
        """Returns the number of tasks of the member that got it."""
        if self._by_load is None:
            self._by_load = [(count, place, it) for place, (it, count) in enumerate(self.counts.items())]
            heapify(self._by_load)
        _, place, member_id = heappop(self._by_load)
        count = self._add(member_id, task, is_active=is_active)
        heappush(self._by_load, (count, place, member_id))
        return count

    def _add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        self.total += 1
        self.tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, []).append(task)
        count = self.counts[member_id] = self.counts[member_id] + 1
        return count


class _Quota:
    """Most tasks that one member should have: it follows from what is left and who has room."""

    __slots__ = ("_members", "_tasks", "tasks_per_member")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.tasks_per_member = -(-tasks // members)

    def member_has(self, count: int) -> None:
        """A member has got a task, and has `count` now."""
        if count == self.tasks_per_member:
            self._members -= 1
            self._tasks -= count
            self.tasks_per_member = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    """One run of the assignor."""

    def __init__(
        self,
        members: Mapping[str, MemberSpec],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        num_standby_replicas: int,
    ) -> None:
        self._members = members
        self._subtopologies = subtopologies
        self._replicas = num_standby_replicas
        self._processes: dict[str, _Process] = {}
        self._previously_active: dict[TaskId, str] = {}
        """Member ids."""
        self._previously_standby: dict[TaskId, list[str]] = {}
        active = sum(it.number_of_tasks for it in subtopologies.values())
        standby = sum(it.number_of_tasks for it in subtopologies.values() if it.is_stateful) * num_standby_replicas
        self._active_quota = _Quota(active, len(members))
        self._quota = _Quota(active + standby, len(members))

    def prepare(self) -> Stepwise[None]:
        done = 0
        for member_id, spec in self._members.items():
            self._processes.setdefault(spec.process_id, _Process()).counts[member_id] = 0
            for subtopology_id, partitions in spec.target.active.items():
                for partition in partitions:
                    self._previously_active[TaskId(subtopology_id, partition)] = member_id
                done += len(partitions)
            for subtopology_id, partitions in spec.target.standby.items():
                for partition in partitions:
                    self._previously_standby.setdefault(TaskId(subtopology_id, partition), []).append(member_id)
                done += len(partitions)
            done += 1
            if done >= TASKS_OF_ONE_STEP:
                done = 0
                yield

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._members[member_id].process_id]

    # -- order of tasks

    def _by_partition(self, is_wanted: Callable[[ConfiguredSubtopology], bool]) -> list[TaskId]:
        """Tasks in the order of partitions, then subtopologies: previous assignments pair the same partitions."""
        left = [(it, one.number_of_tasks) for it, one in self._subtopologies.items() if is_wanted(one)]
        ordered: list[TaskId] = []
        partition = 0
        while left:
            ordered += [TaskId(subtopology_id, partition) for subtopology_id, _ in left]
            partition += 1
            left = [(subtopology_id, number) for subtopology_id, number in left if number > partition]
        return ordered

    def _by_subtopology(self) -> Iterable[TaskId]:
        """All tasks in the order of subtopologies, then partitions: a range for each member."""
        for subtopology_id, one in self._subtopologies.items():
            for partition in range(one.number_of_tasks):
                yield TaskId(subtopology_id, partition)

    # -- active tasks

    def assign_active(self) -> Stepwise[None]:
        left: dict[TaskId, None] = {}
        for done, task in enumerate(self._by_partition(lambda _: True)):
            member_id = self._previously_active.get(task)
            if member_id is None or not self._give_active(task, member_id):
                left[task] = None
            if done % TASKS_OF_ONE_STEP == 0:
                yield
        for done, task in enumerate(list(left)):
            member_id = self._least_loaded(self._previously_standby.get(task, ()), None)
            if member_id is not None and self._give_active(task, member_id):
                del left[task]
            if done % TASKS_OF_ONE_STEP == 0:
                yield
        by_load = self._by_load()
        for done, task in enumerate(self._by_subtopology()):
            if done % TASKS_OF_ONE_STEP == 0:
                yield
            if task not in left:
                continue
            _, place, process = heappop(by_load)
            count = process.add_to_least_loaded(task, is_active=True)
            self._active_quota.member_has(count)
            self._quota.member_has(count)
            heappush(by_load, (process.load, place, process))

    def _give_active(self, task: TaskId, member_id: str) -> bool:
        """Give the task to the member if it has room."""
        process = self._process_of(member_id)
        if process.counts[member_id] >= self._active_quota.tasks_per_member:
            return False
        count = process.add(member_id, task, is_active=True)
        self._active_quota.member_has(count)
        self._quota.member_has(count)
        return True

    def _least_loaded(self, member_ids: Iterable[str], task: TaskId | None) -> str | None:
        """The first of these members with less load than those before it, of its process and its own; with `task`, only
        members whose process does not have that."""
        found: str | None = None
        process_load = member_load = 0.0
        for member_id in member_ids:
            process = self._process_of(member_id)
            if task is not None and task in process.tasks:
                continue
            if found is None or (process.load < process_load and process.counts[member_id] < member_load):
                found, process_load, member_load = member_id, process.load, process.counts[member_id]
        return found

    def _by_load(self) -> list[tuple[float, int, _Process]]:
        by_load = [(process.load, place, process) for place, process in enumerate(self._processes.values())]
        heapify(by_load)
        return by_load

    # -- standby tasks

    def assign_standby(self) -> Stepwise[None]:
        left: dict[TaskId, int] = {}
        tasks = self._by_partition(lambda it: it.is_stateful)
        for done, task in enumerate(reversed(tasks)):
            for given in range(self._replicas):
                if not self._give_standby_back(task):
                    left[task] = self._replicas - given
                    break
            if done % TASKS_OF_ONE_STEP == 0:
                yield
        by_load = self._by_load()
        for subtopology_id in reversed(list(self._subtopologies)):
            if not self._subtopologies[subtopology_id].is_stateful:
                continue
            for partition in reversed(range(self._subtopologies[subtopology_id].number_of_tasks)):
                task = TaskId(subtopology_id, partition)
                for _ in range(left.get(task, 0)):
                    if not self._give_standby(task, by_load):
                        # The remaining replicas have no process to run in.
                        break
                if partition % TASKS_OF_ONE_STEP == 0:
                    yield

    def _give_standby_back(self, task: TaskId) -> bool:
        """Give the task to a member that had it, as active or standby, and has room."""
        active = self._previously_active.get(task)
        candidates = [active] if active is not None and task not in self._process_of(active).tasks else []
        standby = self._least_loaded(self._previously_standby.get(task, ()), task)
        candidates += [standby] if standby is not None else []
        for member_id in candidates:
            process = self._process_of(member_id)
            if process.counts[member_id] < self._quota.tasks_per_member:
                self._quota.member_has(process.add(member_id, task, is_active=False))
                return True
        return False

    def _give_standby(self, task: TaskId, by_load: list[tuple[float, int, _Process]]) -> bool:
        """Give the task to the least loaded process that does not have it."""
        passed: list[tuple[float, int, _Process]] = []
        found = False
        while by_load and not found:
            load, place, process = heappop(by_load)
            if task not in process.tasks:
                self._quota.member_has(process.add_to_least_loaded(task, is_active=False))
                load, found = process.load, True
            passed.append((load, place, process))
        for it in passed:
            heappush(by_load, it)
        return found

    # -- result

    def result(self) -> Stepwise[dict[str, TaskSet]]:
        targets: dict[str, TaskSet] = {}
        done = 0
        for member_id in self._members:
            process = self._process_of(member_id)
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            targets[member_id] = TaskSet(_collected(active), _collected(standby))
            done += 1 + len(active) + len(standby)
            if done >= TASKS_OF_ONE_STEP:
                done = 0
                yield
        return targets


def _collected(tasks: Iterable[TaskId]) -> Tasks:
    found: dict[str, set[int]] = {}
    for task in tasks:
        found.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in found.items()}
