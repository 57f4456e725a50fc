"""What was done to the cluster, from the nemesis's lines: each fault with its end.

A fault's invocation says that the nemesis begins to act, its info that it acted. A fault and its end carry the same
`value["number"]`; of two operations with one number, the later is the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from operations import Operation


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them."""

    number: int
    f: str
    targets: tuple[str, ...]
    value: Mapping[str, Any]
    began_ns: int
    acted_ns: int | None
    """None: it never said that it had acted."""
    ended_ns: int | None
    """When its end had acted; None: it lasted to the end of the run, or has no end."""
    operations: tuple[int, ...]
    """The `i` of its lines."""


def pair_faults(lines: Iterable[Operation]) -> Sequence[Fault]:
    """`lines`: the nemesis's, in their order."""
    faults: dict[int, Fault] = {}
    unnumbered = 0
    for line in lines:
        value = line.value if isinstance(line.value, Mapping) else {}
        number = value.get("number")
        if not isinstance(number, int):
            # An act without number (a last heal of everything, say) is a fault of its own, without an end.
            unnumbered -= 1
            number = unnumbered
        known = faults.get(number)
        if known is None:
            targets = value.get("targets") or ()
            named = tuple(targets) if not isinstance(targets, str) else (targets,)
            acted = None if line.type == "invoke" else line.t_ns
            faults[number] = Fault(number, line.f, tuple(map(str, named)), value, line.t_ns, acted, None, (line.i,))
            continue
        known = replace(known, operations=(*known.operations, line.i))
        if line.f == known.f:
            known = replace(known, acted_ns=line.t_ns, value={**known.value, **value})
        elif line.type != "invoke":
            known = replace(known, ended_ns=line.t_ns)
        faults[number] = known
    return sorted(faults.values(), key=lambda fault: (fault.began_ns, fault.number))
