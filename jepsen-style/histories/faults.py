"""Core: faults of a run, from the nemesis's lines: each fault with its end.

A step's invocation means that the nemesis begins to act, its info that it acted. All steps of a fault carry the same
`value["number"]`: the first is the fault itself, the last, if it is called otherwise, its end. `value["kind"]` is the
word of `--nemesis` that it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from operations import Operation

EVERYTHING = 0
"""The number of the last heal, which ends whatever is left."""


@dataclass(slots=True)
class Fault:
    """One of them."""

    number: int
    f: str
    """Function of its first step: `kill`."""
    kind: str
    """For example `flip`, though its first step may be a kill."""
    began_ns: int
    acted_ns: int | None = None
    """Completion of the first step; None if it never completed."""
    ended_ns: int | None = None
    """Completion of its end; None if it lasted to the end of the run, or has no end."""
    targets: tuple[str, ...] = ()
    value: Mapping[str, Any] = field(default_factory=dict)
    """Values of its steps; later ones override earlier ones."""
    operations: tuple[int, ...] = ()
    """The `i` of its lines."""


def pair_faults(lines: Iterable[Operation]) -> Sequence[Fault]:
    """`lines`: the nemesis's, in their order."""
    faults: dict[int, Fault] = {}
    unnumbered = 0
    for line in lines:
        value = line.value if isinstance(line.value, Mapping) else {}
        number = value.get("number")
        if not isinstance(number, int):
            # An act without number is a fault of its own, without an end.
            unnumbered -= 1
            number = unnumbered
        if number not in faults:
            faults[number] = Fault(number, line.f, str(value.get("kind", line.f)), line.t_ns)
        fault = faults[number]
        targets = value.get("targets") or fault.targets
        fault.targets = (targets,) if isinstance(targets, str) else tuple(map(str, targets))
        fault.value = {**fault.value, **value}
        fault.operations = (*fault.operations, line.i)
        if line.type != "invoke":
            if line.f == fault.f:
                fault.acted_ns = line.t_ns
            else:
                fault.ended_ns = line.t_ns
    healed = faults.get(EVERYTHING)
    for fault in faults.values():
        if healed is not None and fault.ended_ns is None and fault.number > EVERYTHING:
            fault.ended_ns = healed.acted_ns
    return sorted(faults.values(), key=lambda fault: (fault.began_ns, fault.number))
