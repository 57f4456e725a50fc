"""Core: tasks of a streams group. A task is a subtopology and a partition of its source topics (KIP-1071)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

Tasks = Mapping[str, frozenset[int]]
"""Partitions by subtopology id; no entry is empty."""

ActiveTasks = Mapping[str, Mapping[int, int]]
"""Epochs in which a member got its active tasks, by subtopology id and partition; no entry is empty."""


class TaskId(NamedTuple):
    subtopology_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class TaskSet:
    """All tasks of one member."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)
    """Always empty when assigned by this release, as in Kafka 4.3; members may report some."""


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks that a member has got, or has yet to revoke."""

    active: ActiveTasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def without_epochs(self) -> TaskSet:
        return TaskSet({it: frozenset(epochs) for it, epochs in self.active.items()}, self.standby, self.warmup)

    def has_any_of(self, tasks: TaskSet) -> bool:
        """True if a task of `tasks` is among these, in the same role."""
        return any(
            partition in held[subtopology_id]
            for held, reported in self._with(tasks)
            for subtopology_id, partitions in reported.items()
            if subtopology_id in held
            for partition in partitions
        )

    def has_all_of(self, tasks: TaskSet) -> bool:
        """True if all of `tasks` are among these, in the same role."""
        return all(
            subtopology_id in held and all(partition in held[subtopology_id] for partition in partitions)
            for held, reported in self._with(tasks)
            for subtopology_id, partitions in reported.items()
        )

    def _with(self, tasks: TaskSet) -> Iterator[tuple[Mapping[str, Container[int]], Tasks]]:
        yield self.active, tasks.active
        yield self.standby, tasks.standby
        yield self.warmup, tasks.warmup


class TaskIds(Protocol):
    """An entry of a list of tasks, in a request or a record."""

    subtopology_id: str
    partitions: list[int]


def tasks_of(listed: Iterable[TaskIds]) -> dict[str, frozenset[int]]:
    """Tasks of a list; entries of the same subtopology are united."""
    found: dict[str, frozenset[int]] = {}
    for it in listed:
        if it.partitions:
            found[it.subtopology_id] = found.get(it.subtopology_id, frozenset()) | frozenset(it.partitions)
    return found


def sorted_tasks(tasks: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, list[int]]]:
    """(subtopology id, partitions), both in order: the order in which records and responses have them."""
    for subtopology_id in sorted(tasks):
        yield subtopology_id, sorted(tasks[subtopology_id])


def number_of(tasks: Mapping[str, Sized]) -> int:
    return sum(map(len, tasks.values()))
