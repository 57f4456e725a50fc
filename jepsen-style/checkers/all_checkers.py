"""Which checkers a run is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checkers.availability import Availability
from checkers.commits import Commits
from checkers.convergence import Convergence
from checkers.cycles import Cycles
from checkers.epochs import StaleEpochs
from checkers.lag import Lag
from checkers.loss import Loss
from checkers.offsets import Offsets
from checkers.order import PollOrder, SendOrder
from checkers.reads import Reads
from checkers.replicas import Replicas
from checkers.stats import Stats
from checkers.verdict import Checker, Verdict, merge

RECREATES_TOPICS = ("metadata",)
"""Workloads that delete topics and make others of the same name."""


def standard(workload: str, options: object = None) -> Sequence[Checker]:
    """Of workloads whose operations are sends and polls of keys: `queue` and `list-append`. What is legal under the
    run's options the checkers read from the history's `run.json`."""
    del options
    return (
        Offsets(),
        Loss(),
        Reads(),
        PollOrder(between_operations=workload != "list-append"),
        SendOrder(),
        Cycles(),
        Cycles("realtime", "cycles in time"),
        StaleEpochs(),
        Commits(),
        Lag(),
    )


def of_every_run(run: Mapping[str, Any]) -> Sequence[Checker]:
    """Of whatever workload: how replicas behaved, how long clients waited, and whether anything was done at all."""
    budgets = run.get("budgets") or {}
    return (
        Replicas(recreated=run.get("workload") in RECREATES_TOPICS),
        Convergence(),
        Availability({str(kind): float(seconds) for kind, seconds in budgets.items()}),
        Stats(),
    )


def check_all(history: Any, checkers: Sequence[Checker]) -> Verdict:
    """Everything that was found, by everyone."""
    return merge({checker.name: checker.check(history) for checker in checkers})
