"""The checkers that judge a run."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checkers.availability import Availability
from checkers.bank_transfers import BankChecker
from checkers.commits import Commits
from checkers.convergence import Convergence
from checkers.cycles import Cycles
from checkers.delayed_records import DelayedChecker
from checkers.eos_once import OnceChecker
from checkers.epochs import StaleEpochs
from checkers.fences_zombies import FencesChecker
from checkers.group_owners import GroupChecker
from checkers.hostile import HostileClients
from checkers.lag import Lag
from checkers.loss import Loss
from checkers.metadata_topics import MetadataChecker
from checkers.offsets import Offsets
from checkers.offsets_registers import SESSION_MS, RegistersChecker
from checkers.order import PollOrder, SendOrder
from checkers.reads import Reads
from checkers.replicas import Replicas
from checkers.rights import RightsChecker
from checkers.set_elements import ElementsChecker
from checkers.share_records import ShareChecker
from checkers.stats import Stats
from checkers.table_keys import TableChecker
from checkers.two_phase import TwoPhaseChecker
from checkers.verdict import Checker, Verdict, merge
from histories.recorder import HistoryError
from share_exchanges import LIMIT, LOCK_MS

RECREATES_TOPICS = ("metadata", "share")
"""Workloads that delete topics and make others of the same name."""


def of_workload(run: Mapping[str, Any]) -> Sequence[Checker]:
    """Checkers of what clients did and saw. `run` is the content of `run.json`; ValueError if it names no workload."""
    options = run.get("options") or {}
    if not isinstance(options, Mapping):
        raise ValueError("its options are no object")

    def given(*names: str) -> dict[str, Any]:
        return {name: options[name] for name in names if name in options}

    match run.get("workload"):
        case "queue" | "list-append" | "tiered" as workload:
            return standard(workload)
        case "txn-eos":
            return (OnceChecker(idempotence=True),)
        case "bank":
            return (BankChecker(**given("isolation")),)
        case "set":
            return (ElementsChecker(**given("idempotence")),)
        case "group":
            protocol = {"protocol": options["group_protocol"]} if "group_protocol" in options else {}
            return (GroupChecker(**given("idempotence"), **protocol), Commits())
        case "offsets":
            settings = run.get("settings") or {}
            return (RegistersChecker(int(settings.get("broker.session.timeout.ms", SESSION_MS))), Commits())
        case "metadata":
            return (MetadataChecker(),)
        case "fences":
            return (FencesChecker(),)
        case "rights":
            return (RightsChecker(allow_everyone=options.get("more", {}).get("allow_everyone") == "true"),)
        case "share":
            more = options.get("more", {})
            return (ShareChecker(limit=int(more.get("limit", LIMIT)), lock_ms=int(more.get("lock_ms", LOCK_MS))),)
        case "delayed":
            return (DelayedChecker(**given("idempotence")),)
        case "table":
            return (TableChecker(),)
        case "two-phase":
            return (TwoPhaseChecker(),)
        case other:
            raise ValueError(f"there is no workload {other}")


def standard(workload: str) -> Sequence[Checker]:
    """Checkers of workloads that send and poll keys: `queue`, `tiered` and `list-append`. The checkers read from the
    history's `run.json` what is legal under the run's options."""
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
    """Checkers of any workload: behaviour of replicas, waiting times of clients, and whether anything was done."""
    budgets = run.get("budgets") or {}
    return (
        Replicas(recreated=run.get("workload") in RECREATES_TOPICS),
        Convergence(),
        Availability({str(kind): float(seconds) for kind, seconds in budgets.items()}),
        HostileClients(),
        Stats(),
    )


def check_all(history: Any, checkers: Sequence[Checker]) -> Verdict:
    """Everything that was found, by everyone. Raises HistoryError as `check_one` does."""
    return merge({checker.name: check_one(checker, history) for checker in checkers})


def check_one(checker: Checker, history: Any) -> Verdict:
    """Raises HistoryError, one line, if a history holds what its workload never records: every line of it is an
    operation, but what it did is not what the checker reads."""
    try:
        return checker.check(history)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        raise HistoryError(f"the checker of {checker.name} cannot read this history: {cause} ({where})") from error
