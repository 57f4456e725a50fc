"""Plants: well-known bugs that are put into the node's own code from outside, and the runs that find them.

The checkers of this suite are worth what they find. So known mistakes are planted into nodes that are otherwise the
ones that users run, and each must be found within a bounded number of runs. Production code has no switch for any of
them: a plant replaces attributes of its classes in the memory of one process, and can take that back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Undo = Callable[[], None]


class Patch(NamedTuple):
    """One attribute of one class."""

    owner: type
    attribute: str
    mistake: Callable[[Any], Any]
    """From what is there to what takes its place."""

    def __str__(self) -> str:
        return f"{self.owner.__module__}.{self.owner.__qualname__}.{self.attribute}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of this suite in which the bug should show soon, as command-line options."""

    workload: str = "queue"
    nemesis: Sequence[str] = ()
    time_seconds: float = 25.0
    rate: float = 80.0
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all nodes."""
    concurrency: int = 6
    interval_seconds: float = 5.0
    """Between faults."""
    quiet_seconds: float = 4.0
    story: str = ""
    """Story of `plants.stories`, in place of a workload."""
    runs: int = 8
    """Within so many seeds, from 1 on, it must have been found."""


@dataclass(frozen=True, slots=True)
class Plant:
    """A mistake."""

    name: str
    title: str
    """Behaviour of the broken node, in one sentence."""
    patches: Sequence[Patch]
    found_by: Sequence[str]
    """Anomalies by which it shows: any of them, by the names in the table of legality."""
    sim: Trial | None = None
    """None: clients do not see it there; only the promises that a seed of `make simulate` is held to do."""
    local: Trial | None = None
    """In real processes."""

    @property
    def owner(self) -> str:
        """The functions that are changed."""
        return ", ".join(str(patch) for patch in self.patches)

    def trial(self, world: str) -> Trial | None:
        return self.sim if world == "sim" else self.local

    def apply(self) -> Undo:
        """Plants it into this process; what it gives takes it back."""
        before = [(patch, patch.owner.__dict__[patch.attribute]) for patch in self.patches]
        for patch, original in before:
            setattr(patch.owner, patch.attribute, patch.mistake(original))

        def undo() -> None:
            for patch, original in reversed(before):
                setattr(patch.owner, patch.attribute, original)

        return undo


@contextmanager
def planted(plant: Plant | None) -> Iterator[None]:
    """This process has the mistake for the length of the block; None: nothing changes."""
    if plant is None:
        yield
        return
    undo = plant.apply()
    try:
        yield
    finally:
        undo()
