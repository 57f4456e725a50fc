"""Core: the processes that have a streams group's tasks, or have yet to stop them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.groups.streams.tasks import HeldTasks


class TaskOwners:
    """An active task has at most one process, apart from a moment of replay; standbys and warm-ups have many."""

    __slots__ = ("_active", "_others")

    def __init__(self) -> None:
        self._active: dict[str, dict[int, str]] = {}
        self._others: dict[str, dict[int, list[str]]] = {}
        """Processes of standby and warm-up tasks, one entry for each member that has the task."""

    def is_active(self, subtopology_id: str, partition: int) -> bool:
        """True if a member has the active task."""
        return partition in self._active.get(subtopology_id, ())

    def has(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """True if the process has the task in any role."""
        if self._active.get(subtopology_id, {}).get(partition) == process_id:
            return True
        return process_id in self._others.get(subtopology_id, {}).get(partition, ())

    def own(self, tasks: HeldTasks, process_id: str) -> None:
        for subtopology_id, epochs in tasks.active.items():
            self._active.setdefault(subtopology_id, {}).update(dict.fromkeys(epochs, process_id))
        for listed in (tasks.standby, tasks.warmup):
            for subtopology_id, partitions in listed.items():
                processes = self._others.setdefault(subtopology_id, {})
                for partition in partitions:
                    processes.setdefault(partition, []).append(process_id)

    def release(self, tasks: HeldTasks, process_id: str) -> None:
        """Release only what this process has: after compaction the new owner's record may precede the former
        owner's."""
        for subtopology_id, epochs in tasks.active.items():
            owners = self._active.get(subtopology_id, {})
            for partition in epochs:
                if owners.get(partition) == process_id:
                    del owners[partition]
            if not owners:
                self._active.pop(subtopology_id, None)
        for listed in (tasks.standby, tasks.warmup):
            self._release_others(listed, process_id)

    def _release_others(self, listed: Mapping[str, Iterable[int]], process_id: str) -> None:
        for subtopology_id, partitions in listed.items():
            processes = self._others.get(subtopology_id, {})
            for partition in partitions:
                of_task = processes.get(partition, [])
                if process_id in of_task:
                    of_task.remove(process_id)
                if not of_task:
                    processes.pop(partition, None)
            if not processes:
                self._others.pop(subtopology_id, None)
