"""The order in which processes see and make values: polls that skip or go back, sends that overtake each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.arrays import Bools, Ints, pair_codes, running_max_in_runs, starts_of_runs
from checkers.budget_of_loss import budget_of
from checkers.gathering import Gathered, in_order
from checkers.legality import Conditions, Via, is_legal
from checkers.verdict import Finding, Verdict
from checkers.versions import Versions, versions_of
from histories.history import FAIL, OK, UNKNOWN, History
from operations import Place, key_of, place_of


@dataclass(frozen=True)
class PollOrder:
    """Successive values of a key inside one operation, and from a process's ok read of it to its next."""

    name: str = "poll order"
    between_operations: bool = True
    """False where each operation reads from the beginning."""

    def check(self, history: History) -> Verdict:
        versions = versions_of(history)
        gathered = Gathered()
        rows, next_rows, inside = _successive(
            history,
            np.flatnonzero(versions.read_ok),
            versions.read_operation,
            versions.value_key[versions.read_value],
        )
        distance = versions.read_index[next_rows] - versions.read_index[rows]
        conditions = Conditions.of_run(history.run)
        consumers = _Consumers(history)
        operations, budget = history.operations, budget_of(history)

        def note(anomaly: str, chosen: Bools, within: bool) -> None:
            legal: list[tuple[int, int]] = []
            illegal: list[tuple[int, int]] = []
            for row, next_row in zip(rows[chosen].tolist(), next_rows[chosen].tolist(), strict=True):
                key = int(versions.value_key[versions.read_value[row]])
                earlier, later = int(versions.read_operation[row]), int(versions.read_operation[next_row])
                if within:
                    if consumers.rebalanced(later, key):
                        continue
                    allowed = is_legal(anomaly, conditions)
                else:
                    via = consumers.via_between(int(operations.process[later]), key, earlier, later)
                    if via is None:
                        continue
                    allowed = is_legal(anomaly, conditions._replace(via=via))
                # A log that was cut is read on from elsewhere.
                allowed = allowed or budget.excuses_key(key, _ended_ns(history, earlier))
                (legal if allowed else illegal).append((row, next_row))
            for allowed, found in ((False, illegal), (True, legal)):

                def describe(pair: tuple[int, int], allowed: bool = allowed) -> Finding:
                    return _describe_polls(history, versions, anomaly, pair, allowed)

                gathered.add_rows(anomaly, found, describe, legal=allowed)

        note("int-poll-skip", inside & (distance > 1), True)
        note("int-nonmonotonic-poll", inside & (distance < 1), True)
        if self.between_operations:
            note("poll-skip", ~inside & (distance > 1), False)
            note("nonmonotonic-poll", ~inside & (distance < 1), False)
        return gathered.verdict()


@dataclass(frozen=True)
class SendOrder:
    """Order of successive sends of a process to a key, and of all sends in time."""

    name: str = "send order"

    def check(self, history: History) -> Verdict:
        versions, operations = versions_of(history), history.operations
        gathered = Gathered()
        placed = np.flatnonzero(versions.send_index != UNKNOWN)
        key = versions.value_key[versions.send_value]
        rows, next_rows, inside = _successive(history, placed, versions.send_operation, key)
        distance = versions.send_index[next_rows] - versions.send_index[rows]
        conditions, budget = Conditions.of_run(history.run), budget_of(history)

        def gone(pair: tuple[int, int]) -> bool:
            """The first was acknowledged before a loss beyond the budget: the other may precede it."""
            sent = int(versions.send_operation[pair[0]])
            return budget.excuses_key(int(versions.value_key[versions.send_value[pair[0]]]), _ended_ns(history, sent))

        excused = gone if budget.any_loss else None

        def describe(anomaly: str) -> Callable[[tuple[int, int], bool], Finding]:
            return lambda pair, legal: _describe_sends(history, versions, anomaly, pair, legal)

        def note(anomaly: str, chosen: Bools) -> None:
            pairs = list(zip(rows[chosen].tolist(), next_rows[chosen].tolist(), strict=True))
            allowed = is_legal(anomaly, conditions)
            gathered.add_apart(anomaly, pairs, describe(anomaly), legal=allowed, excused=excused)

        note("nonmonotonic-send", ~inside & (distance < 0))
        note("int-nonmonotonic-send", inside & (distance < 0))
        note("int-send-skip", inside & (distance > 1))

        never = len(history)
        sent_by = versions.send_operation[placed]
        acked = np.where(operations.outcome == OK, operations.completed, never)[sent_by]
        sent = operations.invoked[sent_by]
        found, pair_of = _overtaken(versions, placed, acked, sent)
        bugs, bug_of = found, pair_of
        if budget.any_loss:
            lost = budget.excuses_keys(key[placed], history.lines.t_ns[operations.shown_by[sent_by]])
            bugs, bug_of = _overtaken(versions, placed, np.where(lost, never, acked), sent)
        rest = np.setdiff1d(found, bugs)
        for allowed, places, pairs in ((False, bugs, bug_of), (True, rest, pair_of)):

            def describe_overtaken(place: int, allowed: bool = allowed, pairs: PairOf = pairs) -> Finding:
                return _describe_sends(history, versions, "reordered-send", pairs(place), allowed)

            gathered.add_rows("reordered-send", places.tolist(), describe_overtaken, legal=allowed)
        return gathered.verdict()


PairOf = Callable[[int], tuple[int, int]]


def _overtaken(versions: Versions, placed: Ints, acked: Ints, sent: Ints) -> tuple[Ints, PairOf]:
    """(places in the order of the logs, a place to rows of sends): a send, and one that stands behind it in the log and
    was acknowledged before it was sent.

    It compares each with the earliest acknowledgement of those behind it in the log; two at one place prove nothing.
    """
    key, index = versions.value_key[versions.send_value[placed]], versions.send_index[placed]
    order = np.lexsort((-index, key))
    starts = starts_of_runs(key[order])
    best = -running_max_in_runs(starts, -acked[order])
    places = np.arange(len(order))
    first_here = starts | starts_of_runs(index[order])
    behind = np.maximum.accumulate(np.where(first_here, places, 0)) - 1 if len(order) else places
    run_start = np.maximum.accumulate(np.where(starts, places, 0)) if len(order) else places
    found: Ints = np.flatnonzero((behind >= run_start) & (best[behind] < sent[order]))

    def pair_of(place: int) -> tuple[int, int]:
        low = int(run_start[place])
        other = low + int(np.argmin(acked[order][low : int(behind[place]) + 1]))
        return int(placed[order[other]]), int(placed[order[place]])

    return found, pair_of


def _ended_ns(history: History, operation: int) -> int:
    return int(history.lines.t_ns[history.operations.shown_by[operation]])


def _successive(history: History, chosen: Ints, operation: Ints, key: Ints) -> tuple[Ints, Ints, Bools]:
    """Rows of the same process and key that follow each other, and whether they are of one operation."""
    codes = pair_codes(history.operations.process[operation[chosen]], key[chosen])
    order = np.argsort(codes, kind="stable")
    ordered = chosen[order]
    joined = ~starts_of_runs(codes[order])[1:]
    rows, next_rows = ordered[:-1][joined], ordered[1:][joined]
    return rows, next_rows, operation[rows] == operation[next_rows]


def _describe_polls(history: History, versions: Versions, anomaly: str, pair: tuple[int, int], legal: bool) -> Finding:
    row, next_row = pair
    key = int(versions.value_key[versions.read_value[row]])
    values = [int(versions.value[versions.read_value[each]]) for each in pair]
    offsets = [int(versions.read_offset[each]) for each in pair]
    shown = history.operations.shown_by
    ops = [int(shown[versions.read_operation[each]]) for each in pair]
    process = int(history.operations.process[versions.read_operation[row]])
    distance = int(versions.read_index[next_row] - versions.read_index[row])
    others = f"{distance - 1} {'other' if distance == 2 else 'others'}"
    what = f"past {others}" if distance > 1 else ("to itself" if distance == 0 else "back")
    if distance > 1:
        # The writers of the skipped records belong to the evidence.
        start = int(np.searchsorted(versions.slot_key, key)) + int(versions.read_index[row])
        low, high = np.searchsorted(versions.held_slot, (start + 1, start + distance))
        writers = versions.writer[versions.held_value[low : min(high, low + 3)]]
        ops += [int(shown[writer]) for writer in writers if writer != UNKNOWN]
    return Finding(
        anomaly,
        str(place_of(key)),
        in_order(ops),
        f"Process {process} polled {values[0]} at offset {offsets[0]} of {place_of(key)} and next {values[1]} at "
        f"offset {offsets[1]}: {what}.",
        legal,
    )


def _describe_sends(history: History, versions: Versions, anomaly: str, pair: tuple[int, int], legal: bool) -> Finding:
    rows = versions.send_operation[list(pair)]
    key = int(versions.value_key[versions.send_value[pair[0]]])
    values = [int(versions.value[versions.send_value[each]]) for each in pair]
    indexes = [int(versions.send_index[each]) for each in pair]
    processes = history.operations.process[rows].tolist()
    return Finding(
        anomaly,
        str(place_of(key)),
        in_order(history.operations.shown_by[rows]),
        f"Process {processes[0]} sent {values[0]} to {place_of(key)}, then process {processes[1]} {values[1]}: "
        f"they stand at the places {indexes[0]} and {indexes[1]} of its order.",
        legal,
    )


class _Consumers:
    """How processes got their partitions, as far as known; used only if something looks wrong."""

    def __init__(self, history: History) -> None:
        self._history = history
        operations = history.operations
        self._changes: dict[int, list[int]] = {}
        """Process to the rows of its assigns and subscribes, without those that surely did not happen."""
        for row in np.flatnonzero(history.called("assign", "subscribe") & (operations.outcome != FAIL)).tolist():
            self._changes.setdefault(int(operations.process[row]), []).append(row)
        self._read: dict[int, tuple[Via, frozenset[int] | None]] = {}
        self._default: Via = "assign"

    def via_between(self, process: int, key: int, earlier: int, later: int) -> Via | None:
        """How the process held the key from one operation to the other; None if unknown, or if its position may have
        changed in the meantime."""
        changes = self._changes.get(process, [])
        low, high = bisect_right(changes, earlier), bisect_left(changes, later)
        via = self._change(changes[low - 1])[0] if low else self._default
        if low and self._history.operations.outcome[changes[low - 1]] != OK:
            # It is unknown whether it had the key by this assignment or by the one before.
            return None
        for row in changes[low:high]:
            next_via, kept = self._change(row)
            if kept is None or key not in kept or next_via != via:
                return None
        return via

    def rebalanced(self, row: int, key: int) -> bool:
        """The key came or went during the operation."""
        completed = int(self._history.operations.completed[row])
        rebalances = self._history.note(completed).get("rebalances") or () if completed >= 0 else ()
        return any(key in _keys(rebalance.get("places") or ()) for rebalance in rebalances)

    def _change(self, row: int) -> tuple[Via, frozenset[int] | None]:
        """The kind of change, and the keys whose positions it keeps; None if none is sure to be kept."""
        if row not in self._read:
            operations = self._history.operations
            invoked, completed = int(operations.invoked[row]), int(operations.completed[row])
            asked = self._history.operation(invoked)
            via: Via = "subscribe" if asked.f == "subscribe" else "assign"
            kept: frozenset[int] | None = None
            begins = self._history.note(invoked).get("from_beginning")
            if completed >= 0:
                begins = begins or self._history.note(completed).get("from_beginning")
            value = asked.value
            if isinstance(value, dict):
                begins = begins or value.get("from_beginning")
                value = value.get("keys")
            if operations.outcome[row] == OK and not begins:
                kept = _keys(value or ())
                if via == "subscribe":
                    # Whole topics.
                    kept = frozenset(each * 2 + half for each in {key // 2 for key in kept} for half in (0, 1))
            self._read[row] = (via, kept)
        return self._read[row]


def _keys(places: Any) -> frozenset[int]:
    """Keys from keys, `[topic, partition]`, `topic-partition` and topics."""
    keys = set()
    for place in places:
        if isinstance(place, int):
            keys.add(place)
        elif isinstance(place, str):
            topic, _, partition = place.partition("-")
            keys.add(key_of(Place(topic, int(partition or 0))))
        else:
            keys.add(key_of(Place(place[0], place[1])))
    return frozenset(keys)
