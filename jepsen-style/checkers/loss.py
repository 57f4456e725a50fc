"""Acknowledged records that are lost: overtaken by later reads, or never seen until the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.arrays import Ints
from checkers.budget_of_loss import BEYOND, budget_of
from checkers.gathering import Gathered, in_order
from checkers.verdict import Finding, Verdict
from checkers.versions import Versions, versions_of
from histories.history import OK, UNKNOWN, History
from operations import place_of

POINTS = 200
"""Points of the curve of unseen values."""
WHY_UNKNOWN = "the run ended before everything was read to its end"


@dataclass(frozen=True)
class Loss:
    """Finds lost and unseen writes, and marks those that the faults excuse."""

    name: str = "loss"

    def check(self, history: History) -> Verdict:
        versions = versions_of(history)
        gathered = Gathered()
        budget = budget_of(history)
        # Without the final reads it is unknown what would have been read.
        complete = history.run.get("final_done") is not False
        found = (("lost-write", _lost(history, versions)), ("unseen", _unseen(versions)))
        for anomaly, values in found:
            writers = versions.writer[values]
            acked = history.lines.t_ns[history.operations.shown_by[writers]].tolist() if len(values) else []
            excused: list[int] = []
            bugs: list[int] = []
            for value, acked_ns in zip(values.tolist(), acked, strict=True):
                gone = budget.excuses_key(int(versions.value_key[value]), acked_ns)
                (excused if gone else bugs).append(value)
            if not complete:
                excused, bugs = excused + bugs, []
            for legal, chosen in ((False, bugs), (True, excused)):

                def describe(value: int, anomaly: str = anomaly, legal: bool = legal) -> Finding:
                    return _describe(history, versions, anomaly, value, legal and complete)

                gathered.add_rows(anomaly, chosen, describe, legal=legal)
        verdict = gathered.verdict(
            {"acknowledged": int(_acknowledged(history, versions).sum()), "unseen over time": _curve(history, versions)}
        )
        if not complete:
            return Verdict("unknown" if verdict.findings else "true", (), verdict.figures, WHY_UNKNOWN)
        return verdict


def _lost(history: History, versions: Versions) -> Ints:
    """Values that should have been read: something behind them was."""
    bound = np.where(versions.read, versions.first, UNKNOWN)
    bounds = np.full(len(np.unique(versions.value_key)), UNKNOWN, dtype=np.int64)
    _, number = np.unique(versions.value_key, return_inverse=True)
    np.maximum.at(bounds, number, bound)
    written = (versions.writer != UNKNOWN) & versions.committed[versions.writer] if len(bound) else bound > 0
    missing = written & ~versions.read & (versions.last != UNKNOWN) & (versions.last <= bounds[number])
    found: Ints = np.flatnonzero(missing)
    return found


def _acknowledged(history: History, versions: Versions) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not len(versions.writer):
        return np.zeros(0, dtype=np.bool_)
    ok = (versions.writer != UNKNOWN) & (history.operations.outcome[versions.writer] == OK)
    return np.asarray(ok, dtype=np.bool_)


def _unseen(versions: Versions) -> Ints:
    """Acknowledged, or of an operation that must have taken place, since something else of it was read: half of a
    transaction."""
    if not len(versions.writer):
        return np.zeros(0, dtype=np.int64)
    written = (versions.writer != UNKNOWN) & versions.committed[versions.writer]
    found: Ints = np.flatnonzero(written & ~versions.polled)
    return found


def _curve(history: History, versions: Versions) -> list[list[float]]:
    """[seconds, how many were acknowledged and not polled yet], at even steps."""
    if not len(history):
        return []
    chosen = _acknowledged(history, versions)
    completed_ns = history.lines.t_ns[history.operations.shown_by]
    acked = completed_ns[versions.writer[chosen]]
    never = np.iinfo(np.int64).max
    polled = np.full(len(chosen), never, dtype=np.int64)
    np.minimum.at(polled, versions.read_value, completed_ns[versions.read_operation])
    gone = np.sort(np.maximum(polled[chosen], acked))
    acked = np.sort(acked)
    times = np.linspace(int(history.lines.t_ns[0]), int(history.lines.t_ns[-1]), POINTS)
    unseen = np.searchsorted(acked, times, "right") - np.searchsorted(gone, times, "right")
    return [[round(t / 1e9, 3), int(count)] for t, count in zip(times.tolist(), unseen.tolist(), strict=True)]


def _describe(history: History, versions: Versions, anomaly: str, value: int, excused: bool) -> Finding:
    key = int(versions.value_key[value])
    shown = history.operations.shown_by
    operations = [int(shown[versions.writer[value]])]
    text = f"Value {int(versions.value[value])} of {place_of(key)}"
    acked = history.operations.outcome[versions.writer[value]] == OK
    text += " was acknowledged" if acked else " is of an operation of which something else was read"
    if anomaly == "lost-write":
        behind = (versions.value_key == key) & versions.read & (versions.first >= versions.last[value])
        later = int(np.flatnonzero(behind)[0])
        reads = versions.read_operation[(versions.read_value == later) & versions.read_ok]
        operations.append(int(shown[reads[0]]))
        text += f", the later value {int(versions.value[later])} was read, and this one never was."
    else:
        text += ", and was never polled."
    if excused:
        text += f" {BEYOND}"
    return Finding(anomaly, str(place_of(key)), in_order(operations), text, excused)
