"""All that a partition asks of its broker, and reports to it, in order: one life, step by step."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.replication.follower import BoundsWanted
from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.reads import FetchKind, ReadRequest
from barnabas.broker.replication.replica import (
    CommittedIsr,
    FollowerFetch,
    IsrChangeWanted,
    Replica,
    ReplicaSettings,
)
from barnabas.kraft.metadata.image import NO_LEADER, PartitionImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import EpochEndOffset, PartitionData
from barnabas.runtime.decisions import Notes
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from tests.broker.replication.test_replica import broker
from tests.storage.rig import NOW_MS, Rig, heads, numbered

SELF, LAG_MS = 1, 1_000
LED = PartitionImage((1, 2), (bytes(16),) * 2, (1, 2), leader=SELF, leader_epoch=5, partition_epoch=8)
FOLLOWED = replace(LED, leader=2, leader_epoch=6, partition_epoch=9)
ANSWER = ("changed",)
"""Everybody looks again, once, for the effects and for the new state of the partition."""


class Life:
    """A partition, and the calls that it has made since the last look."""

    def __init__(self) -> None:
        self.now_ms, self.may_be_fenced = 10_000, False
        self.calls: list[str] = []
        self.proposed: list[IsrChangeWanted] = []
        self.answers: list[ErrorCode | None] = []
        self.notes = Notes()
        clock: Any = SimpleNamespace(now_ms=lambda: self.now_ms)
        wall_clock: Any = SimpleNamespace(now_ms=lambda: NOW_MS)
        host = PartitionHost(
            clock,
            wall_clock,
            self.propose,
            lambda partition, leader: self.calls.append(f"follow {leader}"),
            lambda partition: self.calls.append("changed"),
            replica_fetch_backoff_ms=500,
            fault_point=lambda point: self.calls.append(point),  # noqa: PLW0108 - the list changes
            leadership_changed=lambda partition: self.calls.append("leadership"),
            may_be_fenced=lambda: self.may_be_fenced,
            session_timeout_ms=9_000,
            decisions=self.notes,
            committed=lambda partition: self.calls.append("committed"),
        )
        self.log = Rig().open(TopicConfig(segment_bytes=1 << 20, retention_ms=100, file_delete_delay_ms=0))
        brokers = {node: broker(node) for node in (1, 2)}
        settings = ReplicaSettings(LAG_MS, 1)
        replica = Replica(SELF, brokers.get, settings, 0, 0)
        self.partition = Partition("orders", bytes(15) + b"\x07", self.log, replica, host)

    def propose(self, partition: Partition, wanted: IsrChangeWanted) -> None:
        self.calls.append(f"propose {sorted(wanted.members)}")
        self.proposed.append(wanted)

    def take(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls

    def lead(self, image: PartitionImage = LED) -> list[str]:
        self.partition.partition_changed(image)
        return self.take()

    def produce(self, count: int = 1, acks: int = -1) -> int:
        """The number of bytes."""
        buffer = bytearray(numbered(0, count))
        result = self.partition.append(buffer, heads(buffer), acks)
        if acks == -1:
            self.partition.when_replicated(result.last_offset + 1, self.answers.append)
        return len(buffer)

    def fetch(self, offset: int, epoch: int = -1) -> None:
        fetch = FollowerFetch(2, 102, offset, 0)
        self.partition.follower_read(fetch, ReadRequest(FetchKind.REPLICA, offset, 1_000, last_fetched_epoch=epoch))

    def fetched(self, data: PartitionData) -> list[str]:
        """The leader answers the present request of this follower."""
        wanted = self.partition.follower.next(self.now_ms)
        self.partition.fetched(wanted, data)  # type: ignore[arg-type]
        return self.take()


@pytest.mark.feature("RE-03", "RE-09")
def test_a_leader_takes_over_commits_and_is_deposed() -> None:
    life = Life()
    partition = life.partition
    assert life.lead() == ["follow -1", "replica.leadership.taken", "leadership", *ANSWER]
    assert partition.is_leader and partition.log.epochs.entries() == [(5, 0)]
    assert life.lead() == [], "known already"

    size = life.produce(2)
    assert life.take() == ["replica.append.written", "changed"]
    assert (partition.waiting_acks, life.answers) == (1, [])
    life.fetch(1)
    assert life.take() == ["replica.high_watermark.moved", "committed"]
    assert life.answers == [], "one of the two is not committed"
    life.fetch(2)
    assert life.take() == ["replica.high_watermark.moved", "committed"]
    assert (partition.waiting_acks, life.answers) == (0, [None])
    life.fetch(2)
    assert life.take() == [], "nothing is new"
    assert (partition.traffic.messages_in, partition.traffic.bytes_in) == (2, size)

    size += life.produce(acks=1)
    assert life.take() == ["replica.append.written", "changed"]
    assert (partition.traffic.messages_in, partition.traffic.bytes_in) == (3, size)
    life.produce()
    life.take()
    assert life.lead(FOLLOWED) == ["leadership", "follow 2", *ANSWER]
    assert life.answers == [None, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [it.text for it in life.notes][-1].startswith("broker 1 no longer leads orders-0")
    assert (partition.follower.leader_epoch, partition.known_leader()) == (6, (2, 6))


@pytest.mark.feature("RE-06", "RE-07", "RE-08")
def test_a_leader_proposes_repeats_and_is_refused() -> None:
    life = Life()
    partition = life.partition
    life.lead()
    life.produce()
    life.take()
    life.now_ms += LAG_MS
    partition.tick()
    assert life.take() == [], "a follower may be late for so long"
    life.now_ms += 1
    partition.tick()
    assert life.take() == ["propose [1]", "changed"]
    partition.tick()
    assert life.take() == [], "it is not answered yet"
    partition.isr_change_answered(life.proposed[0], ErrorCode.UNKNOWN_SERVER_ERROR)
    assert life.take() == ["propose [1]", "changed"], "the same again"
    partition.isr_change_answered(life.proposed[0], ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert life.take() == [], "a refusal to shrink lets nobody wait"
    partition.tick()
    life.take()
    partition.isr_change_answered(life.proposed[0], CommittedIsr(5, 9, (1,)))
    assert life.take() == ["replica.high_watermark.moved", "committed", "changed"]
    assert (partition.traffic.isr_shrinks, partition.traffic.isr_expands) == (1, 0)
    texts = [it.text for it in life.notes]
    assert [text for text in texts if "asks for ISR" in text] == [
        "broker 1, the leader of orders-0, asks for ISR [1] instead of [1, 2]"
    ], "each proposal is noted once"
    assert len([text for text in texts if "refuses ISR" in text]) == 2

    life.fetch(1)
    assert life.take() == ["propose [1, 2]", "changed"]
    partition.isr_change_answered(life.proposed[-1], ErrorCode.INELIGIBLE_REPLICA)
    assert life.take() == ["changed"], "the follower must fetch again to be proposed again"
    life.now_ms += 100
    life.fetch(1)
    life.take()
    partition.isr_change_answered(life.proposed[-1], CommittedIsr(5, 10, (1, 2)))
    assert life.take() == ["changed"]
    assert (partition.traffic.isr_shrinks, partition.traffic.isr_expands) == (1, 1)
    assert life.lead(replace(LED, isr=(1,), partition_epoch=11)) == ["changed"]
    assert (partition.traffic.isr_shrinks, partition.traffic.isr_expands) == (2, 1)


@pytest.mark.feature("RE-06")
def test_settings_count_at_once_and_only_if_they_changed() -> None:
    life = Life()
    life.lead()
    life.produce()
    life.take()
    life.now_ms += LAG_MS
    life.partition.settings_changed(life.partition.replica.settings)
    assert life.take() == []
    life.partition.settings_changed(ReplicaSettings(LAG_MS - 1, 1))
    assert life.take() == ["propose [1]", "changed"]


@pytest.mark.feature("RE-02", "RE-04", "RE-13", "RE-17")
def test_a_follower_appends_commits_deletes_and_truncates() -> None:
    life = Life()
    partition, log = life.partition, life.log
    assert life.lead(replace(LED, leader=2)) == ["follow 2", *ANSWER]
    data = PartitionData(high_watermark=0, records=numbered(0, 3, 5))
    assert life.fetched(data) == ["replica.fetched.written"]
    assert life.fetched(PartitionData(high_watermark=2, records=b"")) == ["replica.high_watermark.moved", "committed"]
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    assert life.fetched(PartitionData(high_watermark=1, records=b"")) == [], "it never goes back"
    assert life.fetched(PartitionData(high_watermark=2, log_start_offset=1, records=b"")) == []
    assert (log.log_start_offset, log.high_watermark) == (1, 2)
    ahead = PartitionData(high_watermark=2, log_start_offset=3, records=b"")
    assert life.fetched(ahead) == ["replica.high_watermark.moved", "committed"], "what is deleted was committed"
    assert (log.log_start_offset, log.high_watermark) == (3, 3)

    assert life.fetched(PartitionData(high_watermark=3, log_start_offset=3, records=numbered(3, 2, 5))) == [
        "replica.fetched.written"
    ]
    diverging = PartitionData(diverging_epoch=EpochEndOffset(epoch=5, end_offset=4))
    assert life.fetched(diverging) == ["replica.truncated", "changed"]
    assert (log.log_end_offset, partition.replica.log_end_offset) == (3, 3), "a batch is cut as a whole"
    assert life.notes[-1].text == "broker 1 truncates its log of orders-0 from 5 to 3"
    assert "broker 2, its leader in epoch 5, has epoch 5 only up to offset 4" in life.notes[-1].cause

    refused = PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert life.fetched(refused) == []
    assert partition.follower.retry_at_ms == life.now_ms + 20
    life.now_ms += 20
    damaged = bytearray(numbered(3, 1, 5))
    damaged[-1] ^= 1
    assert life.fetched(PartitionData(high_watermark=9, records=bytes(damaged))) == []
    assert partition.follower.retry_at_ms == life.now_ms + 40
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    life.now_ms += 40
    life.fetched(PartitionData(high_watermark=3, records=numbered(3, 1, 5)))
    life.fetched(refused)
    assert partition.follower.retry_at_ms == life.now_ms + 20, "after a success the backoff is short again"


@pytest.mark.feature("CR-01", "CR-14")
def test_deleted_records_and_old_segments_are_reported_once() -> None:
    life = Life()
    partition, log = life.partition, life.log
    life.lead(replace(LED, isr=(1,)))
    life.produce(2)
    life.produce(2)
    life.take()
    assert partition.delete_records(1) == -1, "the follower has not fetched, so its start is unknown"
    assert (life.take(), log.log_start_offset) == (["changed"], 1)
    partition.delete_records(1)
    assert life.take() == []
    partition.delete_records(-1)
    assert (life.take(), log.log_start_offset) == (["changed"], 4)
    for wrong, code in ((5, ErrorCode.OFFSET_OUT_OF_RANGE), (-2, ErrorCode.OFFSET_OUT_OF_RANGE)):
        with pytest.raises(KafkaError) as refused:
            partition.delete_records(wrong)
        assert (refused.value.code, life.take()) == (code, [])
    partition.advance_log_start(9)
    assert life.take() == [], "it is at the high watermark already"
    life.produce()
    life.take()
    partition.advance_log_start(9)
    assert (life.take(), log.log_start_offset) == (["changed"], 5)
    assert partition.apply_retention() == 0
    assert life.take() == []
    log.roll(NOW_MS)
    assert partition.apply_retention() == 1
    assert life.take() == ["changed"]


@pytest.mark.feature("RE-18", "MB-08")
@pytest.mark.parametrize("leads", [True, False])
def test_the_end_of_a_replica(leads: bool) -> None:
    for how in ("go_offline", "leave"):
        life = Life()
        life.lead(LED if leads else replace(LED, leader=2))
        if leads:
            life.produce()
        life.take()
        getattr(life.partition, how)()
        if how == "leave":
            assert life.take() == [f"follow {NO_LEADER}", "leadership"]
            assert life.answers == ([ErrorCode.NOT_LEADER_OR_FOLLOWER] if leads else [])
            assert not life.partition.is_leader and not life.partition.is_offline
        else:
            effects = ["leadership", "changed"] if leads else [f"follow {NO_LEADER}", "changed"]
            assert life.take() == [*effects, "leadership", "changed"]
            assert life.answers == ([ErrorCode.KAFKA_STORAGE_ERROR] if leads else [])
            assert life.partition.is_offline
        assert life.partition.follower.next(life.now_ms) is None


@pytest.mark.feature("RE-04", "RE-16")
def test_a_batch_that_begins_before_the_log_leaves_the_watermark_where_it_was() -> None:
    """The leader's log begins inside a batch, which it sends as a whole: the empty log begins again with it."""
    life = Life()
    partition, log = life.partition, life.log
    life.lead(replace(LED, leader=2))
    assert life.fetched(PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)) == []
    wanted = partition.follower.next(life.now_ms)
    assert isinstance(wanted, BoundsWanted)
    partition.bounds_answered(wanted, (5, 9))
    life.take()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
    assert life.fetched(PartitionData(high_watermark=5, log_start_offset=5, records=numbered(3, 5, 5))) == [
        "replica.fetched.written"
    ]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 8, 5)


@pytest.mark.feature("RE-13", "RE-18")
def test_a_log_that_cannot_be_truncated_now_is_truncated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life()
    partition, log = life.partition, life.log
    life.lead(replace(LED, leader=2))
    life.fetched(PartitionData(high_watermark=0, records=numbered(0, 1, 5) + numbered(1, 1, 5)))
    diverging = PartitionData(diverging_epoch=EpochEndOffset(epoch=5, end_offset=1))

    def without_room(log: PartitionLog, offset: int) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "truncate_to", without_room)
        assert life.fetched(diverging) == [], "nothing has happened"
    assert (log.log_end_offset, partition.replica.log_end_offset) == (2, 2)
    assert not any("truncates" in it.text for it in life.notes)
    assert partition.follower.retry_at_ms == life.now_ms + 20
    life.now_ms += 20
    assert life.fetched(diverging) == ["replica.truncated", "changed"]
    assert (log.log_end_offset, partition.replica.log_end_offset) == (1, 1)
