"""Curves over the time of a run: throughput, values that no poll returned yet, and the lag of consumers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.arrays import first_in, pair_codes, running_max_in_runs, starts_of_runs
from reports.facts import OK, OUTCOMES, Calls, Facts
from reports.scales import Floats, Integers
from reports.values import Values, decided

_BUCKETS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0)


class Curve(NamedTuple):
    t_s: Floats
    value: Floats


def bucket_s(end_s: float) -> float:
    """A second where that is fine enough; at most 600 of them in a run."""
    least = max(end_s / 600, 0.1 if end_s < 10 else 0.5 if end_s < 30 else 1.0)
    return next((each for each in _BUCKETS if each >= least), least)


def throughput(calls: Calls, end_s: float) -> dict[str, Curve]:
    """Completions for each second, by outcome."""
    width = bucket_s(end_s)
    done = calls.completed >= 0
    edges = np.arange(0, end_s + width, width)
    middles = np.minimum(edges[:-1] + width / 2, end_s)
    return {
        outcome: Curve(middles, np.histogram(calls.end_s[done & (calls.outcome == code)], edges)[0] / width)
        for code, outcome in enumerate(OUTCOMES)
    }


def unseen(facts: Facts) -> Curve | None:
    """Number of acknowledged values that no poll has returned yet."""
    return facts.history.once("report: unseen", lambda _: _unseen(facts))


def _unseen(facts: Facts) -> Curve | None:
    sends, reads, calls = decided(facts.history, facts.sends), facts.reads, facts.calls
    acked = calls.outcome[sends.call] == OK
    if not acked.any() or not len(reads.call):
        return None
    acked_at = calls.end_s[sends.call[acked]]
    seen_at = first_seen(sends.key[acked], sends.value[acked], reads, calls)
    late = seen_at > acked_at
    times = np.concatenate([acked_at[late], seen_at[late & np.isfinite(seen_at)]])
    change = np.ones(len(times))
    change[late.sum() :] = -1
    order = np.argsort(times, kind="stable")
    return Curve(
        np.concatenate([[0.0], times[order], [facts.end_s]]),
        np.concatenate([[0.0], np.cumsum(change[order]), [change.sum()]]),
    )


def first_seen(keys: Integers, values: Integers, reads: Values, calls: Calls) -> Floats:
    """Time at which a poll first returned each (key, value); infinite if none did."""
    dense_keys = np.unique(np.concatenate([keys, reads.key]), return_inverse=True)[1].astype(np.int64)
    dense_values = np.unique(np.concatenate([values, reads.value]), return_inverse=True)[1].astype(np.int64)
    codes = pair_codes(dense_keys, dense_values)
    wanted, known = codes[: len(keys)], codes[len(keys) :]
    when = calls.end_s[reads.call]
    order = np.lexsort((when, known))
    known, first = np.unique(known[order], return_index=True)
    place = first_in(known, wanted)
    return np.where(place >= 0, when[order][first][place], np.inf)


class Lag(NamedTuple):
    """Lag of polls that returned records, for each time span that has such polls."""

    t_s: Floats
    worst_s: Floats
    median_s: Floats


def lag(facts: Facts) -> Lag | None:
    """For how long, when a poll began, something newer than all that it then gave was known to be in the log.

    Of consumers that had caught up with the key since they got it: who reads from the beginning is not behind.
    """
    return facts.history.once("report: lag", lambda _: _lag(facts))


def _lag(facts: Facts) -> Lag | None:
    behind, began = _lags(facts)
    if not len(behind):
        return None
    width = bucket_s(facts.end_s)
    column = (began / width).astype(np.int64)
    order = np.lexsort((behind, column))
    column = column[order]
    first = np.flatnonzero(starts_of_runs(column))
    last = np.append(first[1:], len(column)) - 1
    middles = np.minimum((column[first] + 0.5) * width, facts.end_s)
    return Lag(middles, behind[order][last], behind[order][(first + last) // 2])


def _lags(facts: Facts) -> tuple[Floats, Floats]:
    """Lag and beginning of the polls that count."""
    sends, reads, calls = facts.sends, facts.reads, facts.calls
    if not len(reads.call):
        return np.zeros(0), np.zeros(0)
    known = (calls.outcome[sends.call] == OK) & (sends.offset >= 0)
    key = np.concatenate([sends.key[known], reads.key])
    offset = np.concatenate([sends.offset[known], reads.offset])
    when = calls.end_s[np.concatenate([sends.call[known], reads.call])]
    order = np.lexsort((when, key))
    key, offset, when = key[order], offset[order], when[order]
    # The last offset that each poll gave of each key.
    by_poll = np.lexsort((reads.offset, reads.call, reads.key))
    read_key, read_call = reads.key[by_poll], reads.call[by_poll]
    ends = np.flatnonzero((np.diff(read_key, append=-1) != 0) | (np.diff(read_call, append=-1) != 0))
    read_key, read_call, reached = read_key[ends], read_call[ends], reads.offset[by_poll][ends]
    began = calls.start_s[read_call]
    behind = np.zeros(len(ends))
    for each in np.unique(read_key):
        low, high = np.searchsorted(key, [each, each + 1])
        rows = slice(*np.searchsorted(read_key, [each, each + 1]))
        highest = np.maximum.accumulate(offset[low:high])
        newer = np.searchsorted(highest, reached[rows], side="right")
        newer_at = np.append(when[low:high], np.inf)[newer]
        behind[rows] = np.maximum(0.0, began[rows] - newer_at)
    counts = _caught_up(facts, read_key, read_call, behind) & (began <= calls.start_s[sends.call].max(initial=0.0))
    return behind[counts], began[counts]


def _caught_up(facts: Facts, key: Integers, call: Integers, behind: Floats) -> npt.NDArray[np.bool_]:
    """Mask of the polls whose process had reached the key's end since its last assignment."""
    calls = facts.calls
    given = np.flatnonzero(facts.history.called("assign", "subscribe"))
    # Processes and times in one order; how many grants of its own process stand before a poll.
    process = np.concatenate([calls.process[given], calls.process[call]])
    when = np.concatenate([calls.start_s[given], calls.start_s[call]])
    order = np.lexsort((when, process))
    is_grant = np.concatenate([np.ones(len(given), np.int64), np.zeros(len(call), np.int64)])
    stint = np.empty(len(order), np.int64)
    stint[order] = np.cumsum(is_grant[order]) + np.cumsum(starts_of_runs(process[order]))
    of_poll = stint[len(given) :]
    order = np.lexsort((calls.start_s[call], of_poll, key))
    starts = starts_of_runs(pair_codes(key[order], of_poll[order]))
    had = np.empty(len(order), np.bool_)
    had[order] = running_max_in_runs(starts, (behind[order] == 0).astype(np.int64)) > 0
    return had
