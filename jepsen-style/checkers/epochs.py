"""Leaders that took a write after a newer leader had: by the epochs that clients were told, and by what nodes say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.arrays import pair_codes, running_max_in_runs, starts_of_runs
from checkers.budget_of_loss import broker_number
from checkers.gathering import Gathered
from checkers.verdict import Finding, Verdict
from histories.history import OK, History
from operations import place_of


@dataclass(frozen=True)
class StaleEpochs:
    """Finds acknowledgements of a leader whose epoch is below one that was already acknowledged."""

    name: str = "epochs"

    def check(self, history: History) -> Verdict:
        gathered = Gathered()
        self._by_answers(history, gathered)
        self._by_views(history, gathered)
        return gathered.verdict({"answers with an epoch": len(history.epochs.line)})

    def _by_answers(self, history: History, gathered: Gathered) -> None:
        """Sent after an acknowledgement of a higher epoch, acknowledged under a lower one."""
        epochs, invocation = history.epochs, history.invocations
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

        def tell(place: int) -> Finding:
            row = int(order[place])
            earlier = order[run_starts[place] : before[place] + 1]
            newest = int(earlier[np.argmax(epochs.epoch[earlier])])
            where = str(place_of(int(epochs.key[row])))
            lines = [int(epochs.line[newest]), int(epochs.line[row])]
            return Finding(
                "stale-epoch-accept",
                where,
                lines,
                f"Operation {lines[1]} was sent to {where} after {lines[0]} had been acknowledged in leader epoch "
                f"{int(epochs.epoch[newest])}, and was acknowledged in epoch {int(epochs.epoch[row])}.",
            )

        gathered.add_rows("stale-epoch-accept", stale.tolist(), tell, legal=False)

    def _by_views(self, history: History, gathered: Gathered) -> None:
        """A leader committed what lies behind the end that a newer leader had when it was first seen.

        To move its high watermark is not enough: what its followers had told it of their logs while they followed it
        may have lain in a link that was cut, or before a process that was paused, and all of that the newer leader has.
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

        def tell(row: int) -> Finding:
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

        gathered.add_rows("stale-epoch-accept", now[same].tolist(), tell, legal=False)
