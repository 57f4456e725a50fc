"""Well-known mistakes of coordinators, planted into running brokers: the promises must find each within a few seeds.

They are caught by the same checks that every seed runs under; nothing here looks for a particular one. The plants are
those of `jepsen-style/plants`, which the checkers there must find as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from running.plan import Plan
from running.swarm import CUT_OFF
from tests.simulation.plans import is_found, usual

SEEDS = 20


def plans(workload: str, first: int = 1, **changes: Any) -> Iterator[Plan]:
    """Seeds from `first` on."""
    return (usual(seed, workload, **changes) for seed in range(first, first + SEEDS))


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize(
    ("workload", "changes", "name"),
    [
        ("group", {}, "two-owners"),
        ("group", {}, "lost-commit"),
        ("group", {"nemesis": (CUT_OFF,)}, "deposed-coordinator"),
        ("txn-eos", {}, "marker-skipped"),
        ("txn-eos", {}, "aborted-offsets-count"),
        ("txn-eos", {}, "epoch-kept"),
        ("txn-eos", {}, "no-aborted-list"),
        ("txn-eos", {}, "last-stable-offset-too-high"),
        ("txn-eos", {}, "no-fencing"),
        ("txn-eos", {}, "unverified-writes"),
    ],
)
def test_a_planted_mistake_is_found(workload: str, changes: Mapping[str, Any], name: str) -> None:
    assert is_found(name, plans(workload, **changes))


@pytest.mark.feature("FI-11", "CG-03", "TX-03")
@pytest.mark.parametrize("workload", ["group", "bank"])
def test_answers_before_replication(workload: str) -> None:
    """Found where a coordinator is cut from its followers, but not from its clients."""
    faults = ("partition", "partition", "kill-at")
    assert is_found("coordinator-answers-early", plans(workload, nemesis=faults, crash_every=4.0))


@pytest.mark.feature("FI-11", "CG-14", "TX-04")
@pytest.mark.parametrize("workload", ["group", "txn-eos"])
def test_commits_of_members_that_are_out_of_the_group(workload: str) -> None:
    """Members are cut off for longer than a session, and come back in the middle of what they did."""
    patient = ("session_timeout_ms=6000", "max_block_ms=30000", "transaction_timeout_ms=15000")
    zombies = {"nemesis": ("cut-client",), "crash_every": 1_000.0, "client_config": patient}
    assert is_found("strangers-commit", plans(workload, **zombies))
