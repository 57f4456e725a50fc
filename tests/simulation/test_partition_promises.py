"""The promises of replication catch each way to break them, and let its legal neighbour pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.image import (
    EMPTY_IMAGE,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from simulation.findings import Findings
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import LeaderView, PartitionKey

from .fake_logs import Disks, FakeLog

pytestmark = pytest.mark.feature("RE-10", "RE-21", "FI-11")

KEY = PartitionKey("topic", 0)
TOPIC_ID = bytes([7] * 16)
START = PartitionImage(
    replicas=(1, 2, 3), directories=(bytes(16),) * 3, isr=(1, 2, 3), leader=1, leader_epoch=1, partition_epoch=1
)


class Partition:
    """Three replicas of one partition, driven step by step."""

    def __init__(self) -> None:
        self.findings = Findings(lambda: 0.0)
        self.disks = Disks()
        self.image = EMPTY_IMAGE
        self.promises = PartitionPromises(self.findings, self.disks.content, lambda: self.image, lambda _: 2)
        self.logs: dict[int, FakeLog] = {}
        self.register(1, 2, 3, epoch=1)
        self.becomes(START)
        for node_id in (1, 2, 3):
            self.open(node_id, self.disks.log(f"log-{node_id}"))

    @property
    def state(self) -> PartitionImage:
        return self.image.topics.by_name["topic"].partitions[0]

    def open(self, node_id: int, log: FakeLog) -> None:
        self.logs[node_id] = log
        self.promises.opened(KEY, node_id, log)

    def restart(self, node_id: int) -> FakeLog:
        old, new = self.logs[node_id], self.disks.log(f"log-{node_id}")
        new.segment.content, new.log_end_offset, new.epochs = old.segment.content, old.log_end_offset, old.epochs
        return new

    def register(self, *broker_ids: int, epoch: int) -> None:
        before = self.image
        brokers = {id: BrokerImage(id, epoch, bytes(16), {}, {}, fenced=False) for id in broker_ids}
        cluster = ClusterImage({**before.cluster.brokers, **brokers})
        self.image = replace(before, cluster=cluster)
        self.promises.metadata_changed(MetadataDelta(before, self.image, changed_brokers=dict(brokers)))

    def becomes(self, partition: PartitionImage) -> None:
        before = self.image
        topic = TopicImage("topic", TOPIC_ID, {0: partition})
        self.image = replace(before, topics=TopicsImage({"topic": topic}, {TOPIC_ID: topic}))
        delta = TopicDelta(TOPIC_ID, "topic", before.topics.by_name.get("topic"), topic, {0: partition})
        self.promises.metadata_changed(MetadataDelta(before, self.image, {TOPIC_ID: delta}))

    def delete(self) -> None:
        before = self.image
        self.image = replace(before, topics=TopicsImage({}, {}))
        deleted = {TOPIC_ID: before.topics.by_name["topic"]}
        self.promises.metadata_changed(MetadataDelta(before, self.image, deleted_topics=deleted))

    def changes(self, **fields: object) -> None:
        self.becomes(replace(self.state, partition_epoch=self.state.partition_epoch + 1, **fields))  # type: ignore[arg-type]

    def leads(self, node_id: int, high_watermark: int = 0, asks_for: tuple[int, ...] = ()) -> None:
        """In the newest epochs."""
        state = self.state
        isr = frozenset({*state.isr, *asks_for})
        view = LeaderView(node_id, state.leader_epoch, state.partition_epoch, high_watermark, isr)
        self.promises.leads(KEY, view)

    def append(self, epoch: int, value: str, to: tuple[int, ...] = (1, 2, 3)) -> None:
        for node_id in to:
            self.logs[node_id].append(epoch, value)

    def commit(self, node_id: int, offset: int) -> None:
        self.logs[node_id].high_watermark = offset
        self.promises.high_watermark_moved(KEY, node_id, self.logs[node_id])

    def cut(self, node_id: int, offset: int) -> None:
        self.promises.truncated(KEY, node_id, self.logs[node_id].cut(offset))

    @property
    def broken(self) -> str:
        return "; ".join(self.findings.broken)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_a_record_is_committed_everywhere(partition: Partition) -> None:
    partition.append(1, "a")
    for node_id in (1, 2, 3):
        partition.commit(node_id, 1)
    partition.promises.acked(KEY, 0, b"a")
    partition.promises.consumed(KEY, 0, b"a")
    partition.promises.check_replicas_equal(KEY, (1, 2, 3))
    assert partition.broken == ""


def test_an_isr_member_lacks_what_is_committed(partition: Partition) -> None:
    partition.append(1, "a", to=(1, 2))
    partition.commit(1, 1)
    assert "3 is in ISR or ELR and ends at 0, below the committed 1" in partition.broken


def test_a_replica_outside_may_lack_it(partition: Partition) -> None:
    partition.changes(isr=(1, 2))
    partition.append(1, "a", to=(1, 2))
    partition.commit(1, 1)
    assert partition.broken == ""
    partition.changes(isr=(1, 2, 3))
    assert "3 is in ISR or ELR" in partition.broken


def test_an_eligible_leader_must_have_it(partition: Partition) -> None:
    partition.append(1, "a", to=(1, 2))
    partition.changes(isr=(1,), elr=(2,))
    partition.commit(1, 1)
    assert partition.broken == ""
    partition.changes(isr=(1,), elr=(2, 3))
    assert "3 is in ISR or ELR" in partition.broken


def test_replicas_part_below_the_high_watermark(partition: Partition) -> None:
    partition.append(1, "a", to=(1, 3))
    partition.append(1, "b", to=(2,))
    partition.commit(1, 1)
    assert "replica 2 holds" in partition.broken


def test_a_replica_with_a_hole(partition: Partition) -> None:
    for value in "abc":
        partition.append(1, value)
    content = partition.logs[2].segment.content
    del content[len(content) // 3 : len(content) * 2 // 3]
    partition.commit(1, 3)
    assert "goes on with [2, 3) of epoch 1" in partition.broken and "where 1 is next" in partition.broken


def test_replicas_may_part_above_it(partition: Partition) -> None:
    partition.append(1, "a")
    partition.append(1, "b", to=(1,))
    partition.append(2, "c", to=(2, 3))
    for node_id in (1, 2, 3):
        partition.commit(node_id, 1)
    partition.cut(1, 1)
    assert partition.broken == ""


def test_committed_records_are_cut(partition: Partition) -> None:
    partition.append(1, "a")
    partition.append(1, "b")
    partition.commit(1, 1)
    partition.cut(2, 1)
    assert partition.broken == ""
    partition.cut(2, 0)
    assert "replica 2 had all below 1, and ends at 0 after it was truncated" in partition.broken


def test_a_recovery_that_forgets(partition: Partition) -> None:
    partition.append(1, "a")
    partition.append(1, "b")
    partition.commit(1, 1)
    partition.open(2, partition.restart(2).cut(1))  # torn, but not below what was committed
    assert partition.broken == ""
    partition.open(2, partition.restart(2).cut(0))
    assert "ends at 0 after recovery" in partition.broken


def test_a_replica_that_lost_its_tail_must_leave_the_isr(partition: Partition) -> None:
    partition.append(1, "a")
    partition.commit(1, 1)
    partition.promises.broker_lost_something(2)
    partition.open(2, partition.restart(2).cut(0))
    assert partition.broken == ""  # nobody can know yet
    partition.register(2, epoch=5)
    assert "2 is in ISR or ELR and ends at 0, below the committed 1, after it registered" in partition.broken


def test_a_replica_that_lost_its_tail_and_left_the_isr(partition: Partition) -> None:
    partition.append(1, "a")
    partition.commit(1, 1)
    partition.promises.broker_lost_something(2)
    partition.open(2, partition.restart(2).cut(0))
    partition.changes(isr=(1, 3))
    partition.register(2, epoch=5)
    partition.logs[2].append(1, "a")
    partition.leads(1, asks_for=(2,))
    partition.changes(isr=(1, 2, 3))
    assert partition.broken == ""
    assert partition.promises.lossy == {}


def test_two_leaders_in_an_epoch(partition: Partition) -> None:
    members = frozenset({1, 2, 3})
    partition.promises.leads(KEY, LeaderView(1, 4, 1, 0, members))
    partition.promises.leads(KEY, LeaderView(2, 5, 1, 0, members))
    partition.promises.leads(KEY, LeaderView(1, 4, 1, 0, members))  # deposed, and does not know it yet
    assert partition.broken == ""
    partition.promises.leads(KEY, LeaderView(2, 4, 1, 0, members))
    assert "1 and 2 both lead in epoch 4" in partition.broken


def test_a_name_that_is_used_again_is_another_topic(partition: Partition) -> None:
    partition.append(1, "a")
    partition.commit(1, 1)
    partition.promises.leads(KEY, LeaderView(1, 1, 1, 1, frozenset({1, 2, 3})))
    partition.delete()
    partition.commit(2, 1)  # this broker has not replayed the deletion
    partition.becomes(START)
    partition.open(2, partition.disks.log("new-log-2"))
    partition.promises.leads(KEY, LeaderView(2, 1, 1, 0, frozenset({1, 2, 3})))
    assert partition.broken == ""


def test_a_high_watermark_that_runs_ahead(partition: Partition) -> None:
    partition.append(1, "a", to=(1, 2))
    partition.promises.leads(KEY, LeaderView(1, 1, 1, 1, frozenset({1, 2})))
    assert partition.broken == ""
    partition.promises.leads(KEY, LeaderView(1, 2, 1, 1, frozenset({1, 2, 3})))
    assert "leader 1 commits up to 1, 3 ends at 0" in partition.broken


def test_a_high_watermark_that_falls(partition: Partition) -> None:
    partition.append(1, "a")
    partition.promises.leads(KEY, LeaderView(1, 1, 1, 1, frozenset({1})))
    partition.promises.leads(KEY, LeaderView(2, 2, 1, 0, frozenset({2})))  # a new leader may know less
    assert partition.broken == ""
    partition.promises.leads(KEY, LeaderView(1, 1, 1, 0, frozenset({1})))
    assert "fell from 1 to 0" in partition.broken


def test_a_leader_that_does_not_know_of_a_loss(partition: Partition) -> None:
    partition.append(1, "a")
    partition.promises.broker_lost_something(3)
    partition.open(3, partition.disks.log("log-3"))
    partition.changes(isr=(1, 2))
    partition.register(3, epoch=2)
    members = frozenset({1, 2, 3})
    partition.promises.leads(KEY, LeaderView(1, 1, partition.state.partition_epoch - 1, 1, members))
    assert partition.broken == ""
    partition.promises.leads(KEY, LeaderView(1, 2, partition.state.partition_epoch, 1, members))
    assert "leader 1 commits up to 1, 3 ends at 0" in partition.broken


def test_epochs_that_do_not_fit_the_records(partition: Partition) -> None:
    partition.append(1, "a")
    partition.append(2, "b")
    partition.logs[3].epochs.listed = [(1, 0), (2, 1), (3, 2)]  # announced, nothing written yet
    for node_id in (1, 3):
        partition.commit(node_id, 2)
    assert partition.broken == ""
    partition.append(2, "c")
    partition.logs[2].epochs.listed = [(1, 0)]
    partition.commit(1, 3)
    assert "replica 2 has the epochs [(1, 0)]" in partition.broken


def test_a_log_whose_beginning_was_deleted(partition: Partition) -> None:
    """Its first epoch begins where the log does, and only what is left is compared."""
    for epoch, value in ((1, "a"), (1, "b"), (2, "c")):
        partition.append(epoch, value)
    partition.commit(1, 3)
    log = partition.logs[2]
    log.log_start_offset, log.epochs.listed = 1, [(1, 1), (2, 2)]
    partition.commit(2, 3)
    partition.promises.check_replicas_equal(KEY, (1, 2))
    assert partition.broken == ""
    log.epochs.listed = [(2, 1)]
    partition.promises.check_replicas_equal(KEY, (2,))
    assert "replica 2 has the epochs [(2, 1)], what is committed has [(1, 1), (2, 2)]" in partition.broken


def test_epochs_that_do_not_rise(partition: Partition) -> None:
    partition.append(1, "a")
    partition.logs[1].epochs.listed = [(2, 0), (1, 1)]
    partition.commit(1, 1)
    assert "do not rise" in partition.broken


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (replace(START, partition_epoch=2, isr=(1, 2, 4)), "not all of the ISR are replicas"),
        (replace(START, partition_epoch=2, isr=(1, 2), elr=(2,)), "ISR and ELR overlap"),
        (replace(START, partition_epoch=2, isr=(2, 3)), "the leader is not in the ISR"),
        (replace(START, partition_epoch=1), "epochs went back"),
        (replace(START, partition_epoch=2, leader_epoch=0), "epochs went back"),
        (replace(START, partition_epoch=2, leader=2), "another leader in the same epoch"),
        (replace(START, partition_epoch=2, isr=(1, 2), elr=(3,)), "eligible beside an ISR of min.insync.replicas, 2"),
        (replace(START, partition_epoch=2, isr=(), leader=-1, leader_epoch=2), "nobody is left who may lead"),
    ],
)
def test_metadata_that_cannot_be(partition: Partition, change: PartitionImage, promise: str) -> None:
    partition.becomes(change)
    assert promise in partition.broken


def test_metadata_that_can_be(partition: Partition) -> None:
    partition.changes(isr=(1,), elr=(2,))
    partition.changes(leader=-1, isr=(), elr=(1, 2), leader_epoch=2)
    partition.changes(leader=2, isr=(2,), elr=(1,), leader_epoch=3)
    assert partition.broken == ""
    assert partition.findings.counts["isr shrinks"] == 2
    assert partition.findings.counts["partition elections"] == 1


@pytest.mark.feature("RE-07", "RE-08")
def test_an_isr_grows_by_whom_its_leader_asks_for(partition: Partition) -> None:
    partition.changes(isr=(1,))
    partition.leads(1, asks_for=(2,))
    partition.changes(isr=(1, 2))
    assert partition.broken == ""
    partition.changes(isr=(1, 2, 3))
    assert "[3] came into the ISR, its leader asked for []" in partition.broken


@pytest.mark.feature("RE-07", "RE-08")
def test_eligible_replicas_are_in_the_isr_of_the_one_that_is_elected(partition: Partition) -> None:
    partition.changes(leader=-1, isr=(), elr=(1, 2), leader_epoch=2)
    partition.changes(leader=2, isr=(1, 2), elr=(), leader_epoch=3)
    assert partition.broken == ""
    partition.changes(leader=-1, isr=(), elr=(1, 2), leader_epoch=4)
    partition.changes(leader=2, isr=(2, 3), elr=(), leader_epoch=5)
    assert "[2, 3] came into the ISR, its leader asked for [1, 2]" in partition.broken


def test_an_isr_change_that_comes_late(partition: Partition) -> None:
    """It was asked for before somebody else left."""
    partition.changes(isr=(1, 2))
    partition.leads(1, asks_for=(3,))
    partition.changes(isr=(1,))
    assert partition.broken == ""
    partition.changes(isr=(1, 3))
    assert "[3] came into the ISR, its leader asked for []" in partition.broken


def test_a_leader_with_a_full_disk_lets_a_replica_in_and_another_is_elected(partition: Partition) -> None:
    """Both happen in the change for its AlterPartition."""
    partition.changes(isr=(1, 2))
    partition.leads(1, asks_for=(3,))
    partition.changes(isr=(1, 2, 3), leader=2, leader_epoch=2)
    assert partition.broken == ""


def test_a_leader_that_is_moved_away_asks_for_its_successor(partition: Partition) -> None:
    """The new replica comes into the ISR and leads in the change that completes the move."""
    partition.changes(isr=(1, 3), removing_replicas=(1,), adding_replicas=(2,))
    partition.leads(1, asks_for=(2,))
    partition.changes(replicas=(2, 3), isr=(2, 3), removing_replicas=(), adding_replicas=(), leader=2, leader_epoch=2)
    assert partition.broken == ""


def test_an_election_of_one_who_is_not_eligible(partition: Partition) -> None:
    partition.changes(isr=(1,), elr=(2,))
    partition.changes(isr=(3,), elr=(), leader=3, leader_epoch=2)
    assert "3 is elected, and was not eligible" in partition.broken


@pytest.mark.feature("RE-10")
def test_the_last_known_leader_is_taken_when_nobody_else_is_left(partition: Partition) -> None:
    partition.changes(isr=(1,), elr=(2,))
    partition.changes(isr=(), elr=(1, 2), leader=-1, leader_epoch=2, last_known_elr=(1,))
    partition.changes(isr=(), elr=(2,))
    last = {"isr": (1,), "elr": (), "leader": 1, "leader_epoch": 3, "last_known_elr": ()}
    partition.changes(**last, leader_recovery_state=1)
    assert partition.broken == ""


def test_the_last_known_leader_is_not_taken_while_another_is_eligible(partition: Partition) -> None:
    partition.changes(isr=(1,), elr=(2,))
    partition.changes(isr=(), elr=(2,), leader=-1, leader_epoch=2, last_known_elr=(1,))
    partition.changes(isr=(1,), elr=(2,), leader=1, leader_epoch=3, last_known_elr=(), leader_recovery_state=1)
    assert "1 is elected, and was not eligible" in partition.broken


def test_the_last_who_has_everything_loses_it(partition: Partition) -> None:
    partition.changes(isr=(1,), elr=(2,))
    partition.promises.broker_lost_something(1)
    assert partition.broken == ""
    partition.promises.broker_lost_something(2)
    assert "nobody is left who may lead and has lost nothing" in partition.broken


@pytest.mark.feature("RE-04")
def test_a_follower_that_runs_ahead_of_its_leader(partition: Partition) -> None:
    partition.append(1, "a")
    partition.leads(1, 1)
    partition.promises.follows(KEY, 2, 1, 1)
    assert partition.broken == ""
    partition.promises.follows(KEY, 2, 1, 2)
    assert "follower 2 in epoch 1 has the high watermark 2, its leaders have come to 1" in partition.broken


@pytest.mark.parametrize(("offset", "value"), [(1, b"a"), (0, b"b")])
def test_an_ack_for_what_is_not_committed(partition: Partition, offset: int, value: bytes) -> None:
    partition.append(1, "a")
    partition.append(1, "b")
    partition.commit(1, 1)
    partition.promises.acked(KEY, 0, b"a")
    assert partition.broken == ""
    partition.promises.acked(KEY, offset, value)
    assert "was acked at" in partition.broken


def test_a_consumer_sees_what_is_not_committed(partition: Partition) -> None:
    partition.append(1, "a")
    partition.promises.consumed(KEY, 0, b"a")
    assert "a consumer was given" in partition.broken


def test_replicas_that_are_not_equal_at_the_end(partition: Partition) -> None:
    partition.append(1, "a")
    partition.commit(1, 1)
    partition.append(1, "b", to=(3,))
    partition.promises.check_replicas_equal(KEY, (1, 2))
    assert partition.broken == ""
    partition.promises.check_replicas_equal(KEY, (1, 2, 3))
    assert "3 ends at 2, committed is up to 1" in partition.broken
