"""Raft under faults: hundreds of seeds, each its own mix of crashes, losses, cuts and load."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.kraft.raft.voter_changes import VoterChanges
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.errors import ErrorCode
from tests.kraft.raft.simulated_quorum import Promises, Quorum
from tests.kraft.raft.voter_mistakes import a_change_before_a_commit, by_id_alone, two_changes_at_once

SEEDS = 300


def _disturb(quorum: Quorum, chance: random.Random, crash: float, cut: float) -> None:
    """One random fault or repair."""
    nodes = list(quorum.nodes.values())
    node = chance.choice(nodes)
    if quorum.is_dynamic and chance.random() < 0.15:
        quorum.change_voters(chance)
        return
    draw = chance.random()
    if draw < crash:
        target = quorum.leader() if chance.random() < 0.4 else node
        if target is not None and target.raft is not None:
            target.crash()
    elif draw < 2.5 * crash:
        if node.raft is None:
            node.start()
    elif draw < 2.5 * crash + cut:
        other = chance.choice(nodes)
        quorum.cut.add((node.id, other.id))
        if chance.random() < 0.6:
            quorum.cut.add((other.id, node.id))
        if chance.random() < 0.2:
            quorum.cut.update((node.id, other.id) for other in nodes)
    elif draw < 2.5 * crash + 2 * cut:
        quorum.cut.clear()
    elif draw < 0.92:
        quorum.append(chance.randrange(0, 1 << 30))
    elif draw < 0.96 and node.raft is not None:
        node.make_snapshot()
    elif draw < 0.97 and node.raft is not None and node.blocked is None:
        raft = node.raft
        node.step(lambda: raft.resign(quorum.now_ms))


def _swarm(seed: int, *, is_dynamic: bool = False) -> Quorum:
    chance = random.Random(seed)
    quorum = Quorum(
        seed,
        chance.choice([1, 2, 3, 3, 3, 4, 5]),
        chance.choice([1, 2, 3] if is_dynamic else [0, 0, 1, 2]),
        evidence=chance.random() < 0.7,
        is_dynamic=is_dynamic,
        joins=is_dynamic and chance.random() < 0.3,
    )
    quorum.loss = chance.choice([0.0, 0.0, 0.02, 0.15])
    quorum.delay_ms = chance.choice([1, 4, 30, 300])
    quorum.sync_ms = chance.choice([1, 6, 60])
    crash, cut = chance.choice([0.0, 0.02, 0.08]), chance.choice([0.0, 0.03, 0.08])
    quorum.start_all()
    for _ in range(chance.choice([60, 120])):
        quorum.run_for(chance.randrange(1, chance.choice([20, 150])))
        _disturb(quorum, chance, crash, cut)
    return quorum


@pytest.mark.feature("KR-17", "KR-03", "KR-04", "KR-05", "KR-06", "KR-07", "KR-08", "KR-10", "KR-11", "KR-13")
@pytest.mark.parametrize("block", range(10))
def test_no_seed_breaks_a_promise_and_every_quorum_recovers(block: int) -> None:
    """Safety while faults rage, then, with all replicas back and the network whole, one leader and one
    log."""
    committed = 0
    for seed in range(block * SEEDS // 10, (block + 1) * SEEDS // 10):
        try:
            quorum = _swarm(seed)
            quorum.cut.clear()
            quorum.loss = 0.0
            quorum.start_all()
            assert quorum.run_until(quorum.converged, 60_000), "no convergence"
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        committed += len(quorum.promises.committed)
    assert committed > SEEDS, "the swarm hardly committed anything: it tests nothing"


def _play_with_voter_changes(seeds: range) -> Counter[ErrorCode]:
    """Safety while voters come, go and lose their disks among all other faults; then one leader and one log."""
    answers: Counter[ErrorCode] = Counter()
    for seed in seeds:
        try:
            quorum = _swarm(seed, is_dynamic=True)
            quorum.cut.clear()
            quorum.loss = 0.0
            quorum.start_all()
            assert quorum.run_until(quorum.converged, 60_000), "no convergence"
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        answers += quorum.answers
    return answers


@pytest.mark.feature("KR-14", "KR-17")
@pytest.mark.parametrize("block", range(6))
def test_no_change_of_the_voters_breaks_a_promise(block: int) -> None:
    answers = _play_with_voter_changes(range(block * 25, (block + 1) * 25))
    assert answers[ErrorCode.NONE] > 10, f"hardly a change was made, so it tests nothing: {answers}"


@pytest.mark.feature("KR-14", "FI-06")
@pytest.mark.parametrize(
    ("owner", "name", "mistake", "found"),
    [
        (VoterChanges, "_refusal", two_changes_at_once, "two changes of the voters at once"),
        (VoterChanges, "_refusal", a_change_before_a_commit, "before a commit in the own epoch|at once"),
        (ReplicaKey, "matches", by_id_alone, "voters change in one step|lacks committed records"),
    ],
)
def test_a_planted_mistake_in_the_changes_is_found(
    owner: type, name: str, mistake: object, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises(AssertionError, match=found):
        _play_with_voter_changes(range(100))


@pytest.mark.feature("KR-14", "FI-06")
@pytest.mark.parametrize(
    ("owner", "name", "mistake", "seeds"),
    [
        (VoterChanges, "_refusal", two_changes_at_once, range(100, 200)),
        (ReplicaKey, "matches", by_id_alone, range(20, 120)),
    ],
)
def test_a_planted_mistake_loses_committed_records(
    owner: type, name: str, mistake: object, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules about changes are not there for their own sake."""
    monkeypatch.setattr(owner, name, mistake)
    monkeypatch.setattr(Promises, "voters_changed", lambda *_: None)
    with pytest.raises(AssertionError, match="lacks committed records"):
        _play_with_voter_changes(seeds)


@pytest.mark.feature("KR-17")
def test_a_seed_replays_exactly() -> None:
    first, second = _swarm(7), _swarm(7)
    assert (first.steps, first.promises.entries) == (second.steps, second.promises.entries)
