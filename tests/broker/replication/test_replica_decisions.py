"""Decision notes of a replica: from where it leads, which ISR it proposes and why, what it truncates; produce and fetch
make none."""

from __future__ import annotations

import re

import pytest
import trio

from barnabas.broker.replication.decision_notes import note_deposed, note_isr_wanted, note_leading, note_truncation
from barnabas.broker.replication.replica import IsrChangeWanted
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.decisions import Decisions, Notes
from tests.broker.replication.shells import LAG_MS, ShellBroker, until
from tests.broker.replication.test_replica import LAG_MS as LAG_MS_OF_STAGE
from tests.broker.replication.test_replica import Stage, proposed
from tests.broker.replication.test_shells import Clock, NewCluster, new_cluster

pytestmark = pytest.mark.feature("OB-07")
__all__ = ["new_cluster"]


def story(broker: ShellBroker) -> list[str]:
    return [it.sentence for it in broker.decisions.since(0, "orders-0")]


async def test_a_silent_replica_leaves_and_comes_back_with_the_reasons(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        await trio.sleep(0.1)
        cluster.brokers[3].stuck = True
        for _ in range(3):
            leader.produce("without 3")
        await cluster.tick(2 * LAG_MS)
        cluster.brokers[3].stuck = False
        await until(lambda: cluster.partitions[0].isr == (1, 2, 3))
    led, shrinks, expands = leader.decisions.since(0, "orders-0")
    assert led.sentence == "broker 1 leads orders-0 in epoch 0 from offset 0 on: the metadata log says so"
    assert shrinks.sentence.startswith("broker 1, the leader of orders-0, asks for ISR [1, 2] instead of [1, 2, 3]: ")
    late = re.fullmatch(
        r"replica 3 has not caught up for (\d+) ms, 1000 ms are allowed; it is at offset 0 of 3", shrinks.cause
    )
    assert late is not None and int(late[1]) > LAG_MS
    assert shrinks.facts["isr_wanted"] == (1, 2) and shrinks.facts["replica_behind_ms"] == (int(late[1]),)
    assert shrinks.facts["partition_epoch"] == 0 and expands.facts["partition_epoch"] == 1
    assert expands.cause == "replica 3 has caught up: it is at offset 3, the high watermark is 3 and the log ends at 3"


async def test_a_deposed_leader_notes_what_it_truncates_and_by_which_epoch(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        old, new = cluster.brokers[1], cluster.brokers[2]
        _, answers = old.produce("kept")
        await until(lambda: answers == [None])
        for node in (2, 3):
            cluster.brokers[node].stuck = True
        old.produce("lost")
        old.produce("lost, too")
        cluster.elect(2)
        for node in (2, 3):
            cluster.brokers[node].stuck = False
            cluster.brokers[node].learn()
        _, kept = new.produce("instead")
        await trio.sleep(0.1)
        old.learn()
        await until(lambda: kept == [None])
    assert story(old)[1:] == [
        "broker 1 no longer leads orders-0 since epoch 1: the metadata log says so; "
        "its own log ends at 3, its high watermark is 1",
        "broker 1 truncates its log of orders-0 from 3 to 1: broker 2, its leader in epoch 1, has epoch 0 only up to "
        "offset 1; 2 records are removed that the in-sync replicas never all acknowledged",
    ]
    cut = old.decisions.since(0, "orders-0")[-1]
    assert (cut.facts["offset_before"], cut.facts["offset"], cut.facts["leader_epoch"]) == (3, 1, 1)
    assert story(new)[-1] == "broker 2 leads orders-0 in epoch 1 from offset 1 on: the metadata log says so"


async def test_after_an_unclean_election_the_loss_of_committed_records_is_noted(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        await cluster.unclean_election()
    assert any("is above that: committed records are lost" in it for it in story(cluster.brokers[1]))


async def test_a_proposal_that_is_sent_repeatedly_is_noted_once(
    new_cluster: NewCluster, autojump_clock: Clock
) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        await trio.sleep(0.1)
        cluster.errors = [41] * 20
        cluster.brokers[3].stuck = True
        leader.produce("without 3")
        await cluster.tick(20 * LAG_MS)
        assert cluster.partitions[0].isr == (1, 2)
    assert len([it for it in story(leader) if "asks for ISR" in it]) == 1


async def test_a_failed_disk_and_a_deleted_topic(new_cluster: NewCluster, autojump_clock: Clock) -> None:
    async with new_cluster() as cluster:
        one, two = cluster.brokers[1], cluster.brokers[2]
        await trio.sleep(0.1)
        path = str(one.logs.directory)
        one.partitions.directory_failed(path)
        assert story(one)[-1] == f"the replica of orders-0 on broker 1 is offline: log directory {path} failed"
        (lost,) = one.decisions.since(0, "broker 1")
        assert lost.sentence == f"broker 1 lost its log directory {path} with 1 replicas: log directory {path} failed"
        cluster.has_topic = False
        two.learn()
        assert story(two)[-1] == "broker 2 removes its replica of orders-0: the topic was deleted"


async def test_each_refusal_of_the_controller_is_noted_once(new_cluster: NewCluster, autojump_clock: Clock) -> None:
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        await trio.sleep(0.1)
        cluster.refusals = [ErrorCode.UNKNOWN_SERVER_ERROR] * 3 + [ErrorCode.INELIGIBLE_REPLICA] * 2
        cluster.brokers[3].stuck = True
        leader.produce("without 3")
        await cluster.tick(20 * LAG_MS)
        assert cluster.partitions[0].isr == (1, 2)
    refused = [it for it in leader.decisions.since(0, "orders-0") if "refuses" in it.what]
    assert [it.sentence for it in refused[:2]] == [
        "the controller refuses ISR [1, 2] of orders-0: it answered broker 1 with UNKNOWN_SERVER_ERROR",
        "the controller refuses ISR [1, 2] of orders-0: it answered broker 1 with INELIGIBLE_REPLICA",
    ]
    assert dict(refused[0].facts) == {"leader_epoch": 0, "partition_epoch": 0, "isr_wanted": (1, 2)}


def test_a_proposal_says_how_far_each_replica_has_come() -> None:
    stage = Stage(log_end_offset=9, high_watermark=4)
    stage.lead(replicas=(1, 2, 3, 4), isr=(1, 2, 3))
    stage.fetch(2, 7)
    wanted = proposed(stage.after(LAG_MS_OF_STAGE + 1))
    notes = Notes()
    note_isr_wanted(notes, "orders-0", stage.replica, wanted)
    (note,) = notes
    assert note.text == "broker 1, the leader of orders-0, asks for ISR [1] instead of [1, 2, 3]"
    assert note.cause == (
        "replica 2 has not caught up for 10001 ms, 10000 ms are allowed; it is at offset 7 of 9; "
        "replica 3 has not caught up for 10001 ms, 10000 ms are allowed; it has fetched nothing, the log ends at 9"
    )
    assert dict(note.facts) == {
        "leader": 1,
        "leader_epoch": 5,
        "partition_epoch": 8,
        "isr": [1, 2, 3],
        "isr_wanted": [1],
        "offset": 9,
        "high_watermark": 4,
        "replica_offsets": [7, -1],
        "replica_behind_ms": [10_001, 10_001],
    }


def test_a_replica_that_never_caught_up_is_not_late_by_some_time() -> None:
    stage = Stage(log_end_offset=9, high_watermark=4)
    stage.lead(isr=(1, 2))
    never = IsrChangeWanted(((1, 101),), 5, 8, because_of=((2, 0, None),))
    notes = Notes()
    note_isr_wanted(notes, "orders-0", stage.replica, never)
    assert notes[0].cause == "replica 2 has never caught up, 10000 ms are allowed; it is at offset 0 of 9"
    assert notes[0].facts["replica_behind_ms"] == [-1]


def test_notes_of_leadership_and_truncation_have_epochs_and_offsets() -> None:
    stage = Stage(log_end_offset=9, high_watermark=4)
    stage.lead()
    notes = Notes()
    note_leading(notes, "orders-0", stage.replica, 9)
    note_deposed(notes, "orders-0", stage.replica)
    note_truncation(notes, "orders-0", stage.replica, (9, 4), "a reason")
    note_truncation(notes, "orders-0", stage.replica, (9, 3), "a reason")
    led, deposed, cut, lost = notes
    assert dict(led.facts) == {
        "leader": 1,
        "leader_epoch": 5,
        "isr": [1, 2, 3],
        "offset": 9,
        "high_watermark": 4,
        "hearsay": 2,
    }
    assert dict(deposed.facts) == {"leader_epoch": 5, "offset": 9, "high_watermark": 4, "hearsay": 2}
    assert cut.cause == "a reason; 5 records are removed that the in-sync replicas never all acknowledged"
    assert lost.cause == "a reason; its own high watermark 4 is above that: committed records are lost"
    assert dict(cut.facts) == {"leader": 1, "leader_epoch": 5, "offset_before": 9, "offset": 4, "high_watermark": 4}


async def test_producing_and_fetching_make_no_notes(
    new_cluster: NewCluster, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision notes cost nothing on the hot path: none is made there."""
    async with new_cluster() as cluster:
        leader = cluster.brokers[1]
        await trio.sleep(0.1)
        noted: list[object] = []
        monkeypatch.setattr(Decisions, "note", lambda *arguments, **facts: noted.append(arguments))
        for number in range(500):
            _, answers = leader.produce(f"record {number}")
            if number % 50 == 0:
                await trio.sleep(0.01)
        await until(lambda: answers == [None])
        assert cluster.bytes_of(1) == cluster.bytes_of(2) == cluster.bytes_of(3)
        assert leader.partition.log.log_end_offset == 500 and noted == []
