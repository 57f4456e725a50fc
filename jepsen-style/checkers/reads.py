"""Forbidden reads: aborted, not yet committed, or never sent values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.gathering import Gathered, in_order
from checkers.legality import Conditions, is_legal
from checkers.verdict import Finding, Verdict
from checkers.versions import versions_of
from histories.history import FAIL, UNKNOWN, History
from operations import place_of


@dataclass(frozen=True)
class Reads:
    """Finds aborted reads (G1a), precommitted reads and unexpected reads."""

    name: str = "reads"

    def check(self, history: History) -> Verdict:
        versions, operations = versions_of(history), history.operations
        conditions = Conditions.of_run(history.run)
        gathered = Gathered()
        shown = operations.shown_by
        rows = np.flatnonzero(versions.read_ok)
        writer = versions.writer[versions.read_value[rows]]

        def describer(anomaly: str, why: str, legal: bool) -> None:
            def describe(row: int) -> Finding:
                value = versions.read_value[row]
                reader, sender = versions.read_operation[row], versions.writer[value]
                place = place_of(int(versions.value_key[value]))
                text = f"Value {int(versions.value[value])} of {place} was read at offset {versions.read_offset[row]}"
                ops = [int(shown[reader])] if sender == UNKNOWN else [int(shown[sender]), int(shown[reader])]
                return Finding(anomaly, str(place), in_order(ops), f"{text}, {why}.", legal)

            gathered.add_rows(anomaly, chosen.tolist(), describe, legal=legal)

        chosen = rows[(writer != UNKNOWN) & (operations.outcome[writer] == FAIL)]
        describer("G1a", "whose writer surely failed", is_legal("G1a", conditions))
        chosen = rows[writer == versions.read_operation[rows]]
        is_early_legal = is_legal("precommitted-read", conditions)
        describer("precommitted-read", "by the operation that was to commit it", is_early_legal)
        chosen = rows[writer == UNKNOWN]
        describer("unexpected-read", "which was never sent", False)
        return gathered.verdict({"reads": int(versions.read_ok.sum())})
