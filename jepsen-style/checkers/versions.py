"""Derives the order of each partition's values from a history, as far as there is evidence.

Evidence that a value stands at an offset are all polls, whatever became of their operation (a poller must only ever be
given safe data), and sends of operations that must have committed: those that are ok, and those with an unknown
outcome of which some value was read by an ok operation. (To have read what may not be committed proves nothing of the
rest.) Offsets without a value are normal (control records, aborted data): an *index* counts only offsets that hold one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.arrays import Bools, Ints, pair_codes, ranks_in_runs, starts_of_runs
from checkers.legality import Conditions
from histories.history import FAIL, INFO, OK, POLL, SEND, UNKNOWN, History


@dataclass(frozen=True)
class Versions:
    """Values are numbered: each (key, value) that was sent or read has a place in the `value` columns."""

    value_key: Ints
    value: Ints
    writer: Ints
    """Row of the operation that sent it first; one that surely failed only if there is no other. UNKNOWN if it was
    never sent."""
    first: Ints
    """Lowest index that it has; UNKNOWN if its offset is unknown."""
    last: Ints
    polled: Bools
    """By anyone."""
    read: Bools
    """By an ok operation."""

    send_operation: Ints
    send_value: Ints
    send_offset: Ints
    send_index: Ints
    """Index of the value; UNKNOWN if it has no place in the order."""

    read_operation: Ints
    """All polls."""
    read_value: Ints
    read_offset: Ints
    read_index: Ints
    read_ok: Bools
    """Its operation is ok."""

    committed: Bools
    """Over operations: it must have taken place."""

    slot_key: Ints
    """A slot is an offset that holds a value, in the order of keys and offsets."""
    slot_offset: Ints
    slot_index: Ints
    held_slot: Ints
    """Values of each slot, in order; more than one in a slot is an anomaly."""
    held_value: Ints


def versions_of(history: History) -> Versions:
    """Worked out once for each history."""
    return history.once("versions", _work_out)


def _work_out(history: History) -> Versions:
    micro, outcome = history.micro, history.operations.outcome
    codes = pair_codes(micro.key, micro.value)
    _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
    value_key, value = micro.key[firsts], micro.value[firsts]
    count = len(firsts)

    sends, reads = np.flatnonzero(micro.kind == SEND), np.flatnonzero(micro.kind == POLL)
    send_operation, send_value, send_offset = micro.operation[sends], numbers[sends], micro.offset[sends]
    read_operation, read_value, read_offset = micro.operation[reads], numbers[reads], micro.offset[reads]
    writer = np.full(count, UNKNOWN, dtype=np.int64)
    failed = outcome[send_operation] == FAIL
    for chosen in (np.flatnonzero(failed)[::-1], np.flatnonzero(~failed)[::-1]):
        writer[send_value[chosen]] = send_operation[chosen]

    read_ok = outcome[read_operation] == OK
    polled, read = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    polled[read_value] = True
    read[read_value[read_ok]] = True

    committed = outcome == OK
    if Conditions.of_run(history.run).isolation == "read_committed":
        proven = send_operation[read[send_value]]
        committed[proven[outcome[proven] == INFO]] = True

    # All evidence, each (slot, value) once.
    known = (send_offset != UNKNOWN) & committed[send_operation]
    evidence_value = np.concatenate((read_value, send_value[known]))
    evidence_offset = np.concatenate((read_offset, send_offset[known]))
    evidence_key = value_key[evidence_value]
    order = np.lexsort((evidence_value, evidence_offset, evidence_key))
    key, offset, held = evidence_key[order], evidence_offset[order], evidence_value[order]
    new_slot = _changes(key, offset)
    once = new_slot | starts_of_runs(held)
    slot_of_row = np.cumsum(new_slot) - 1
    slot_key, slot_offset = key[new_slot], offset[new_slot]
    slot_index = ranks_in_runs(starts_of_runs(slot_key))
    held_slot, held_value = slot_of_row[once], held[once]

    held_index = slot_index[held_slot]
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, UNKNOWN, dtype=np.int64)
    np.minimum.at(first, held_value, held_index)
    np.maximum.at(last, held_value, held_index)
    first[last == UNKNOWN] = UNKNOWN

    slots = np.empty(len(order), dtype=np.int64)
    slots[order] = slot_of_row
    read_index = slot_index[slots[: len(reads)]]
    return Versions(
        value_key,
        value,
        writer,
        first,
        last,
        polled,
        read,
        send_operation,
        send_value,
        send_offset,
        np.where(committed[send_operation], first[send_value], UNKNOWN),
        read_operation,
        read_value,
        read_offset,
        read_index,
        read_ok,
        committed,
        slot_key,
        slot_offset,
        slot_index,
        held_slot,
        held_value,
    )


def _changes(key: Ints, offset: Ints) -> Bools:
    return starts_of_runs(key) | starts_of_runs(offset)


def offset_at(versions: Versions, key: int, index: int) -> int:
    """Offset of an index of a key."""
    start = int(np.searchsorted(versions.slot_key, key))
    return int(versions.slot_offset[start + index])
