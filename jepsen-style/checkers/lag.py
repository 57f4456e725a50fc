"""Lag of readers, and repeated records. Reported, never judged.

An offset is *old* as soon as a higher one was observed. A poll whose process last read an offset
that was old when the poll was invoked lags by the time since then, if the process had been at the end of that partition
once since it was last assigned: a run ends with readings of everything from the beginning, and none of that is late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.arrays import Ints, pair_codes, running_max_in_runs, starts_of_runs
from checkers.verdict import Verdict
from checkers.versions import Versions, versions_of
from histories.history import OK, UNKNOWN, History
from operations import place_of

QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Lag:
    """Measures."""

    name: str = "lag"

    def check(self, history: History) -> Verdict:
        versions = versions_of(history)
        figures: dict[str, object] = {"polled more than once": self._again(history, versions)}
        rows, lag_ns = _lags(history, versions)
        if len(rows):
            values = np.quantile(lag_ns, QUANTILES) / 1e9
            worst = int(np.argmax(lag_ns))
            operation = versions.read_operation[rows[worst]]
            figures["realtime lag"] = {
                f"{quantile:g}": round(float(value), 3) for quantile, value in zip(QUANTILES, values, strict=True)
            }
            figures["worst"] = {
                "seconds": round(float(lag_ns[worst]) / 1e9, 3),
                "operation": int(history.operations.shown_by[operation]),
                "process": int(history.operations.process[operation]),
                "place": str(place_of(int(versions.value_key[versions.read_value[rows[worst]]]))),
            }
        return Verdict("true", (), figures)

    def _again(self, history: History, versions: Versions) -> int:
        """Values that one process's ok operations were given more than once."""
        process = history.operations.process[versions.read_operation[versions.read_ok]]
        codes = np.sort(pair_codes(process, versions.read_value[versions.read_ok]))
        return int((~starts_of_runs(codes)).sum())


def _lags(history: History, versions: Versions) -> tuple[Ints, Ints]:
    """Reads of processes that had caught up with the key, with the lag of the position before them."""
    operations = history.operations
    completed_ns = history.lines.t_ns[operations.shown_by]
    # What was known of each key's end, in the order of time.
    known = (versions.send_offset != UNKNOWN) & (operations.outcome[versions.send_operation] == OK)
    known_values = versions.send_value[known]
    known_key = np.concatenate((versions.value_key[versions.read_value], versions.value_key[known_values]))
    known_offset = np.concatenate((versions.read_offset, versions.send_offset[known]))
    known_ns = np.concatenate((completed_ns[versions.read_operation], completed_ns[versions.send_operation[known]]))
    order = np.lexsort((known_ns, known_key))
    key, at_ns = known_key[order], known_ns[order]
    highest = running_max_in_runs(starts_of_runs(key), known_offset[order])

    reads = np.flatnonzero(versions.read_ok)
    read_key = versions.value_key[versions.read_value[reads]]
    process = operations.process[versions.read_operation[reads]]
    by_reader = np.argsort(pair_codes(process, read_key), kind="stable")
    ordered, ordered_key = reads[by_reader], read_key[by_reader]
    operation = versions.read_operation[ordered]
    # A process that was assigned again in between may have had something else to read, or started over.
    begins = starts_of_runs(pair_codes(process, read_key)[by_reader])
    begins[1:] |= np.diff(_assignments(history)[operation]) != 0

    codes = pair_codes(
        np.concatenate((key, ordered_key)),
        np.concatenate((highest, versions.read_offset[ordered] + 1)),
    )
    places = np.searchsorted(codes[: len(key)], codes[len(key) :])
    # Past the last known offset of its key: nothing newer was ever known.
    inside = places < len(key)
    inside[inside] = key[places[inside]] == ordered_key[inside]
    invoked_ns = history.lines.t_ns[operations.invoked[operation]]
    old_ns = np.full(len(ordered), np.iinfo(np.int64).max)
    old_ns[inside] = at_ns[places[inside]]

    # A reader that was never at the end reads records from before its start, and does not lag.
    caught_up = running_max_in_runs(begins, (old_ns >= invoked_ns).astype(np.int64)) > 0
    counts = np.flatnonzero(~begins[1:] & (operation[1:] != operation[:-1]) & inside[:-1] & caught_up[:-1])
    return ordered[counts + 1], np.maximum(0, invoked_ns[counts + 1] - old_ns[counts])


def _assignments(history: History) -> Ints:
    """Over operations: how often their process had been assigned or subscribed before."""
    order = np.argsort(history.operations.process, kind="stable")
    counts = np.empty(len(order), dtype=np.int64)
    # Over all processes: only compared inside of one.
    counts[order] = np.cumsum(history.called("assign", "subscribe")[order])
    return counts
