"""Failures of a whole quorum, with cores on an event queue: how long the recovery takes, and which nodes get in the
way."""

from __future__ import annotations

import pytest

from barnabas.kraft.raft.ready import Send
from barnabas.kraft.raft.roles import Follower
from tests.kraft.raft.simulated_quorum import Node, Quorum


def led(quorum: Quorum, *, other_than: int | None = None) -> bool:
    leader = quorum.leader()
    return leader is not None and leader.id != other_than and leader.running.shown_high_watermark is not None


def settled(seed: int, voters: int = 3, *, evidence: bool = True) -> tuple[Quorum, Node]:
    """A quorum that has a leader whom everybody follows."""
    quorum = Quorum(seed, voters, evidence=evidence)
    quorum.start_all()
    assert quorum.run_until(quorum.converged, 10_000)
    leader = quorum.leader()
    assert leader is not None
    return quorum, leader


@pytest.mark.feature("KR-03")
@pytest.mark.parametrize("seed", range(20))
def test_a_fresh_quorum_has_a_leader_within_a_tenth_of_a_second(seed: int) -> None:
    quorum = Quorum(seed, 3)
    quorum.start_all()
    assert quorum.run_until(lambda: led(quorum), 100)


@pytest.mark.feature("KR-04", "KR-16")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("voters", [3, 5])
def test_a_leaders_death_is_noticed_at_once_where_dials_are_refused(seed: int, voters: int) -> None:
    quorum, leader = settled(seed, voters)
    leader.crash()
    assert quorum.run_until(lambda: led(quorum), 200)


@pytest.mark.feature("KR-06")
@pytest.mark.parametrize("seed", range(5))
def test_without_evidence_the_fetch_timeout_decides(seed: int) -> None:
    """A leader that just falls silent may be alive behind a broken link: nobody moves before 2 s."""
    quorum, leader = settled(seed, evidence=False)
    quorum.run_for(1_000)
    epoch = leader.running.epoch
    for node_id in quorum.nodes:
        quorum.cut.update({(leader.id, node_id), (node_id, leader.id)})
    quorum.run_for(1_400)
    others = [node.running for node in quorum.nodes.values() if node is not leader]
    assert all(isinstance(raft.role, Follower) and raft.epoch == epoch for raft in others)
    assert quorum.run_until(lambda: led(quorum, other_than=leader.id), 4_000)


@pytest.mark.feature("KR-04")
@pytest.mark.parametrize("seed", range(5))
def test_a_voter_cut_off_for_long_disturbs_no_leader_when_it_comes_back(seed: int) -> None:
    quorum, leader = settled(seed)
    epoch = leader.running.epoch
    lonely = next(node for node in quorum.nodes.values() if node is not leader)
    for node_id in quorum.nodes:
        quorum.cut.update({(lonely.id, node_id), (node_id, lonely.id)})
    quorum.run_for(60_000)
    assert lonely.running.epoch == epoch, "it may ask, but it may not bump the epoch"
    quorum.append(1)
    quorum.cut.clear()
    assert quorum.run_until(quorum.converged, 10_000)
    assert leader.running.is_leader
    assert leader.running.epoch == epoch


@pytest.mark.feature("KR-04")
@pytest.mark.parametrize("seed", range(5))
def test_a_voter_that_cannot_reach_the_leader_alone_gets_no_majority(seed: int) -> None:
    """One link of three is cut: the leader still reaches a majority, and stays."""
    quorum, leader = settled(seed)
    epoch = leader.running.epoch
    estranged = next(node for node in quorum.nodes.values() if node is not leader)
    quorum.cut.update({(estranged.id, leader.id), (leader.id, estranged.id)})
    quorum.run_for(30_000)
    assert leader.running.is_leader
    assert leader.running.epoch == epoch


@pytest.mark.feature("KR-09", "KR-16")
@pytest.mark.parametrize("seed", range(5))
def test_a_deposed_leader_cannot_commit(seed: int) -> None:
    """The old leader is cut off: the records that it still appends are gone after the heal."""
    quorum, old = settled(seed)
    for node_id in quorum.nodes:
        quorum.cut.update({(old.id, node_id), (node_id, old.id)})
    before = old.running.high_watermark
    offset = quorum.append(666)
    assert offset is not None
    assert quorum.run_until(lambda: led(quorum, other_than=old.id), 10_000)
    assert old.running.high_watermark == before
    quorum.cut.clear()
    assert quorum.run_until(quorum.converged, 10_000)
    assert all(entry.value != 666 for node in quorum.nodes.values() for entry in node.disk.log.entries)


@pytest.mark.feature("KR-08", "KR-13")
@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_crashes_with_unsynced_records_gives_up_their_offsets(seed: int) -> None:
    quorum, old = settled(seed)
    quorum.sync_ms = 200
    for value in range(5):
        quorum.append(value)
    old.crash()
    quorum.sync_ms = 5
    assert quorum.run_until(lambda: led(quorum, other_than=old.id), 5_000)
    for value in range(100, 105):
        quorum.append(value)
    old.start()
    assert quorum.run_until(quorum.converged, 10_000)


@pytest.mark.feature("KR-11")
@pytest.mark.parametrize("seed", range(5))
def test_a_voter_that_slept_through_two_snapshots_comes_back(seed: int) -> None:
    quorum, leader = settled(seed)
    sleeper = next(node for node in quorum.nodes.values() if node is not leader)
    sleeper.crash()
    for value in range(60):
        quorum.append(value)
        quorum.run_for(20)
        if value in (30, 50):
            leader.make_snapshot()
    sleeper.start()
    assert quorum.run_until(quorum.converged, 10_000)
    assert sleeper.disk.log.start.offset >= 30


def followed_by_observers(quorum: Quorum) -> bool:
    """All observers follow the current leader."""
    leader = quorum.leader()
    observers = [node for node in quorum.nodes.values() if node.id not in quorum.voter_ids]
    return leader is not None and all(
        isinstance(role := node.running.role, Follower)
        and (role.leader_id, role.epoch, role.has_fetched) == (leader.id, leader.running.epoch, True)
        for node in observers
    )


@pytest.mark.feature("KR-06")
@pytest.mark.parametrize("seed", range(5))
def test_observers_do_not_wear_out_voters_that_cannot_agree(seed: int) -> None:
    """Each voter receives from one of the others and sends to the other one: none leads, and all answer observers."""
    quorum = Quorum(seed, 3, observers=3)
    quorum.start_all()
    assert quorum.run_until(quorum.converged, 10_000)
    asked = dict.fromkeys((4, 5, 6), 0)
    send = quorum.send

    def counting(node: Node, what: Send) -> None:
        if node.id in asked:
            asked[node.id] += 1
        send(node, what)

    quorum.send = counting  # type: ignore[method-assign]
    ring = {(1, 2), (2, 3), (3, 1)}
    quorum.cut.update(ring)
    quorum.run_for(10_000)
    asked.update(dict.fromkeys(asked, 0))
    quorum.run_for(10_000)
    assert not followed_by_observers(quorum)
    assert all(0 < count < 150 for count in asked.values()), f"{asked} in 10 s"
    # And yet they learn of the next leader soon.
    quorum.cut.clear()
    assert quorum.run_until(lambda: led(quorum), 10_000)
    assert quorum.run_until(lambda: followed_by_observers(quorum), 700)


@pytest.mark.feature("KR-06")
@pytest.mark.parametrize("seed", range(10))
def test_observers_find_the_next_leader_at_once(seed: int) -> None:
    quorum = Quorum(seed, 3, observers=3)
    quorum.start_all()
    assert quorum.run_until(quorum.converged, 10_000)
    for _ in range(3):
        leader = quorum.leader()
        assert leader is not None
        leader.crash()
        for parked in leader.parked:
            # Their connections end.
            quorum.nodes[parked.sender].fail(leader.id, parked.request_id)
        assert quorum.run_until(lambda: led(quorum, other_than=leader.id), 200)  # noqa: B023 - called at once
        assert quorum.run_until(lambda: followed_by_observers(quorum), 60)
        leader.start()
        assert quorum.run_until(quorum.converged, 10_000)


@pytest.mark.feature("KR-06")
@pytest.mark.parametrize("seed", range(10))
def test_observers_find_the_leader_that_follows_a_silent_one_at_once(seed: int) -> None:
    """They have asked for seconds by then, and have not grown tired."""
    quorum = Quorum(seed, 3, observers=3, evidence=False)
    quorum.start_all()
    assert quorum.run_until(quorum.converged, 10_000)
    leader = quorum.leader()
    assert leader is not None
    leader.crash()
    assert quorum.run_until(lambda: led(quorum, other_than=leader.id), 6_000)
    assert quorum.run_until(lambda: followed_by_observers(quorum), 100)
