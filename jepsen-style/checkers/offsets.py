"""Checks that each offset holds one value, and that each value is there once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.arrays import Ints, starts_of_runs
from checkers.budget_of_loss import budget_of
from checkers.gathering import Gathered, in_order
from checkers.legality import Conditions, is_legal
from checkers.verdict import Finding, Verdict
from checkers.versions import Versions, versions_of
from histories.history import History
from operations import place_of


@dataclass(frozen=True)
class Offsets:
    """Finds inconsistent offsets and duplicates."""

    name: str = "offsets"

    def check(self, history: History) -> Verdict:
        versions = versions_of(history)
        conditions = Conditions.of_run(history.run)
        gathered = Gathered()

        crowded = np.flatnonzero(np.bincount(versions.held_slot, minlength=len(versions.slot_key)) > 1)

        budget = budget_of(history)

        def gone(operations: Ints, key: int) -> bool:
            """The first of these was before a loss beyond the budget."""
            first_ns = int(history.lines.t_ns[history.operations.shown_by[operations]].min())
            return budget.excuses_key(key, first_ns)

        def slot_gone(slot: int) -> bool:
            key, offset = int(versions.slot_key[slot]), int(versions.slot_offset[slot])
            return gone(_operations_at(versions, key, offset), key)

        def value_gone(value: int) -> bool:
            operations = np.concatenate(
                (
                    versions.send_operation[versions.send_value == value],
                    versions.read_operation[versions.read_value == value],
                )
            )
            return gone(operations, int(versions.value_key[value]))

        def describe_crowded(slot: int, allowed: bool) -> Finding:
            values = versions.held_value[versions.held_slot == slot].tolist()
            key, offset = int(versions.slot_key[slot]), int(versions.slot_offset[slot])
            text = ", ".join(str(int(versions.value[value])) for value in values)
            return Finding(
                "inconsistent-offsets",
                str(place_of(key)),
                in_order(i for value in values for i in witnesses(history, versions, value, offset)),
                f"Offset {offset} of {place_of(key)} held the values {text}.",
                allowed,
            )

        gathered.add_apart(
            "inconsistent-offsets",
            crowded.tolist(),
            describe_crowded,
            legal=False,
            excused=slot_gone if budget.any_loss else None,
        )

        order = np.argsort(versions.held_value, kind="stable")
        again = ~starts_of_runs(versions.held_value[order])
        legal = is_legal("duplicate", conditions)

        def describe_duplicate(value: int, allowed: bool) -> Finding:
            slots = versions.held_slot[versions.held_value == value]
            offsets = versions.slot_offset[slots].tolist()
            place = place_of(int(versions.value_key[value]))
            return Finding(
                "duplicate",
                str(place),
                in_order(i for offset in offsets for i in witnesses(history, versions, value, offset)),
                f"Value {int(versions.value[value])} stands at the offsets {', '.join(map(str, offsets))} of {place}.",
                allowed,
            )

        doubles = np.unique(versions.held_value[order][again])
        gathered.add_apart(
            "duplicate",
            doubles.tolist(),
            describe_duplicate,
            legal=legal,
            excused=value_gone if budget.any_loss else None,
        )
        return gathered.verdict({"values": len(versions.value), "offsets with a value": len(versions.slot_key)})


def _operations_at(versions: Versions, key: int, offset: int) -> Ints:
    """Operations that show the value at an offset."""
    sent = (versions.send_offset == offset) & (versions.value_key[versions.send_value] == key)
    read = (versions.read_offset == offset) & (versions.value_key[versions.read_value] == key)
    return np.concatenate((versions.send_operation[sent], versions.read_operation[read]))


def witnesses(history: History, versions: Versions, value: int, offset: int, most: int = 3) -> list[int]:
    """The `i` of operations that show the value there; the sender first."""
    sent = versions.send_operation[(versions.send_value == value) & (versions.send_offset == offset)]
    read = versions.read_operation[(versions.read_value == value) & (versions.read_offset == offset)]
    rows = np.concatenate((sent, read))[:most]
    return [int(i) for i in history.operations.shown_by[rows]]
