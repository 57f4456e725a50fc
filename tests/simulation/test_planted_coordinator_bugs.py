"""Well-known mistakes of coordinators, planted into running brokers: the promises must find each within a few seeds.

They are caught by the same checks that every seed runs under; nothing here looks for a particular one. The plants are
those of `jepsen-style/plants`, which the checkers there must find as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count, islice

import pytest

from barnabas.runtime.simulated.chance import make_stream
from plants.catalogue import find
from plants.plant import planted
from simulation.seed import run_seed
from simulation.swarm import CUT_OFF, PLAIN, USUAL_FAULTS, GroupPlan, Plan, TopicPlan, draw_plan

SEEDS = 20


def plans(kind: str, first: int = 9) -> Iterator[tuple[int, Plan]]:
    """Seeds from `first` on with groups, or with transactions, and their plans; all groups are classic, and clusters of
    the size, and under the faults, that all seeds have."""
    for seed in count(first):
        plan = draw_plan(partial(make_stream, seed))
        weights = {kind: weight for kind, weight in plan.fault_weights.items() if kind in USUAL_FAULTS}
        if kind == "groups that are cut off":
            weights = {CUT_OFF: 1}
        topics = tuple(on_three(topic) for topic in plan.topics)
        plan = replace(plan, fault_weights=weights, topics=topics, brokers=3, controllers=3)
        if kind.startswith("groups") and plan.groups:
            yield seed, replace(plan, groups=(classic(plan.groups[0]),))
        if kind == "transactions" and plan.transactions is not None:
            transform = classic(plan.transactions.transform)
            yield seed, replace(plan, transactions=replace(plan.transactions, transform=transform))


def on_three(topic: TopicPlan) -> TopicPlan:
    """The same topic in a cluster that has no more brokers."""
    if topic.replication_factor <= 3:
        return topic
    return replace(topic, replication_factor=3, configs={**topic.configs, "min.insync.replicas": "2"})


def classic(group: GroupPlan) -> GroupPlan:
    return replace(group, protocol="classic", assignors=group.assignors or ("range",))


def is_found(name: str, plans: Iterator[tuple[int, Plan]]) -> bool:
    with planted(find(name)):
        for seed, plan in islice(plans, SEEDS):
            changed = ("groups", "transactions", "fault_weights", "topics", "brokers", "controllers")
            changes = PLAIN | {name: getattr(plan, name) for name in changed}
            if not run_seed(seed, changes=changes).passed:
                return True
    return False


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize(
    ("kind", "name", "first"),
    [
        ("groups", "two-owners", 1),
        ("groups", "lost-commit", 25),
        ("groups that are cut off", "deposed-coordinator", 1),
        ("transactions", "marker-skipped", 1),
        ("transactions", "aborted-offsets-count", 12),
        ("transactions", "epoch-kept", 1),
        ("transactions", "no-aborted-list", 1),
        ("transactions", "last-stable-offset-too-high", 1),
        ("transactions", "no-fencing", 1),
        ("transactions", "unverified-writes", 1),
    ],
)
def test_a_planted_mistake_is_found(kind: str, name: str, first: int) -> None:
    """`first`: a seed that finds it soon, as things are today."""
    assert is_found(name, plans(kind, first))


def restless(group: GroupPlan) -> GroupPlan:
    return replace(group, members=3, mean_life_seconds=4.0)


@pytest.mark.feature("FI-11", "CG-03", "TX-03")
@pytest.mark.parametrize(("kind", "first"), [("groups", 27), ("transactions", 1)])
def test_answers_before_replication(kind: str, first: int) -> None:
    """Found where a coordinator is cut from its followers, but not from its clients."""
    cut_off = {"partition": 2, "kill-at": 1}
    cut_off_plans = (
        (seed, replace(plan, fault_weights=cut_off, groups=tuple(map(restless, plan.groups))))
        for seed, plan in plans(kind, first)
    )
    assert is_found("coordinator-answers-early", cut_off_plans)


def with_zombies(kind: str, first: int) -> Iterator[tuple[int, Plan]]:
    """Members are cut off for longer than a session, and come back in the middle of what they did."""
    for seed, plan in plans(kind, first):
        plan = replace(plan, fault_weights={"cut-client": 1})
        if plan.transactions is None:
            yield seed, replace(plan, groups=(long_lived(plan.groups[0]),))
        else:
            transactions = replace(plan.transactions, timeout_ms=15_000, max_block_ms=30_000)
            transactions = replace(transactions, transform=long_lived(transactions.transform))
            yield seed, replace(plan, transactions=transactions)


def long_lived(group: GroupPlan) -> GroupPlan:
    return replace(group, members=3, mean_life_seconds=1000.0, mean_stay_seconds=1000.0, api_timeout_ms=20_000)


@pytest.mark.feature("FI-11", "CG-14", "TX-04")
@pytest.mark.parametrize(("kind", "first"), [("groups", 1), ("transactions", 1)])
def test_commits_of_members_that_are_out_of_the_group(kind: str, first: int) -> None:
    assert is_found("strangers-commit", with_zombies(kind, first))
