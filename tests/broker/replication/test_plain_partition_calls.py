"""A partition beside its replica core: each effect of the core becomes the calls of the broker, in order, and readers
and producers are told as soon as there is something for them and no more often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.replica import (
    CommittedIsr,
    Effects,
    Follow,
    FollowerFetch,
    HighWatermarkAdvanced,
    IsrChangeWanted,
    LeadershipLost,
    LeadershipTaken,
    Leading,
    Replica,
    ReplicaSettings,
)
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import PartitionData
from tests.broker.replication.test_partition_calls import LAG_MS, LED, SELF, Life
from tests.broker.replication.test_replica import broker
from tests.examples import examples
from tests.storage.rig import numbered

REFUSALS = [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_SERVER_ERROR]


class Pair:
    """The core gets the same inputs; what it decides is tested elsewhere."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.life = Life()
        brokers = {node: broker(node) for node in (1, 2)}
        self.core = Replica(SELF, brokers.get, ReplicaSettings(LAG_MS, 1), 0, 0)
        self.image = replace(LED, leader=NO_LEADER, leader_epoch=0, partition_epoch=0)
        self.expected: list[str] = []
        self.waiting: list[int] = []
        """Offsets that producers wait for, in order."""
        self.answers: list[ErrorCode | None] = []
        self.traffic = [0, 0, 0, 0]
        """Records, bytes, shrunken and grown ISRs."""
        self.start = 0

    # -- what must follow

    def follows(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced(offset):
                    self.expected.append("replica.high_watermark.moved")
                    done = [each for each in self.waiting if each <= offset]
                    self.waiting = [each for each in self.waiting if each > offset]
                    self.answers += [self.core.ack_error()] * len(done)
                case IsrChangeWanted():
                    self.expected.append(f"propose {sorted(effect.members)}")
                case LeadershipTaken():
                    self.expected += [f"follow {NO_LEADER}", "replica.leadership.taken", "leadership"]
                case LeadershipLost(error):
                    self.expected.append("leadership")
                    self.answers += [error] * len(self.waiting)
                    self.waiting = []
                case Follow(leader_id, _):
                    self.expected.append(f"follow {leader_id}")
        if effects:
            self.expected.append("changed" if self.concerns_all(effects) else "committed")

    @staticmethod
    def concerns_all(effects: Effects) -> bool:
        return any(not isinstance(effect, HighWatermarkAdvanced) for effect in effects)

    @property
    def state(self) -> tuple[int, int, int]:
        role = self.core.role
        sizes = (len(role.isr), len(role.maximal_isr)) if isinstance(role, Leading) else (0, 0)
        return (self.core.partition_epoch, *sizes)

    def moves_on(self, before: tuple[int, int, int], effects: Effects) -> None:
        self.follows(effects)
        now = self.state
        if before[1] and now[1]:
            self.traffic[2] += now[1] < before[1]
            self.traffic[3] += now[1] > before[1]
        if (now[0] != before[0] or now[2] < before[2]) and not self.concerns_all(effects):
            self.expected.append("changed")

    # -- inputs

    def change(self) -> None:
        """Another state in the metadata log, or one that is known or outdated."""
        image, draw = self.image, self.draw
        how = draw(st.sampled_from(["leader", "leader", "isr", "again", "old"]))
        if how == "leader":
            leader = draw(st.sampled_from([1, 1, 2, NO_LEADER]))
            self.image = replace(image, leader=leader, leader_epoch=image.leader_epoch + 1)
        if how in ("leader", "isr"):
            isr = draw(st.sampled_from([(1,), (1, 2), (2,)]))
            newest = max(image.partition_epoch, self.core.partition_epoch) + 1
            self.image = replace(self.image, isr=isr, partition_epoch=newest)
        elif how == "old":
            image = replace(image, partition_epoch=image.partition_epoch - 1)
        wanted = image if how == "old" else self.image
        before = self.state
        self.life.partition.partition_changed(wanted)
        self.moves_on(before, self.core.partition_changed(wanted, self.end_before, self.life.now_ms))

    @property
    def end_before(self) -> int:
        return self.life.log.log_end_offset

    def produce(self) -> None:
        count, acks = self.draw(st.integers(1, 2)), self.draw(st.sampled_from([-1, -1, 1]))
        error = self.core.append_error(acks)
        try:
            size = self.life.produce(count, acks)
        except KafkaError as refused:
            assert refused.code == error
            return
        assert error is None
        self.traffic[0] += count
        self.traffic[1] += size
        self.expected.append("replica.append.written")
        end = self.life.log.log_end_offset
        self.follows(self.core.appended(end, self.life.now_ms))
        self.expected.append("changed")
        if acks == -1:
            done, answer = self.core.enough_replicas(end)
            if done:
                self.answers.append(answer)
            else:
                self.waiting.append(end)

    def fetch(self) -> None:
        log = self.life.log
        if not self.core.is_leader:
            return
        offset = self.draw(st.integers(log.log_start_offset, log.log_end_offset))
        fetch = FollowerFetch(2, 102, offset, 0)
        if self.draw(st.booleans()):
            self.life.fetch(offset)
        else:
            self.life.partition.follower_progressed(fetch)
        self.follows(self.core.follower_fetched(fetch, log.log_end_offset, self.life.now_ms))

    def time(self) -> None:
        self.life.now_ms += self.draw(st.sampled_from([1, LAG_MS, LAG_MS + 1]))
        self.life.partition.tick()
        self.follows(self.core.tick(self.life.now_ms))

    def settle(self) -> None:
        """The settings change, or do not."""
        changed = replace(self.core.settings, min_insync_replicas=self.draw(st.integers(1, 2)))
        is_other = changed != self.core.settings
        self.life.partition.settings_changed(changed)
        if is_other:
            self.core.settings = changed
            self.follows(self.core.tick(self.life.now_ms))

    def controller(self) -> None:
        pending = self.core.pending_isr_change
        if pending is None:
            return
        members = tuple(node for node, _ in pending.isr)
        accepted = CommittedIsr(pending.leader_epoch, self.core.partition_epoch + 1, members)
        answer = self.draw(st.sampled_from([accepted, accepted, *REFUSALS]))
        before = self.state
        self.life.partition.isr_change_answered(self.life.proposed[-1], answer)
        self.moves_on(before, self.core.isr_change_answered(pending, answer, self.life.now_ms))

    def leader_answers(self) -> None:
        """The leader of this follower sends records, or only its offsets."""
        life, log, draw = self.life, self.life.log, self.draw
        wanted = life.partition.follower.next(life.now_ms)
        if wanted is None:
            return
        end = log.log_end_offset
        epoch = max(0, log.latest_epoch, self.core.leader_epoch)
        records = numbered(end, draw(st.integers(1, 2)), epoch) if draw(st.booleans()) else b""
        watermark = draw(st.integers(-1, end + 2))
        data = PartitionData(high_watermark=watermark, log_start_offset=draw(st.integers(0, end)), records=records)
        life.partition.fetched(wanted, data)  # type: ignore[arg-type]
        if records:
            self.expected.append("replica.fetched.written")
        self.follows(self.core.replicated(log.log_end_offset, watermark))
        if data.log_start_offset > self.start:
            self.follows(self.core.log_start_advanced(data.log_start_offset))
            self.start = data.log_start_offset

    # -- answers

    def check(self) -> None:
        life, core = self.life, self.core
        assert life.take() == self.expected
        self.expected = []
        partition = life.partition
        assert partition.replica.describe() == core.describe()
        assert (life.answers, partition.waiting_acks) == (self.answers, len(self.waiting))
        assert life.log.high_watermark == max(core.high_watermark, life.log.log_start_offset)
        assert life.log.log_start_offset == self.start
        traffic = partition.traffic
        counted = [traffic.messages_in, traffic.bytes_in, traffic.isr_shrinks, traffic.isr_expands]
        assert counted == self.traffic
        if core.is_leader:
            assert life.log.latest_epoch == core.leader_epoch
        assert (partition.follower.next(life.now_ms) is not None) == (
            not core.is_leader and core.leader_id != NO_LEADER
        )


STEPS = ["change", "change", "produce", "produce", "fetch", "fetch", "time", "settle", "controller"]
STEPS += ["leader_answers", "leader_answers"]


@pytest.mark.feature("RE-03", "RE-04", "RE-06", "RE-08", "RE-09")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_what_the_core_decides_is_carried_out_in_order(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    for _ in range(data.draw(st.integers(2, 25))):
        getattr(pair, data.draw(st.sampled_from(STEPS)))()
        pair.check()
