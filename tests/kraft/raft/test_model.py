"""Raft as Hypothesis plays it: any order of elections, appends, crashes, cuts and snapshots, shrunk when it fails.

The replicas, the network and the promises are those of `simulated_quorum`; here the player chooses what happens
between any two deliveries, so a failure comes as the shortest story that has it. Whatever was played, the quorum
recovers once all replicas are back and the network is whole.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from barnabas.kraft.raft.history import LogHistory
from barnabas.kraft.raft.messages import RemoveVoter
from barnabas.kraft.raft.progress import Progress
from barnabas.kraft.raft.voter_changes import VoterChanges
from barnabas.kraft.raft.voters import ReplicaKey
from tests.examples import examples
from tests.kraft.raft.simulated_quorum import Node, Quorum
from tests.kraft.raft.voter_mistakes import a_change_before_a_commit, by_id_alone, two_changes_at_once

VOTERS, OBSERVERS = 3, 1
ids = st.integers(1, VOTERS + OBSERVERS)


class RaftModel(RuleBasedStateMachine):
    quorum: Quorum

    @initialize(
        seed=st.integers(0, 2**16),
        delay_ms=st.sampled_from([1, 4, 60]),
        sync_ms=st.sampled_from([1, 6, 60]),
        evidence=st.booleans(),
    )
    def start(self, seed: int, delay_ms: int, sync_ms: int, evidence: bool) -> None:
        self.quorum = self.make(seed, evidence=evidence)
        self.quorum.delay_ms, self.quorum.sync_ms = delay_ms, sync_ms
        self.appended = 0
        self.quorum.start_all()

    def make(self, seed: int, *, evidence: bool) -> Quorum:
        return Quorum(seed, VOTERS, OBSERVERS, evidence=evidence)

    def node(self, node_id: int) -> Node:
        return self.quorum.nodes[node_id]

    @rule(duration_ms=st.integers(1, 40) | st.integers(500, 4_000))
    def time_passes(self, duration_ms: int) -> None:
        self.quorum.run_for(duration_ms)

    @rule(deliveries=st.integers(1, 6))
    def a_few_events_happen(self, deliveries: int) -> None:
        end = self.quorum.steps + deliveries
        self.quorum.run_until(lambda: self.quorum.steps >= end - 1, 1_000)

    @precondition(lambda self: self.quorum.leader() is not None)
    @rule(count=st.integers(1, 5))
    def the_leader_appends(self, count: int) -> None:
        for _ in range(count):
            self.appended += 1
            self.quorum.append(self.appended)

    @rule(node_id=ids)
    def a_replica_crashes(self, node_id: int) -> None:
        if self.node(node_id).raft is not None:
            self.node(node_id).crash()

    @precondition(lambda self: self.quorum.leader() is not None)
    @rule()
    def the_leader_crashes(self) -> None:
        leader = self.quorum.leader()
        assert leader is not None
        leader.crash()

    @rule(node_id=ids)
    def a_replica_comes_back(self, node_id: int) -> None:
        if self.node(node_id).raft is None:
            self.node(node_id).start()

    @rule(one=ids, other=ids, both_ways=st.booleans())
    def a_link_is_cut(self, one: int, other: int, both_ways: bool) -> None:
        self.quorum.cut.add((one, other))
        if both_ways:
            self.quorum.cut.add((other, one))

    @precondition(lambda self: self.quorum.cut)
    @rule()
    def all_links_are_healed(self) -> None:
        self.quorum.cut.clear()

    @rule(loss=st.sampled_from([0.0, 0.1, 0.4]))
    def messages_are_lost(self, loss: float) -> None:
        self.quorum.loss = loss

    @rule(node_id=ids)
    def a_snapshot_is_made(self, node_id: int) -> None:
        if self.node(node_id).raft is not None:
            self.node(node_id).make_snapshot()

    @precondition(lambda self: self.quorum.leader() is not None)
    @rule()
    def the_leader_resigns(self) -> None:
        leader = self.quorum.leader()
        assert leader is not None
        if leader.blocked is None:
            leader.step(lambda: leader.running.resign(self.quorum.now_ms))

    @invariant()
    def the_leader_holds_all_committed_records(self) -> None:
        """Checks the leader of the newest epoch between steps; the other invariants are checked in every step."""
        leader = self.quorum.leader()
        if leader is not None and leader.running.epoch == max(self.quorum.promises.leaders, default=None):
            assert leader.disk.log.end >= len(self.quorum.promises.committed)

    def teardown(self) -> None:
        """Liveness: nothing that was played may keep the quorum from one leader and one log."""
        self.quorum.cut.clear()
        self.quorum.loss = 0.0
        self.quorum.start_all()
        assert self.quorum.run_until(self.quorum.converged, 120_000), "no convergence"
        before = len(self.quorum.promises.committed)
        assert self.quorum.append(-1) is not None
        assert self.quorum.run_until(self.quorum.converged, 10_000)
        assert len(self.quorum.promises.committed) > before, "it takes no more records"


class LivingRaftModel(RaftModel):
    """Voters come, go, and lose their disks on top (KIP-853)."""

    def make(self, seed: int, *, evidence: bool) -> Quorum:
        return Quorum(seed, VOTERS, OBSERVERS, evidence=evidence, is_dynamic=True, joins=seed % 4 == 0)

    def leaders(self) -> list[Node]:
        return self.quorum.self_styled_leaders()

    @precondition(lambda self: self.leaders())
    @rule(node_id=ids, which=st.integers(0, 3), ack_when_committed=st.booleans())
    def a_voter_is_added(self, node_id: int, which: int, ack_when_committed: bool) -> None:
        leaders = self.leaders()
        leader = leaders[which % len(leaders)]
        self.quorum.ask_to_add(leader, self.node(node_id), ack_when_committed=ack_when_committed)

    @precondition(lambda self: self.leaders())
    @rule(which=st.integers(0, 3), place=st.integers(0, 3))
    def a_voter_is_removed(self, which: int, place: int) -> None:
        leaders = self.leaders()
        leader = leaders[which % len(leaders)]
        if candidates := self.quorum.removable(leader):
            self.quorum.ask(leader, RemoveVoter(voter=candidates[place % len(candidates)]))

    @precondition(lambda self: self.quorum.may_swap_disk())
    @rule(node_id=ids)
    def a_disk_is_swapped(self, node_id: int) -> None:
        self.node(node_id).swap_disk()
        self.node(node_id).start()


RaftModel.TestCase.settings = settings(max_examples=settings().max_examples * 3 // 5, stateful_step_count=40)
TestRaftModel = pytest.mark.feature("FI-06", "KR-17")(RaftModel.TestCase)

LivingRaftModel.TestCase.settings = RaftModel.TestCase.settings
TestLivingRaftModel = pytest.mark.feature("FI-06", "KR-14", "KR-17")(LivingRaftModel.TestCase)


def _any_disk_will_do(leader: Progress) -> int:
    return max(voter.end_offset or 0 for voter in leader.voters.values())


def _no_divergence(log: LogHistory, fetch_offset: int, last_fetched_epoch: int) -> None:
    """Every replica that fetches is taken to have the same log."""


@pytest.mark.feature("FI-06")
@pytest.mark.parametrize(
    ("model", "owner", "name", "mistake"),
    [
        (RaftModel, Progress, "majority_offset", _any_disk_will_do),
        (RaftModel, LogHistory, "divergence", _no_divergence),
        (LivingRaftModel, VoterChanges, "_refusal", two_changes_at_once),
        (LivingRaftModel, VoterChanges, "_refusal", a_change_before_a_commit),
        (LivingRaftModel, ReplicaKey, "matches", by_id_alone),
    ],
)
def test_the_model_finds_a_planted_mistake(
    model: type[RaftModel], owner: type, name: str, mistake: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    search = settings(max_examples=examples(300), stateful_step_count=40, phases=[Phase.generate], derandomize=True)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(model, settings=search)
