"""Well-known mistakes of coordinators, planted into running brokers: the promises must find each within a few seeds.

They are caught by the same checks that every seed runs under; nothing here looks for a particular one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

import pytest

from barnabas.cluster.simulation.seed import run_seed
from barnabas.cluster.simulation.swarm import GroupPlan, Plan, draw_plan
from broker.coordinator.outcome import Reply
from broker.coordinator.shard import Shard
from broker.groups.classic_group import ClassicGroup
from broker.groups.offsets import Offsets
from broker.transactions.markers import MarkerWriter
from broker.transactions.transaction import Transaction
from protocol.messages.sync_group import SyncGroupResponse
from runtime.simulated import Universe
from storage.aborted import AbortedIndex
from storage.log import PartitionLog

SEEDS = 12


def plans(kind: str, first: int = 9) -> Iterator[tuple[int, Plan]]:
    """Seeds from `first` on with groups, or with transactions, and their plans; all groups are classic."""
    for seed in count(first):
        plan = draw_plan(Universe(seed).stream("plan"))
        if kind == "groups" and plan.groups:
            yield seed, replace(plan, groups=(classic(plan.groups[0]),))
        if kind == "transactions" and plan.transactions is not None:
            transform = classic(plan.transactions.transform)
            yield seed, replace(plan, transactions=replace(plan.transactions, transform=transform))


def classic(group: GroupPlan) -> GroupPlan:
    return replace(group, protocol="classic", assignors=group.assignors or ("range",))


def is_found(plans: Iterator[tuple[int, Plan]]) -> bool:
    for seed, plan in islice(plans, SEEDS):
        changes = {name: getattr(plan, name) for name in ("groups", "transactions", "fault_weights")}
        if not run_seed(seed, changes=changes).passed:
            return True
    return False


def answer_before_replication(self: Shard[Any], reply: Reply, response: object, required_offset: int) -> None:
    reply.answer(response)


_route = MarkerWriter._route


def skip_a_partition(self: MarkerWriter, ending: Any, partitions: Any) -> None:
    *others, last = sorted(partitions)
    if others:
        ending.left.discard(last)
    _route(self, ending, others or [last])


_ended = Offsets.replay_marker


def commit_what_was_aborted(self: Offsets, producer: Any, committed: bool) -> None:
    _ended(self, producer, True)


_prepared = Transaction.prepared


def keep_the_epoch(self: Transaction, commit: bool, transaction_version: int, *rest: Any) -> Transaction:
    return _prepared(self, commit, 0, *rest)


_sync_response = ClassicGroup.sync_response


def give_everybody_what_the_leader_has(self: ClassicGroup, member: Any) -> SyncGroupResponse:
    return _sync_response(self, self.members.get(self.leader_id or "", member))


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize(
    ("kind", "owner", "name", "mistake"),
    [
        pytest.param("groups", ClassicGroup, "sync_response", give_everybody_what_the_leader_has, id="two owners"),
        pytest.param("transactions", MarkerWriter, "_route", skip_a_partition, id="a marker less"),
        pytest.param("transactions", Offsets, "replay_marker", commit_what_was_aborted, id="offsets of an abort"),
        pytest.param("transactions", Transaction, "prepared", keep_the_epoch, id="no new epoch"),
        pytest.param("transactions", AbortedIndex, "collect", lambda *_: ([], True), id="no aborted list"),
        pytest.param(
            "transactions",
            PartitionLog,
            "last_stable_offset",
            property(lambda self: self.high_watermark),
            id="nothing is unstable",
        ),
    ],
)
def test_a_planted_mistake_is_found(
    kind: str, owner: type, name: str, mistake: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    assert is_found(plans(kind))


@pytest.mark.feature("FI-11", "CG-03", "TX-03")
@pytest.mark.parametrize("kind", ["groups", "transactions"])
def test_answers_before_replication(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found where a coordinator is cut from its followers, but not from its clients."""
    monkeypatch.setattr(Shard, "_answer_when_committed", answer_before_replication)
    cut_off = {"isolate": 1.0, "kill at a point": 0.5}

    def restless(group: GroupPlan) -> GroupPlan:
        return replace(group, members=3, mean_life_seconds=4.0)

    assert is_found(
        (seed, replace(plan, fault_weights=cut_off, groups=tuple(map(restless, plan.groups))))
        for seed, plan in plans(kind)
    )


def with_zombies(kind: str) -> Iterator[tuple[int, Plan]]:
    """Members are cut off for longer than a session, and come back in the middle of what they did."""
    for seed, plan in plans(kind, first=1):
        plan = replace(plan, fault_weights={"isolate a client": 1.0})
        if plan.transactions is None:
            yield seed, replace(plan, groups=(long_lived(plan.groups[0]),))
        else:
            transactions = replace(plan.transactions, timeout_ms=15_000, max_block_ms=30_000)
            transactions = replace(transactions, transform=long_lived(transactions.transform))
            yield seed, replace(plan, transactions=transactions)


def long_lived(group: GroupPlan) -> GroupPlan:
    return replace(group, members=3, mean_life_seconds=1000.0, mean_stay_seconds=1000.0, api_timeout_ms=20_000)


@pytest.mark.feature("FI-11", "CG-14", "TX-04")
@pytest.mark.parametrize("kind", ["groups", "transactions"])
def test_commits_of_members_that_are_out_of_the_group(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_commit", lambda *_: None)
    assert is_found(with_zombies(kind))
