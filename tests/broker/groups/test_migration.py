"""Online migration between the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.consumer_group import GroupState
from barnabas.broker.groups.consumer_groups import ConsumerGroups
from barnabas.broker.groups.consumer_member import MemberState
from barnabas.broker.groups.group import Commit, GroupContext
from barnabas.broker.groups.machine import GroupMachine
from barnabas.protocol.embedded_consumer import read_assignment, write_assignment
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records.coordinator import decode_key, decode_versioned
from barnabas.protocol.schema import encode
from tests.broker.groups.consumer_rig import GROUP, HEARTBEAT_MS, TYPES, Reader, Rig

INITIAL_DELAY_MS = 3_000
SESSION_MS = 30_000
REBALANCE_MS = 60_000


class MixedRig(Rig):
    """One partition with groups of both kinds."""

    machine: GroupMachine

    def make_core(self, context: GroupContext) -> ConsumerGroups:
        self.machine = GroupMachine(context)
        return self.machine.consumer

    def _replay(self, core: ConsumerGroups, key: bytes, value: bytes | None) -> None:
        decoded_key = decode_key(TYPES, key)
        assert decoded_key is not None
        kind = TYPES[decoded_key.API_KEY].value
        self.machine.replay(decoded_key, None if value is None else decode_versioned(kind, value)[0], None, 0)

    def fail_over(self, compacted: bool = False) -> None:
        super().fail_over(compacted)
        self.run(self.machine.classic.loaded)

    def ask_later(self, request: Any, version: int, command: Any) -> list[Any]:
        """A list that receives the answer."""
        from functools import partial

        from barnabas.broker.coordinator.outcome import Reply
        from barnabas.broker.groups.group import Client

        answers: list[Any] = []
        reply = Reply(answers.append, answers.append)
        self.run(partial(command, request, Client("classic", "/127.0.0.1"), version, reply), reply)
        return answers

    @property
    def kind(self) -> str:
        group = self.directory.get(GROUP)
        return "none" if group is None else group.type.value


class Old:
    """A consumer with the cooperative classic protocol."""

    def __init__(self, rig: MixedRig, *topics: str, instance_id: str | None = None) -> None:
        self.rig = rig
        self.topics = list(topics)
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}
        self.joined = JoinGroupResponse()

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(name, number) for name, numbers in self.owned.items() for number in numbers}

    def metadata(self) -> bytes:
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=name, partitions=numbers)
                for name, numbers in self.owned.items()
                if numbers
            ],
        )
        return b"\0\3" + encode(subscription, 3)

    def join(self, protocols: dict[str, bytes] | None = None) -> list[Any]:
        protocols = {"cooperative-sticky": self.metadata()} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        )
        answers = self.rig.ask_later(request, 9, self.rig.machine.classic.join)
        if answers and not isinstance(answers[0], ErrorCode):
            code = ErrorCode(answers[0].error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answers[0].member_id
                return self.join(protocols)
            if code is not ErrorCode.NONE:
                assert answers[0].member_id == "", "as Kafka answers"
                return [code]
            self.take(answers)
        return answers

    def take(self, answers: list[Any]) -> None:
        self.joined = answers[0]
        assert self.joined.error_code == ErrorCode.NONE
        self.member_id, self.generation = self.joined.member_id or "", self.joined.generation_id

    def sync(self, assignments: dict[str, bytes] | None = None) -> ErrorCode:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ],
        )
        (answer,) = self.rig.ask_later(request, 5, self.rig.machine.classic.sync)
        if isinstance(answer, ErrorCode):
            return answer
        assigned = read_assignment(answer.assignment)
        self.owned = {topic.topic: topic.partitions for topic in assigned.assigned_partitions}
        return ErrorCode(answer.error_code)

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        (answer,) = self.rig.ask_later(request, 4, self.rig.machine.classic.heartbeat)
        return answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)

    def follow(self) -> None:
        """A heartbeat and, if there is a rebalance, everything that belongs to it."""
        if self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            assert self.sync() is ErrorCode.NONE

    def leave(self) -> ErrorCode:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        (answer,) = self.rig.ask_later(request, 5, self.rig.machine.classic.leave)
        if isinstance(answer, ErrorCode):
            return answer
        return ErrorCode(answer.error_code or answer.members[0].error_code)


@pytest.fixture
def rig() -> MixedRig:
    rig = MixedRig()
    rig.create_topic("news", 4)
    return rig


def classic_group(rig: MixedRig, *members: Old, shares: list[list[int]] | None = None) -> None:
    """A classic group of these; the first leads, and gives each its share of `news`."""
    waiting = [member.join() for member in members]
    rig.pass_ms(INITIAL_DELAY_MS)
    rig.pass_ms(INITIAL_DELAY_MS)
    for member, answers in zip(members, waiting, strict=True):
        member.take(answers)
    shares = shares or [list(range(4))[place :: len(members)] for place in range(len(members))]
    parts = {
        member.member_id: write_assignment({"news": share}, 3) for member, share in zip(members, shares, strict=True)
    }
    leader = next(member for member in members if member.joined.leader == member.member_id)
    assert leader.sync(parts) is ErrorCode.NONE
    for member in members:
        assert member.sync() is ErrorCode.NONE
    assert isinstance(rig.directory.get(GROUP), ClassicGroup)


def everybody(rig: MixedRig, old: list[Old], new: list[Reader], rounds: int = 6) -> None:
    """All of them follow the protocol until nothing changes."""
    for _ in range(rounds):
        for reader in new:
            reader.beat()
            assert reader.error is ErrorCode.NONE
        for member in old:
            member.follow()
        rig.pass_ms(HEARTBEAT_MS)


@pytest.mark.feature("CG-16")
def test_a_classic_group_becomes_a_consumer_group_and_keeps_what_it_has(rig: MixedRig) -> None:
    a, b = Old(rig, "news"), Old(rig, "news")
    classic_group(rig, a, b)
    had = a.partitions, b.partitions
    c = Reader(rig, "c", "news")
    c.join()
    assert c.error is ErrorCode.NONE, c.response.error_message
    group = rig.group
    assert group.classic_members == 2
    # Tombstone of the classic group, its members, epoch, targets and current assignments; then the new member's
    # records.
    written = [record.key.API_KEY if record.value is not None else -record.key.API_KEY for record in rig.written]
    assert written[:9] == [-2, 5, 5, 3, 7, 7, 6, 8, 8]
    assert (a.partitions, b.partitions) == had, "nobody stops reading"
    assert c.partitions == set()
    everybody(rig, [a, b], [c])
    assert group.state is GroupState.STABLE
    assert [len(each.partitions) for each in (a, b, c)].count(1) == 2
    assert a.partitions | b.partitions | c.partitions == {("news", number) for number in range(4)}
    described = rig.core.describe(GROUP).complete()
    assert sorted(member.member_type for member in described.members) == [0, 0, 1]


@pytest.mark.feature("CG-16")
def test_members_in_a_rebalance_are_asked_to_join_the_new_kind(rig: MixedRig) -> None:
    a, b = Old(rig, "news"), Old(rig, "news")
    classic_group(rig, a)
    waiting = b.join()
    assert not waiting
    c = Reader(rig, "c", "news")
    c.join()
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    b.join()
    assert b.sync() is ErrorCode.NONE
    everybody(rig, [a, b], [c])
    assert a.partitions | b.partitions | c.partitions == {("news", number) for number in range(4)}


@pytest.mark.feature("CG-16")
def test_a_member_that_is_refused_interrupts_no_rebalance_of_a_classic_group(rig: MixedRig) -> None:
    a, b = Old(rig, "news"), Old(rig, "news")
    classic_group(rig, a)
    waiting = b.join()
    bad = Reader(rig, "c", "news", subscribed_topic_regex="(")
    assert bad.join().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    rig.set_setting("group_consumer_max_size", 2)
    assert Reader(rig, "c", "news").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.kind == "classic" and not waiting
    assert not any("consumer-session" in str(key) for key in rig.timers.due)


@pytest.mark.feature("CG-16")
def test_the_last_consumer_member_leaves_and_the_group_is_classic_again(rig: MixedRig) -> None:
    a, b, c = Old(rig, "news"), Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a, b)
    c.join()
    everybody(rig, [a, b], [c])
    epoch = rig.group.epoch
    assert c.leave().error_code == ErrorCode.NONE
    group = rig.directory.get(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.state_name() == "PreparingRebalance"
    assert group.generation == epoch
    assert not any("consumer" in str(key) for key in rig.timers.due)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    joining = [a.join(), b.join()]
    for member, answers in zip((a, b), joining, strict=True):
        member.take(answers)
    assert a.generation == epoch + 1
    rig.fail_over(compacted=True)
    loaded = rig.directory.get(GROUP)
    assert isinstance(loaded, ClassicGroup) and len(loaded.members) == 2, "the log says the same"


@pytest.mark.feature("CG-16")
def test_a_downgrade_that_cannot_be_written_changes_nothing(rig: MixedRig) -> None:
    a, c = Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a)
    c.join()
    everybody(rig, [a], [c])
    rig.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.leave().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.kind == "consumer"
    rig.broken = None
    assert a.beat() is ErrorCode.NONE
    rig.pass_ms(1_000)
    assert rig.kind == "classic", "and is tried again"


@pytest.mark.feature("CG-16")
def test_a_silent_consumer_member_makes_the_group_classic(rig: MixedRig) -> None:
    a, c = Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a)
    c.join()
    everybody(rig, [a], [c])
    for _ in range(12):
        rig.pass_ms(HEARTBEAT_MS)
        a.beat()
    assert rig.kind == "classic"
    assert c.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.kind == "classic", "only who joins makes it a consumer group"
    assert c.join().error_code == ErrorCode.NONE
    assert rig.kind == "consumer"


@pytest.mark.feature("CG-16")
def test_a_static_member_changes_its_protocol_there_and_back(rig: MixedRig) -> None:
    old = Old(rig, "news", instance_id="one")
    other = Old(rig, "news")
    classic_group(rig, old, other)
    had = old.partitions
    new = Reader(rig, "c", "news", instance_id="one")
    new.join()
    assert new.error is ErrorCode.NONE
    assert new.partitions == had, "it takes over what it had"
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID
    everybody(rig, [other], [new])
    again = Old(rig, "news", instance_id="one")
    again.join()
    assert rig.kind == "classic"
    assert again.sync() is ErrorCode.NONE
    assert again.partitions == had
    assert other.beat() is ErrorCode.NONE, "it did not notice"
    rig.fail_over()
    assert rig.kind == "classic"
    assert other.beat() is ErrorCode.NONE


@pytest.mark.feature("CG-16")
def test_unrevoked_partitions_keep_their_owner_through_two_conversions(rig: MixedRig) -> None:
    """A classic member owns all partitions. A member with the consumer protocol joins, is to get half of them, and
    leaves before any were revoked: the group is classic again. Another one joins before the first has rejoined.
    """
    a, c, d = Old(rig, "news"), Reader(rig, "c", "news"), Reader(rig, "d", "news")
    classic_group(rig, a)
    c.join()
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    c.leave()
    assert rig.kind == "classic"
    d.join()
    assert rig.kind == "consumer"
    assert a.partitions == {("news", number) for number in range(4)}
    assert d.partitions == set(), "all of it is being read"
    # Its generation is outdated, so it abandons everything.
    assert a.beat() is ErrorCode.ILLEGAL_GENERATION
    a.owned = {}
    a.join()
    assert a.sync() is ErrorCode.NONE
    everybody(rig, [a], [d])
    assert (len(a.partitions), len(d.partitions)) == (2, 2)
    assert not a.partitions & d.partitions


@pytest.mark.feature("CG-16")
def test_partitions_to_revoke_keep_their_owner_through_a_conversion(
    rig: MixedRig,
) -> None:
    """Its assignment in the new generation leaves out partitions that another member will get in the next one. Before
    it learns of that, a member with the consumer protocol joins.
    """
    a, b, late = Old(rig, "news"), Old(rig, "news"), Old(rig, "news")
    classic_group(rig, a, b, shares=[[0], [1, 2, 3]])
    late_joins = late.join()
    for member, answers in ((a, a.join()), (b, b.join()), (late, late_joins)):
        member.take(answers)
    shares = {a: [0], b: [1, 2], late: []}
    leader = next(member for member in shares if member.joined.leader == member.member_id)
    assert leader is a
    leader.sync({member.member_id: write_assignment({"news": share}, 3) for member, share in shares.items()})
    assert ("news", 3) in b.partitions
    c = Reader(rig, "c", "news")
    c.join()
    assert c.error is ErrorCode.NONE, c.response.error_message
    assert c.partitions == set(), "all of it is being read"
    assert b.sync() is ErrorCode.REBALANCE_IN_PROGRESS
    everybody(rig, [a, b, late], [c])
    assert [len(each.partitions) for each in (a, b, late, c)] == [1, 1, 1, 1]


@pytest.mark.feature("CG-16")
def test_an_outdated_claim_to_a_partition_does_not_count(rig: MixedRig) -> None:
    """It claimed them when it joined, and has lost them since."""
    a, b = Old(rig, "news"), Old(rig, "news")
    b.owned = {"news": [0, 1, 2, 3]}
    classic_group(rig, a, b, shares=[[0, 1], [2]])
    c = Reader(rig, "c", "news")
    c.join()
    assert c.error is ErrorCode.NONE, c.response.error_message
    topic_id = rig.image.topics.by_name["news"].id
    has = {member.member_id: sorted(member.assigned.get(topic_id, ())) for member in rig.group.members.values()}
    assert has == {a.member_id: [0, 1], b.member_id: [2, 3], "c": []}


@pytest.mark.feature("CG-16")
def test_awaited_partitions_are_not_owned_through_two_conversions(rig: MixedRig) -> None:
    """The same, with a second classic member that waits for partitions which the first must revoke."""
    a, b = Old(rig, "news"), Old(rig, "news")
    c, d = Reader(rig, "c", "news"), Reader(rig, "d", "news")
    classic_group(rig, a)
    c.join()
    b.join()
    c.beat()
    b.join()
    assert b.sync() is ErrorCode.NONE
    assert b.partitions == set()
    assert rig.group.targets[b.member_id], "what is to be its own"
    c.leave()
    assert rig.kind == "classic"
    d.join()
    assert rig.kind == "consumer"
    b.join()
    assert b.sync() is ErrorCode.NONE
    assert a.partitions == {("news", number) for number in range(4)}
    assert b.partitions | d.partitions == set(), "all of it is being read"


@pytest.mark.feature("CG-16")
def test_a_static_member_ends_the_migration_while_others_wait_for_partitions(rig: MixedRig) -> None:
    """The last member with the consumer protocol returns with the classic one. Another member has just joined and not
    revoked its partitions yet, for which a third one waits: what it owns is not its target.
    """
    old, other = Old(rig, "news"), Old(rig, "news")
    new = Reader(rig, "c", "news", instance_id="one")
    classic_group(rig, old, other)
    new.join()
    late = Old(rig, "news")
    for _ in range(2):
        late.join()
        new.beat()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    assert rig.group.members[late.member_id].state is MemberState.UNRELEASED_PARTITIONS
    again = Old(rig, "news", instance_id="one")
    again.join()
    assert rig.kind == "classic"
    waiting = {member.member_id: member.sync() for member in (late, again)}
    assert set(waiting.values()) == {ErrorCode.REBALANCE_IN_PROGRESS}, "all have to join again"


@pytest.mark.feature("CG-16")
@pytest.mark.parametrize("compacted", [False, True])
def test_a_failover_does_not_end_the_rebalance_of_a_group_that_became_classic(rig: MixedRig, compacted: bool) -> None:
    """The last member with the consumer protocol has left, and the leadership moves before the others rejoin. The new
    coordinator has the group's record without a leader: the partitions of the former member are not assigned.
    """
    a, b, c = Old(rig, "news"), Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a, b)
    c.join()
    everybody(rig, [a, b], [c])
    had = c.partitions
    assert had
    c.leave()
    for _ in range(2):
        rig.fail_over(compacted)
        assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    joining = [a.join(), b.join()]
    for member, answers in zip((a, b), joining, strict=True):
        member.take(answers)
    leader = next(member for member in (a, b) if member.joined.leader == member.member_id)
    leader.sync(
        {a.member_id: write_assignment({"news": [0, 1]}, 3), b.member_id: write_assignment({"news": [2, 3]}, 3)}
    )
    rig.fail_over(compacted)
    assert (a.beat(), b.beat()) == (ErrorCode.NONE, ErrorCode.NONE), "this generation somebody has led"


@pytest.mark.feature("CG-16")
def test_the_migration_policy(rig: MixedRig) -> None:
    a = Old(rig, "news")
    classic_group(rig, a)
    for policy in ("DISABLED", "downgrade"):
        rig.set_setting("group_consumer_migration_policy", policy)
        assert Reader(rig, "c", "news").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert a.beat() is ErrorCode.NONE, "nobody noticed"
    rig.set_setting("group_consumer_migration_policy", "Upgrade")
    c = Reader(rig, "c", "news")
    c.join()
    assert c.error is ErrorCode.NONE
    everybody(rig, [a], [c])
    c.leave()
    assert rig.kind == "consumer", "there is no way back"
    everybody(rig, [a], [])
    assert len(a.partitions) == 4, "who is left gets all, also without a heartbeat of the consumer protocol"
    rig.set_setting("group_consumer_migration_policy", "disabled")
    assert Old(rig, "news").join() == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]


@pytest.mark.feature("CG-16")
def test_groups_that_cannot_be_upgraded_stay_as_they_are(rig: MixedRig) -> None:
    a = Old(rig, "news")
    waiting = a.join({"mine": b"\0\3garbage"})
    rig.pass_ms(2 * INITIAL_DELAY_MS)
    a.take(waiting)
    a.joined.protocol_name = "mine"
    request_error = Reader(rig, "c", "news").join()
    assert request_error.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in (request_error.error_message or "")
    assert rig.kind == "classic"
    assert a.beat() is ErrorCode.NONE

    twice = MixedRig()
    twice.create_topic("news", 4)
    classic_group(twice, Old(twice, "news"), Old(twice, "news"), shares=[[0, 1], [1, 2]])
    error = Reader(twice, "c", "news").join()
    assert error.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "more than one member" in (error.error_message or "")


@pytest.mark.feature("CG-16", "CG-14")
def test_a_classic_member_revokes_by_rejoining(rig: MixedRig) -> None:
    a, c = Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a)
    c.join()
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    assert rig.group.members[a.member_id].state is MemberState.UNREVOKED_PARTITIONS
    assert a.sync() is ErrorCode.NONE
    assert len(a.partitions) == 2
    c.beat()
    assert c.partitions == set(), "it must revoke, and has not confirmed it"
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    a.sync()
    c.beat()
    assert len(c.partitions) == 2
    assert a.beat() is ErrorCode.NONE


@pytest.mark.feature("CG-16")
def test_a_classic_member_that_does_not_rejoin_is_removed(rig: MixedRig) -> None:
    a, c = Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a)
    c.join()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS + 1):
        a.beat()
        c.beat()
        rig.pass_ms(HEARTBEAT_MS)
    assert list(rig.group.members) == ["c"]
    c.beat()
    assert len(c.partitions) == 4


@pytest.mark.feature("CG-16")
def test_a_classic_member_that_does_not_sync_is_removed(rig: MixedRig) -> None:
    a, c = Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a)
    c.join()
    a.join()
    a.join()
    assert rig.group.members[a.member_id].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        a.beat()
        c.beat()
        rig.pass_ms(HEARTBEAT_MS)
    assert a.member_id not in rig.group.members


@pytest.mark.feature("CG-16")
def test_classic_members_of_a_consumer_group_commit_in_their_generation(rig: MixedRig) -> None:
    a, c = Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a)
    c.join()
    everybody(rig, [a], [c])
    group = rig.group
    topic_id = rig.image.topics.by_name["news"].id
    own, foreign = min(a.partitions)[1], min(c.partitions)[1]

    def commits(member_id: str, epoch: int, partition: int, version: int = 9) -> ErrorCode:
        commit = Commit(member_id, None, epoch, False, version)
        try:
            group.check_commit(commit, rig.now)
            group.check_commit_of(commit, "", topic_id, partition)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    assert commits(a.member_id, a.generation, own) is ErrorCode.NONE
    assert commits(a.member_id, a.generation, own, version=2) is ErrorCode.NONE
    assert commits(a.member_id, a.generation + 1, own) is ErrorCode.ILLEGAL_GENERATION
    assert commits(a.member_id, a.generation - 1, own) is ErrorCode.NONE, "it had this partition then"
    assert commits(a.member_id, a.generation - 1, foreign) is ErrorCode.ILLEGAL_GENERATION
    assert commits("c", c.epoch, foreign) is ErrorCode.NONE
    assert commits("c", c.epoch, foreign, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commits("c", c.epoch + 1, foreign) is ErrorCode.STALE_MEMBER_EPOCH
    assert commits("c", 1, foreign) is ErrorCode.STALE_MEMBER_EPOCH
    assert commits("nobody", 1, foreign) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commits("", -1, foreign) is ErrorCode.UNKNOWN_MEMBER_ID, "somebody reads"


@pytest.mark.feature("CG-16")
def test_members_of_another_kind_and_bad_requests_are_refused(rig: MixedRig) -> None:
    a, c = Old(rig, "news"), Reader(rig, "c", "news")
    classic_group(rig, a)
    c.join()
    everybody(rig, [a], [c])
    stranger = Old(rig, "news")
    stranger.member_id, stranger.generation = "c", c.epoch
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the consumer protocol"
    stranger.member_id = "nobody"
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    stranger.member_id = ""
    assert stranger.join({"range": b"\0"}) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    assert stranger.join({}) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    assert stranger.join({"cooperative-sticky": b"\0"}) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=SESSION_MS, member_id="somebody", protocol_type="consumer"
    )
    (refusal,) = rig.ask_later(request, 9, rig.machine.classic.join)
    assert (refusal.error_code, refusal.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    a.generation += 1
    assert a.beat() is ErrorCode.ILLEGAL_GENERATION
    assert a.sync() is ErrorCode.ILLEGAL_GENERATION
    a.generation -= 1
    a.joined.protocol_name = "range"
    assert a.sync() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.leave() is ErrorCode.NONE
    assert list(rig.group.members) == ["c"]


@pytest.mark.feature("CG-16")
def test_an_empty_group_changes_its_kind_whatever_the_policy(rig: MixedRig) -> None:
    rig.set_setting("group_consumer_migration_policy", "disabled")
    a = Old(rig, "news")
    classic_group(rig, a)
    a.leave()
    c = Reader(rig, "c", "news")
    c.join()
    assert (c.error, len(c.partitions)) == (ErrorCode.NONE, 4)
    c.leave()
    classic_group(rig, Old(rig, "news"))
    rig.fail_over()
    assert rig.kind == "classic"
