"""Core: whether a commit happened, and what follows.

All commits of a table form one chain of snapshots. Each is a compare-and-swap: it names the snapshot that it expects
to be the current one. A process first claims the table with a commit of its own, in an epoch above all earlier ones,
and builds on its own last commit only.

A commit without an answer may still happen as long as its expected snapshot is the current one. So the same commit is
sent again, with the same id: whichever comes first moves the table on, and the other one fails. It is looked up by its
id among the snapshots before it is sent again on top of a snapshot of somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from barnabas.lake.errors import Fenced, TableChanged, TopicChanged
from barnabas.lake.progress import Progress, progress_of


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """One snapshot: its id and the properties of its summary."""

    snapshot_id: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableView:
    """The snapshots of a table's main branch."""

    table: str
    """Its name, for messages."""
    snapshots: tuple[SnapshotView, ...]
    """The current one first, then its ancestors."""
    is_cut: bool = False
    """The oldest snapshot here has a parent that was expired."""

    @property
    def current(self) -> int | None:
        """The id of the current snapshot; None if the table has none."""
        return self.snapshots[0].snapshot_id if self.snapshots else None


class Standing(Enum):
    """The state of a commit."""

    LANDED = "landed"
    OPEN = "open"
    """It has not happened. It may be sent (again) on top of the current snapshot."""
    OVERTAKEN = "overtaken"
    """For a claim: it has not happened, and cannot, because the process before has committed more meanwhile."""


def latest_progress(view: TableView) -> Progress | None:
    """The progress of the table; None for a table without snapshots. `TableChanged` if it cannot be known."""
    for snapshot in view.snapshots:
        progress = progress_of(snapshot.properties)
        if progress is not None:
            return progress
    if not view.snapshots:
        return None
    reason = (
        "its snapshots with the property barnabas.offsets were expired"
        if view.is_cut
        else "it was written by something else"
    )
    raise TableChanged(
        f"{view.table} has snapshots, but none says which offsets it has: {reason}; write into another table"
    )


def claim(view: TableView, new: Progress) -> tuple[Progress | None, Progress]:
    """The progress to build on, and the one with which a process takes the table over.

    `new` has the topic, its id and the offsets at which an empty table begins. `TopicChanged` if the table is of
    another topic, or of one of this name that was deleted.
    """
    known = latest_progress(view)
    if known is None:
        return None, replace(new, epoch=1)
    if known.topic != new.topic:
        raise TopicChanged(
            f"{view.table} has the records of topic {known.topic}, not of {new.topic}; write into another table"
        )
    if known.topic_id != new.topic_id:
        raise TopicChanged(recreated(view.table, known, new.topic_id))
    return known, replace(known, epoch=known.epoch + 1, commit_id=new.commit_id)


def recreated(table: str, known: Progress, topic_id: str) -> str:
    """The message about a topic that was deleted and created again."""
    return (
        f"topic {known.topic} was deleted and created again: {table} has records of the topic with id {known.topic_id},"
        f" now the id is {topic_id}; write into another table"
    )


def standing(view: TableView, base: Progress | None, wanted: Progress) -> Standing:
    """Return whether `wanted` is in the table. `base` is the progress that it was built on.

    `Fenced` if another process has taken the table over, `TableChanged` if it was rolled back or lost its progress.
    """
    for snapshot in view.snapshots:
        progress = progress_of(snapshot.properties)
        if progress is None:
            continue
        if progress.commit_id == wanted.commit_id:
            return Standing.LANDED
        if base is not None and progress.commit_id == base.commit_id:
            return Standing.OPEN
        if _is_in(view, wanted):
            return Standing.LANDED
        is_claim = base is None or base.epoch < wanted.epoch
        if progress.epoch > wanted.epoch or (is_claim and progress.epoch == wanted.epoch):
            raise Fenced(
                f"{view.table} is written by another process now (epoch {progress.epoch}; this one has {wanted.epoch})"
            )
        if is_claim:
            return Standing.OVERTAKEN
        break
    else:
        if base is None and not view.snapshots:
            return Standing.OPEN
    raise TableChanged(
        f"{view.table} no longer has the last commit of this process"
        f" ({'none' if base is None else base.commit_id}): it was rolled back, replaced, or snapshots were expired;"
        " start again to continue from what it has"
    )


def _is_in(view: TableView, wanted: Progress) -> bool:
    return any(
        progress is not None and progress.commit_id == wanted.commit_id
        for progress in (progress_of(snapshot.properties) for snapshot in view.snapshots)
    )
