"""The leader's and the follower's rules, each as a short story about one partition on brokers 1, 2 and 3."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.broker.replication.replica import (
    CommittedIsr,
    Effects,
    Follow,
    FollowerFetch,
    HighWatermarkAdvanced,
    IsrChangeWanted,
    LeadershipLost,
    LeadershipTaken,
    Replica,
    ReplicaSettings,
)
from barnabas.kraft.metadata.image import NO_LEADER, BrokerImage, PartitionImage
from barnabas.protocol.errors import ErrorCode

LAG_MS = 10_000


def broker(broker_id: int, epoch: int | None = None, **state: bool) -> BrokerImage:
    return BrokerImage(
        broker_id,
        epoch if epoch is not None else 100 + broker_id,
        bytes(16),
        {},
        {},
        **({"fenced": False} | state),
    )


def partition(leader: int = 1, **fields: object) -> PartitionImage:
    defaults: dict[str, object] = {
        "replicas": (1, 2, 3),
        "directories": (bytes(16),) * 3,
        "isr": (1, 2, 3),
        "leader_epoch": 5,
        "partition_epoch": 8,
    }
    return PartitionImage(leader=leader, **(defaults | fields))  # type: ignore[arg-type]


class Stage:
    """Broker 1's replica, the brokers it knows, and a clock."""

    def __init__(self, log_end_offset: int = 0, high_watermark: int = 0, **settings: object) -> None:
        self.brokers = {broker_id: broker(broker_id) for broker_id in (1, 2, 3)}
        self.now_ms = 1_000_000
        self.replica = Replica(
            1,
            self.brokers.get,
            ReplicaSettings(replica_lag_time_max_ms=LAG_MS, **settings),  # type: ignore[arg-type]
            log_end_offset,
            high_watermark,
        )

    def lead(self, **fields: object) -> Effects:
        return self.change(partition(1, **fields))

    def change(self, image: PartitionImage) -> Effects:
        return self.replica.partition_changed(image, self.replica.log_end_offset, self.now_ms)

    def append(self, log_end_offset: int) -> Effects:
        return self.replica.appended(log_end_offset, self.now_ms)

    def fetch(self, node_id: int, offset: int, *, epoch: int | None = None, start: int = 0) -> Effects:
        fetch = FollowerFetch(node_id, epoch if epoch is not None else 100 + node_id, offset, start)
        return self.replica.follower_fetched(fetch, self.replica.log_end_offset, self.now_ms)

    def after(self, milliseconds: int) -> Effects:
        self.now_ms += milliseconds
        return self.replica.tick(self.now_ms)

    def answer(self, proposal: IsrChangeWanted, answer: CommittedIsr | ErrorCode) -> Effects:
        return self.replica.isr_change_answered(proposal, answer, self.now_ms)

    def accept(self, proposal: IsrChangeWanted) -> Effects:
        isr = tuple(sorted(proposal.members))
        return self.answer(proposal, CommittedIsr(proposal.leader_epoch, proposal.partition_epoch + 1, isr))


def proposed(effects: Effects) -> IsrChangeWanted:
    """The one proposal among the effects."""
    (proposal,) = (effect for effect in effects if isinstance(effect, IsrChangeWanted))
    return proposal


class TestTheHighWatermark:
    @pytest.mark.feature("RE-01")
    def test_a_single_replica_commits_by_appending(self) -> None:
        stage = Stage()
        assert stage.lead(replicas=(1,), isr=(1,)) == (LeadershipTaken(5, 0),)
        assert stage.append(10) == (HighWatermarkAdvanced(10),)

    @pytest.mark.feature("RE-03", "RE-09")
    def test_it_is_the_least_end_of_the_isr(self) -> None:
        stage = Stage()
        stage.lead()
        assert stage.append(10) == ()
        assert stage.fetch(2, 0) == ()
        assert stage.fetch(2, 10) == (), "3 has not said anything yet"
        assert stage.replica.enough_replicas(10) == (False, None)
        assert stage.fetch(3, 7) == (HighWatermarkAdvanced(7),)
        assert stage.fetch(3, 7) == ()
        assert stage.fetch(3, 10) == (HighWatermarkAdvanced(10),)
        assert stage.replica.enough_replicas(10) == (True, None)

    @pytest.mark.feature("RE-03")
    def test_a_replica_outside_the_isr_does_not_hold_it(self) -> None:
        stage = Stage()
        stage.lead(isr=(1, 2))
        stage.append(10)
        assert stage.fetch(2, 10) == (HighWatermarkAdvanced(10),)

    @pytest.mark.feature("RE-03", "RE-07")
    def test_a_replica_about_to_join_is_waited_for(self) -> None:
        """Else a leader alone in its ISR would commit faster than anyone can catch up with the watermark."""
        stage = Stage(log_end_offset=100, high_watermark=90)
        stage.lead(isr=(1,))
        assert stage.replica.high_watermark == 100
        assert stage.fetch(2, 99) == ()
        assert stage.append(110) == (HighWatermarkAdvanced(110),), "2 was never caught up: not waited for"
        assert stage.fetch(2, 109) == (), "has our end as of its last fetch, but not the watermark"
        assert stage.append(120) == ()
        assert stage.fetch(2, 115) == (
            IsrChangeWanted(((1, 101), (2, 102)), 5, 8),
            HighWatermarkAdvanced(115),
        )

    @pytest.mark.feature("RE-03")
    def test_it_does_not_move_back_in_a_new_epoch_of_ours(self) -> None:
        """A new epoch forgets how far the followers were: another leader may have truncated them
        meanwhile."""
        stage = Stage()
        stage.lead()
        stage.append(10)
        stage.fetch(2, 10)
        stage.fetch(3, 10)
        stage.append(20)
        stage.fetch(2, 20)
        assert stage.lead(leader_epoch=7, partition_epoch=10) == (LeadershipTaken(7, 20),)
        assert stage.fetch(3, 20) == (), "2 has to report again"
        assert stage.replica.high_watermark == 10
        assert stage.fetch(2, 20) == (HighWatermarkAdvanced(20),)

    @pytest.mark.feature("MB-15", "RE-03")
    def test_it_rests_while_the_isr_is_below_the_minimum(self) -> None:
        stage = Stage(min_insync_replicas=2)
        stage.lead(isr=(1,))
        assert stage.append(10) == (), "acks=1 may append; nothing is committed (KIP-966)"
        assert stage.replica.append_error(-1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert stage.replica.append_error(1) is None
        proposal = proposed(stage.fetch(2, 10))
        assert stage.replica.high_watermark == 0, "proposed is not committed"
        assert stage.accept(proposal) == (HighWatermarkAdvanced(10),)

    @pytest.mark.feature("RE-09")
    def test_without_elr_a_small_isr_commits_and_acks_all_learns_of_it(self) -> None:
        stage = Stage(min_insync_replicas=2, hold_below_min_isr=False)
        stage.lead(isr=(1,))
        assert stage.append(10) == (HighWatermarkAdvanced(10),)
        assert stage.replica.enough_replicas(10) == (True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    @pytest.mark.feature("RE-09")
    def test_the_minimum_is_never_more_than_there_are_replicas(self) -> None:
        stage = Stage(min_insync_replicas=3)
        stage.lead(replicas=(1,), isr=(1,))
        assert stage.replica.append_error(-1) is None
        assert stage.append(1) == (HighWatermarkAdvanced(1),)


class TestTheIsr:
    @pytest.mark.feature("RE-06", "RE-08")
    def test_a_laggard_leaves_and_counts_until_the_controller_agrees(self) -> None:
        stage = Stage()
        stage.lead()
        stage.append(10)
        stage.fetch(2, 10)
        assert stage.after(LAG_MS) == ()
        stage.fetch(2, 10)
        proposal = proposed(stage.after(1))
        assert proposal == IsrChangeWanted(((1, 101), (2, 102)), 5, 8)
        assert stage.append(11) == ()
        assert stage.fetch(2, 11) == (), "3 still counts"
        assert stage.after(LAG_MS) == (), "one change at a time"
        assert stage.accept(proposal) == (HighWatermarkAdvanced(11),)
        assert stage.replica.isr == {1, 2}

    @pytest.mark.feature("RE-08")
    def test_a_refused_shrink_has_committed_nothing(self) -> None:
        """Regression 20: a watermark moved by a shrink that the controller then refuses."""
        stage = Stage()
        stage.lead()
        stage.append(10)
        stage.fetch(2, 10)
        stage.now_ms += LAG_MS + 1
        stage.fetch(2, 10)
        proposal = proposed(stage.after(0))
        assert stage.answer(proposal, ErrorCode.INELIGIBLE_REPLICA) == ()
        assert stage.replica.high_watermark == 0
        assert stage.replica.isr == {1, 2, 3}

    @pytest.mark.feature("RE-06")
    def test_a_caught_up_replica_is_not_lagging_however_silent(self) -> None:
        stage = Stage()
        stage.lead()
        stage.append(10)
        stage.fetch(2, 10)
        stage.fetch(3, 10)
        assert stage.after(10 * LAG_MS) == ()

    @pytest.mark.feature("RE-06")
    def test_under_steady_load_having_our_previous_end_is_enough(self) -> None:
        stage = Stage()
        stage.lead(isr=(1, 2), replicas=(1, 2))
        for end in range(10, 200, 10):
            stage.append(end)
            stage.fetch(2, end - 10)
            assert stage.after(LAG_MS // 2) == ()
        assert stage.replica.high_watermark == 180

    @pytest.mark.feature("RE-06")
    def test_moving_without_ever_catching_up_is_lagging(self) -> None:
        stage = Stage()
        stage.lead(isr=(1, 2), replicas=(1, 2))
        stage.append(1_000)
        effects: Effects = ()
        for offset in range(1, 5):
            stage.fetch(2, offset)
            effects = stage.after(LAG_MS // 3)
            stage.append(1_000 + offset * 100)
        assert proposed(effects).members == {1}

    @pytest.mark.feature("RE-07", "RE-08")
    def test_a_replica_at_the_watermark_is_proposed_and_counts_at_once(self) -> None:
        stage = Stage()
        stage.lead(isr=(1,))
        stage.append(10)
        proposal = proposed(stage.fetch(3, 10))
        assert proposal.members == {1, 3}
        assert stage.append(20) == (), "the watermark waits for the proposed member already"
        assert stage.fetch(2, 20) == (), "one change at a time"
        stage.accept(proposal)
        assert proposed(stage.fetch(2, 20)).partition_epoch == 9

    @pytest.mark.feature("RE-07")
    def test_a_new_leader_proposes_no_replica_below_its_epochs_start(self) -> None:
        """Above the new leader's own watermark there may be committed records (its predecessor knew)."""
        stage = Stage(log_end_offset=50, high_watermark=40)
        stage.lead(isr=(1, 2))
        assert not stage.replica.high_watermark_is_current
        assert stage.fetch(3, 45) == ()
        assert proposed(stage.fetch(3, 50)).members == {1, 2, 3}

    @pytest.mark.feature("RE-07")
    @pytest.mark.parametrize("state", [{"fenced": True}, {"in_controlled_shutdown": True}], ids=str)
    def test_fenced_and_leaving_brokers_do_not_join(self, state: dict[str, bool]) -> None:
        stage = Stage()
        stage.lead(isr=(1, 2))
        stage.brokers[3] = broker(3, **state)
        assert stage.fetch(3, 0) == ()
        stage.brokers[3] = broker(3)
        assert proposed(stage.fetch(3, 0)).members == {1, 2, 3}

    @pytest.mark.feature("RE-07", "MB-05")
    def test_a_fetch_from_before_the_brokers_restart_says_nothing(self) -> None:
        """KIP-903: broker 3 came back (epoch 203) without its tail; a fetch of its former self arrives
        late."""
        stage = Stage()
        stage.lead(isr=(1, 2))
        stage.append(10)
        stage.fetch(2, 10)
        stage.brokers[3] = broker(3, epoch=203)
        assert stage.replica.follower_error(3, 103, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.fetch(3, 10, epoch=103) == ()
        assert stage.fetch(3, 4, epoch=203) == ()
        assert dict(proposed(stage.fetch(3, 10, epoch=203)).isr)[3] == 203

    @pytest.mark.feature("RE-07")
    def test_a_fetch_from_an_unknown_registration_waits(self) -> None:
        stage = Stage()
        stage.lead(isr=(1, 2))
        assert stage.fetch(3, 0, epoch=203) == ()
        stage.brokers[3] = broker(3, epoch=203)
        assert proposed(stage.fetch(3, 0, epoch=203)).members == {1, 2, 3}

    @pytest.mark.feature("RE-08")
    @pytest.mark.parametrize(
        "error",
        [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NEW_LEADER_ELECTED],
    )
    def test_a_stale_proposal_waits_for_the_metadata_log(self, error: ErrorCode) -> None:
        stage = Stage()
        stage.lead(isr=(1,))
        proposal = proposed(stage.fetch(2, 0))
        assert stage.answer(proposal, error) == ()
        stage.append(10)
        assert stage.replica.high_watermark == 0, "it may have been done: it still counts"
        assert stage.fetch(3, 10) == ()
        stage.lead(isr=(1, 2), partition_epoch=9)
        assert stage.replica.isr == {1, 2}
        assert proposed(stage.fetch(3, 10)).partition_epoch == 9

    @pytest.mark.feature("RE-08")
    def test_other_errors_give_the_proposal_back(self) -> None:
        stage = Stage()
        stage.lead(isr=(1,))
        proposal = proposed(stage.fetch(2, 0))
        assert stage.answer(proposal, ErrorCode.UNKNOWN_SERVER_ERROR) == (proposal,)
        assert stage.accept(proposal) == ()
        assert stage.replica.isr == {1, 2}

    @pytest.mark.feature("RE-08")
    def test_an_ineligible_replica_is_not_proposed_with_every_fetch(self) -> None:
        stage = Stage()
        stage.lead(isr=(1,))
        stage.answer(proposed(stage.fetch(2, 0)), ErrorCode.INELIGIBLE_REPLICA)
        assert stage.replica.isr == {1}
        assert stage.fetch(2, 0) == ()
        stage.now_ms += 100
        assert proposed(stage.fetch(2, 0)).members == {1, 2}

    @pytest.mark.feature("RE-03", "RE-08")
    def test_a_replica_that_the_controller_refuses_is_not_waited_for(self) -> None:
        """Its disk may be full: it was in sync a moment ago, and gets no further."""
        stage = Stage(log_end_offset=10, high_watermark=10)
        stage.lead(isr=(1, 3))
        stage.fetch(3, 10)
        stage.answer(proposed(stage.fetch(2, 10)), ErrorCode.INELIGIBLE_REPLICA)
        stage.append(20)
        assert stage.fetch(3, 20) == (HighWatermarkAdvanced(20),)
        stage.now_ms += 60_000
        stage.fetch(3, 20)
        assert proposed(stage.fetch(2, 20)).members == {1, 2, 3}, "it has all again, so it is proposed again"
        stage.append(30)
        assert stage.fetch(3, 30) == (), "and counts"

    @pytest.mark.feature("RE-08")
    def test_the_metadata_log_may_be_faster_than_the_answer(self) -> None:
        stage = Stage()
        stage.lead(isr=(1,))
        proposal = proposed(stage.fetch(2, 0))
        stage.lead(isr=(1, 2), partition_epoch=9)
        second = proposed(stage.fetch(3, 0))
        assert stage.accept(proposal) == (), "an old answer"
        assert stage.replica.isr == {1, 2}
        stage.accept(second)
        assert stage.replica.isr == {1, 2, 3}

    @pytest.mark.feature("RE-08")
    def test_the_echo_of_an_answer_does_not_drop_what_was_proposed_since(self) -> None:
        """The controller may have taken 3 in already: to forget it here would commit without it."""
        stage = Stage()
        stage.lead(isr=(1,))
        stage.append(10)
        stage.accept(proposed(stage.fetch(2, 10)))
        proposed(stage.fetch(3, 10))
        assert stage.lead(isr=(1, 2), partition_epoch=9) == ()
        stage.append(20)
        assert stage.fetch(2, 20) == ()
        assert stage.fetch(3, 20) == (HighWatermarkAdvanced(20),)

    @pytest.mark.feature("RE-06", "RE-08")
    def test_when_the_controller_fences_a_member_the_watermark_goes_on(self) -> None:
        stage = Stage()
        stage.lead()
        stage.append(10)
        stage.fetch(2, 10)
        assert stage.lead(isr=(1, 2), partition_epoch=9) == (HighWatermarkAdvanced(10),)

    @pytest.mark.feature("RE-08")
    def test_an_assignment_may_grow_and_lose_replicas(self) -> None:
        stage = Stage()
        stage.lead(replicas=(1, 2), isr=(1, 2))
        assert stage.replica.follower_error(3, 103, 5) == ErrorCode.UNKNOWN_LEADER_EPOCH
        stage.lead(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=9)
        assert proposed(stage.fetch(3, 0)).members == {1, 2, 3}
        stage.lead(replicas=(1, 3), isr=(1, 3), partition_epoch=11)
        stage.append(10)
        assert stage.fetch(3, 10) == (HighWatermarkAdvanced(10),)


class TestRoles:
    @pytest.mark.feature("RE-01", "RE-09")
    def test_lost_leadership_is_an_effect_and_taken_leadership_starts_an_epoch(self) -> None:
        stage = Stage(log_end_offset=30, high_watermark=20)
        assert stage.change(partition(2)) == (Follow(2, 5),)
        assert stage.replica.append_error(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.lead(leader_epoch=6, partition_epoch=9) == (LeadershipTaken(6, 30),)
        assert stage.change(partition(3, leader_epoch=7, partition_epoch=10)) == (
            LeadershipLost(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            Follow(3, 7),
        )
        assert stage.replica.enough_replicas(5) == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert stage.change(partition(NO_LEADER, leader_epoch=8, partition_epoch=11)) == (
            Follow(NO_LEADER, 8),
        )

    @pytest.mark.feature("RE-01")
    def test_a_change_that_does_not_concern_the_leader_restarts_nothing(self) -> None:
        stage = Stage()
        stage.change(partition(2))
        assert stage.change(partition(2, isr=(2,), partition_epoch=9)) == ()

    @pytest.mark.feature("RE-08")
    def test_an_older_state_is_ignored(self) -> None:
        stage = Stage()
        stage.lead(partition_epoch=9)
        assert stage.change(partition(2, partition_epoch=8)) == ()
        assert stage.replica.is_leader

    @pytest.mark.feature("RE-14")
    def test_epochs_are_fenced_in_both_directions(self) -> None:
        stage = Stage()
        stage.lead()
        asked = [stage.replica.leader_error(epoch) for epoch in (4, 5, 6, -1)]
        assert asked == [ErrorCode.FENCED_LEADER_EPOCH, None, ErrorCode.UNKNOWN_LEADER_EPOCH, None]
        stage.change(partition(2, leader_epoch=6, partition_epoch=9))
        assert stage.replica.leader_error(6) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.replica.replica_error(6) is None, "a follower may serve readers (KIP-392)"

    @pytest.mark.feature("RE-18")
    def test_a_failed_disk_answers_storage_error_and_stays_offline(self) -> None:
        stage = Stage()
        stage.lead()
        assert stage.replica.go_offline() == (LeadershipLost(ErrorCode.KAFKA_STORAGE_ERROR),)
        assert stage.replica.append_error(1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.lead(leader_epoch=6, partition_epoch=9) == ()
        assert stage.replica.leader_error(6) == ErrorCode.KAFKA_STORAGE_ERROR

    @pytest.mark.feature("RE-17")
    def test_the_low_watermark_is_the_least_start_of_the_living(self) -> None:
        stage = Stage(log_end_offset=50)
        stage.lead()
        stage.fetch(2, 50, start=30)
        stage.fetch(3, 50, start=10)
        assert stage.replica.low_watermark(40) == 10
        stage.brokers[3] = replace(stage.brokers[3], fenced=True)
        assert stage.replica.low_watermark(40) == 30


class TestFollowing:
    @pytest.mark.feature("RE-04")
    def test_the_watermark_is_the_leaders_as_far_as_the_log_goes(self) -> None:
        stage = Stage()
        stage.change(partition(2))
        assert stage.replica.replicated(10, 0) == ()
        assert stage.replica.replicated(20, 50) == (HighWatermarkAdvanced(20),)
        assert stage.replica.replicated(60, 50) == (HighWatermarkAdvanced(50),)
        assert stage.replica.replicated(60, 40) == (), "a new leader that knows less takes nothing back"

    @pytest.mark.feature("RE-13", "RE-03")
    def test_a_cut_log_takes_the_watermark_with_it(self) -> None:
        stage = Stage(log_end_offset=60, high_watermark=50)
        stage.change(partition(2))
        stage.replica.truncated(55)
        assert stage.replica.high_watermark == 50
        stage.replica.truncated(45)
        assert (stage.replica.high_watermark, stage.replica.log_end_offset) == (45, 45)

    @pytest.mark.feature("RE-17")
    def test_records_the_leader_deleted_were_committed(self) -> None:
        stage = Stage(log_end_offset=60, high_watermark=10)
        stage.change(partition(2))
        assert stage.replica.log_start_advanced(30) == (HighWatermarkAdvanced(30),)

    def test_it_prints_on_one_line(self) -> None:
        stage = Stage()
        assert stage.replica.describe() == "following -1 epoch -1/-1 hw 0 end 0"
        stage.lead(isr=(1,))
        stage.append(4)
        stage.fetch(2, 4)
        assert stage.replica.describe() == (
            "leading epoch 5/8 hw 4 end 4 isr [1] -> [1, 2] followers 2@4 3@-1"
        )
