"""Curves over a run's time, from its columns: throughput, what nobody has seen yet, how far behind consumers are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reports.facts import OK, OUTCOMES, Calls, Facts, Values
from reports.scales import Floats, Integers

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
    """How many acknowledged values no poll has given yet."""
    sends, reads, calls = facts.sends, facts.reads, facts.calls
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
    """When a poll first gave each (key, value); infinite if none did."""
    wanted, known = pair_codes(keys, values, reads)
    when = calls.end_s[reads.call]
    order = np.lexsort((when, known))
    known, first = np.unique(known[order], return_index=True)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, when[order][first][place], np.inf)


def pair_codes(keys: Integers, values: Integers, reads: Values) -> tuple[Integers, Integers]:
    """One number for each (key, value), the same in both."""
    dense_keys = np.unique(np.concatenate([keys, reads.key]), return_inverse=True)[1]
    found, dense_values = np.unique(np.concatenate([values, reads.value]), return_inverse=True)
    codes = dense_keys.astype(np.int64) * len(found) + dense_values
    return codes[: len(keys)], codes[len(keys) :]


class Lag(NamedTuple):
    """Of polls that gave something, for each span of time in which there were some."""

    t_s: Floats
    worst_s: Floats
    median_s: Floats


def lag(facts: Facts) -> Lag | None:
    """For how long, when a poll began, something newer than all that it then gave was known to be in the log."""
    behind, began = _lags(facts.sends, facts.reads, facts.calls)
    if not len(behind):
        return None
    order = np.lexsort((behind, (began / bucket_s(facts.end_s)).astype(np.int64)))
    column = (began[order] / bucket_s(facts.end_s)).astype(np.int64)
    first = np.flatnonzero(np.diff(column, prepend=-1))
    last = np.append(first[1:], len(column)) - 1
    middles = np.minimum((column[first] + 0.5) * bucket_s(facts.end_s), facts.end_s)
    return Lag(middles, behind[order][last], behind[order][(first + last) // 2])


def _lags(sends: Values, reads: Values, calls: Calls) -> tuple[Floats, Floats]:
    told = (calls.outcome[sends.call] == OK) & (sends.offset >= 0)
    key = np.concatenate([sends.key[told], reads.key])
    offset = np.concatenate([sends.offset[told], reads.offset])
    when = calls.end_s[np.concatenate([sends.call[told], reads.call])]
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
    return behind, began


def longest_gap(times: Floats, start_s: float, end_s: float) -> tuple[float, float]:
    """The longest time without any of `times` that begins within the span; when it began, and how long it was.

    `times` rise. A gap lasts to the next of them, at most to the end of the span.
    """
    low, high = np.searchsorted(times, [start_s, end_s])
    before = times[low - 1 : low] if low else np.array([start_s])
    within = np.concatenate([np.maximum(before, start_s), times[low:high], [end_s]])
    gaps = np.diff(within)
    longest = int(np.argmax(gaps))
    return float(within[longest]), float(gaps[longest])
