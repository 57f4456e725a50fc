"""Leaders that accepted a write after a newer leader had, by the epochs in responses and by the nodes' views.

Each batch carries the epoch of the leader that appended it, in every copy; and every leader appends after everything
that leaders before it committed. So an offset always has one epoch, and epochs never go back from one offset to the
next. Kafka's response to a producer has no epoch: the epoch of a record is the one that readers got for its offset,
unless a client knows better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from checkers.arrays import Bools, Ints, first_in, pair_codes, running_max_in_runs, starts_of_runs
from checkers.budget_of_loss import broker_number, budget_of
from checkers.gathering import Gathered, in_order
from checkers.verdict import Finding, Verdict
from histories.history import OK, POLL, SEND, UNKNOWN, Epochs, History
from operations import place_of


@dataclass(frozen=True)
class StaleEpochs:
    """Finds acknowledgements of a leader whose epoch is below one that was already acknowledged."""

    name: str = "epochs"

    def check(self, history: History) -> Verdict:
        gathered = Gathered()
        claims = _Claims.of(history)
        self._by_answers(history, claims, gathered)
        self._by_reads(history, claims, gathered)
        self._by_views(history, gathered)
        figures = {
            "answers with an epoch": len(history.epochs.line),
            "reads with an epoch": int((history.micro.leader_epoch >= 0).sum()),
        }
        return gathered.verdict(figures)

    def _by_reads(self, history: History, claims: _Claims, gathered: Gathered) -> None:
        """Each offset has one epoch, and epochs never go back along offsets, in responses to readers and to
        producers."""
        budget = budget_of(history)

        def gone(pair: tuple[int, int]) -> bool:
            """The first observation was before a loss beyond the budget."""
            first_ns = min(int(history.lines.t_ns[claims.line[row]]) for row in pair)
            return budget.excuses_key(int(claims.key[pair[0]]), first_ns)

        def describe(anomaly: str) -> Callable[[tuple[int, int], bool], Finding]:
            def finding(pair: tuple[int, int], allowed: bool) -> Finding:
                place = str(place_of(int(claims.key[pair[0]])))
                lines = in_order(claims.line[list(pair)])
                how = " and ".join(
                    f"offset {int(claims.offset[row])} in epoch {int(claims.epoch[row])} "
                    f"({'acknowledged' if claims.acked[row] else 'read'} by operation {int(claims.line[row])})"
                    for row in pair
                )
                return Finding(anomaly, place, lines, f"{place} has {how}.", allowed)

            return finding

        for anomaly, pairs in claims.contradictions().items():
            excused = gone if budget.any_loss else None
            gathered.add_apart(anomaly, pairs, describe(anomaly), legal=False, excused=excused)

    def _by_answers(self, history: History, claims: _Claims, gathered: Gathered) -> None:
        """Writes sent after an acknowledgement in a higher epoch and acknowledged in a lower one, by the epochs in
        responses and by those that readers got for the offsets."""
        invocation = history.invocations
        epochs = claims.of_answers(history)
        acked = np.flatnonzero((history.lines.type[epochs.line] == OK) & (invocation[epochs.line] >= 0))
        # Lines are written in their order of time. Answers of a key in that order, with the highest epoch so far.
        order = acked[np.argsort(pair_codes(epochs.key[acked], epochs.line[acked]), kind="stable")]
        if not len(order):
            return
        starts = starts_of_runs(epochs.key[order])
        highest = running_max_in_runs(starts, epochs.epoch[order])
        codes = pair_codes(
            np.concatenate((epochs.key[order], epochs.key[order])),
            np.concatenate((epochs.line[order], invocation[epochs.line[order]])),
        )
        before = np.searchsorted(codes[: len(order)], codes[len(order) :]) - 1
        run_starts = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
        stale = np.flatnonzero((before >= run_starts) & (highest[before] > epochs.epoch[order]))

        budget = budget_of(history)

        def newest_before(place: int) -> int:
            earlier = order[run_starts[place] : before[place] + 1]
            return int(earlier[np.argmax(epochs.epoch[earlier])])

        def gone(place: int) -> bool:
            newest = newest_before(place)
            return budget.excuses_key(int(epochs.key[newest]), int(history.lines.t_ns[epochs.line[newest]]))

        def describe(place: int, allowed: bool) -> Finding:
            row, newest = int(order[place]), newest_before(place)
            where = str(place_of(int(epochs.key[row])))
            lines = [int(epochs.line[newest]), int(epochs.line[row])]
            return Finding(
                "stale-epoch-accept",
                where,
                lines,
                f"Operation {lines[1]} was sent to {where} after {lines[0]} had been acknowledged in leader epoch "
                f"{int(epochs.epoch[newest])}, and was acknowledged in epoch {int(epochs.epoch[row])}.",
                allowed,
            )

        excused = gone if budget.any_loss else None
        gathered.add_apart("stale-epoch-accept", stale.tolist(), describe, legal=False, excused=excused)

    def _by_views(self, history: History, gathered: Gathered) -> None:
        """A leader committed offsets above the end that a newer leader had when it was first seen.

        Advancing its high watermark is not enough: fetches of its followers may have been held up in a link or before a
        paused process, and the newer leader has all of that.
        """
        views = history.views
        if not len(views):
            return
        numbers = [broker_number(node) for node in views.nodes]
        own = np.array([-2 if number is None else number for number in numbers], dtype=np.int64)
        leads = np.flatnonzero(views.leader == own[views.node])
        by_place = leads[np.lexsort((-views.leader_epoch[leads], views.look[leads], views.place[leads]))]
        starts = starts_of_runs(views.place[by_place])
        newest = running_max_in_runs(starts, views.leader_epoch[by_place])
        # The row at which each of those was seen first, and where its leader's log ended then.
        seen_first = np.maximum.accumulate(np.where(starts | starts_of_runs(newest), np.arange(len(newest)), 0))
        ends = views.log_end_offset[by_place][seen_first]
        # By replica: from one look to a later one, in the same epoch.
        order = np.lexsort((views.look[by_place], views.node[by_place], views.place[by_place]))
        rows = by_place[order]
        now, then = rows[1:], rows[:-1]
        same = (views.place[now] == views.place[then]) & (views.node[now] == views.node[then])
        same &= (views.leader_epoch[now] == views.leader_epoch[then]) & (
            views.high_watermark[now] > views.high_watermark[then]
        )
        same &= (newest[order[:-1]] > views.leader_epoch[then]) & (views.high_watermark[now] > ends[order[:-1]])

        def describe(row: int) -> Finding:
            place, node = views.places[views.place[row]], views.nodes[views.node[row]]
            seconds = views.looked_ns[views.look[row]] / 1e9
            return Finding(
                "stale-epoch-accept",
                str(place),
                (),
                f"{node} led {place} in epoch {int(views.leader_epoch[row])} and moved its high watermark to "
                f"{int(views.high_watermark[row])} by {seconds:.1f} s, after a leader of a higher epoch was seen, "
                "whose log ended before that.",
            )

        gathered.add_rows("stale-epoch-accept", now[same].tolist(), describe, legal=False)


@dataclass(frozen=True)
class _Claims:
    """Claims of responses: the record at this offset of this key was appended in this epoch."""

    key: Ints
    offset: Ints
    epoch: Ints
    line: Ints
    """The `i` of the completion."""
    acked: Bools
    """By the answer to a producer; else by a reader."""

    @classmethod
    def of(cls, history: History) -> _Claims:
        micro, shown = history.micro, history.operations.shown_by
        reads = np.flatnonzero((micro.kind == POLL) & (micro.leader_epoch >= 0))
        read_line = shown[micro.operation[reads]]
        sends, epoch = _answered(history)
        return cls(
            np.concatenate((micro.key[reads], micro.key[sends])),
            np.concatenate((micro.offset[reads], micro.offset[sends])),
            np.concatenate((micro.leader_epoch[reads], epoch)),
            np.concatenate((read_line, shown[micro.operation[sends]])),
            np.arange(len(reads) + len(sends)) >= len(reads),
        )

    def contradictions(self) -> Mapping[str, list[tuple[int, int]]]:
        """By anomaly: rows that cannot both be. Most histories have none, and that is soon seen: then the first and
        last record of each stretch of one epoch are in one order with all others."""
        found: dict[str, list[tuple[int, int]]] = {}
        ends = self._ends_of_stretches()
        suspects = np.unique(self.key[ends[self._goes_back(ends)]])
        if not len(suspects):
            return found
        rows = np.flatnonzero(np.isin(self.key, suspects))
        order = rows[np.lexsort((self.epoch[rows], self.offset[rows], self.key[rows]))]
        new_key = starts_of_runs(self.key[order])
        new_slot = new_key | starts_of_runs(self.offset[order])
        first = np.flatnonzero(new_slot)
        last = np.append(first[1:], len(order)) - 1
        low, high = order[first], order[last]
        # At one offset. Equal neighbours are one finding.
        torn = self.epoch[low] != self.epoch[high]
        neighbours = np.zeros(len(low), dtype=np.bool_)
        neighbours[1:] = torn[1:] & torn[:-1] & (self.key[low][1:] == self.key[low][:-1])
        neighbours[1:] &= (self.epoch[low][1:] == self.epoch[low][:-1]) & (
            self.epoch[high][1:] == self.epoch[high][:-1]
        )
        for slot in np.flatnonzero(torn & ~neighbours).tolist():
            pair = int(low[slot]), int(high[slot])
            mixed = bool(np.ptp(self.acked[order[first[slot] : last[slot] + 1]].astype(np.int64)))
            found.setdefault("acked-in-other-epoch" if mixed else "two-epochs", []).append(pair)
        # From one offset to the next, of those that have one epoch.
        whole = low[~torn]
        starts = starts_of_runs(self.key[whole])
        highest = running_max_in_runs(starts, self.epoch[whole])
        back = np.zeros(len(whole), dtype=np.bool_)
        back[1:] = (
            ~starts[1:] & (self.epoch[whole][1:] < highest[:-1]) & (self.epoch[whole][1:] != self.epoch[whole][:-1])
        )
        for place in np.flatnonzero(back).tolist():
            begin = int(np.flatnonzero(starts[: place + 1])[-1])
            behind = begin + int(np.argmax(self.epoch[whole[begin:place]] == highest[place - 1]))
            pair = int(whole[behind]), int(whole[place])
            anomaly = "acked-in-other-epoch" if self.acked[list(pair)].any() else "epochs-went-back"
            found.setdefault(anomaly, []).append(pair)
        return found

    def _ends_of_stretches(self) -> Ints:
        """Rows: of neighbours by the same operation in the same epoch of the same key the first and the last."""
        if not len(self.key):
            return np.empty(0, dtype=np.int64)
        starts = starts_of_runs(self.line) | starts_of_runs(self.key) | starts_of_runs(self.epoch)
        starts[1:] |= self.offset[1:] < self.offset[:-1]
        ends = np.append(starts[1:], True)
        found: Ints = np.flatnonzero(starts | ends)
        return found

    def _goes_back(self, rows: Ints) -> Bools:
        """Mask over `rows`: a claim at a lower or equal offset has a higher epoch."""
        order = np.lexsort((-self.epoch[rows], self.offset[rows], self.key[rows]))
        ordered = rows[order]
        highest = running_max_in_runs(starts_of_runs(self.key[ordered]), self.epoch[ordered])
        found = np.zeros(len(rows), dtype=np.bool_)
        found[order] = highest > self.epoch[ordered]
        return found

    def of_answers(self, history: History) -> Epochs:
        """Epoch in which each send was acknowledged: from its response, else from reads of its offset."""
        micro, shown = history.micro, history.operations.shown_by
        sends = np.flatnonzero(
            (micro.kind == SEND) & (micro.offset != UNKNOWN) & (history.operations.outcome[micro.operation] == OK)
        )
        reads = np.flatnonzero(~self.acked)
        given = history.epochs
        if not len(sends) or not len(reads):
            return given
        codes = pair_codes(
            np.concatenate((self.key[reads], micro.key[sends])),
            np.concatenate((self.offset[reads], micro.offset[sends])),
        )
        known, rows = np.unique(codes[: len(reads)], return_index=True)
        at = first_in(known, codes[len(reads) :])
        line, key = shown[micro.operation[sends]], micro.key[sends]
        seen = at >= 0
        if len(given.line):
            # A response with an epoch needs no reader.
            both = pair_codes(np.concatenate((given.line, line)), np.concatenate((given.key, key)))
            seen &= ~np.isin(both[len(given.line) :], both[: len(given.line)])
        return Epochs(
            np.concatenate((given.line, line[seen])),
            np.concatenate((given.key, key[seen])),
            np.concatenate((given.epoch, self.epoch[reads[rows[at[seen]]]])),
        )


def _answered(history: History) -> tuple[Ints, Ints]:
    """(rows of sends, leader epoch) of those whose response had both offset and epoch."""
    micro, epochs, shown = history.micro, history.epochs, history.operations.shown_by
    sends = np.flatnonzero(
        (micro.kind == SEND) & (micro.offset != UNKNOWN) & (history.operations.outcome[micro.operation] == OK)
    )
    if not len(epochs.line) or not len(sends):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    codes = pair_codes(
        np.concatenate((epochs.line, shown[micro.operation[sends]])), np.concatenate((epochs.key, micro.key[sends]))
    )
    known, rows = np.unique(codes[: len(epochs.line)], return_index=True)
    at = first_in(known, codes[len(epochs.line) :])
    return sends[at >= 0], epochs.epoch[rows[at[at >= 0]]]
