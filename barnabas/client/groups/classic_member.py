"""Core: a member of a classic group: joins, syncs, sends heartbeats, leaves; and assigns, if it is the leader.

    Unjoined ─► PreparingRebalance ─► CompletingRebalance ─► Stable
       ▲               │                      │                 │
       └───────────────┴──────────────────────┴─────────────────┘   each of them: an error, or a rebalance

An eager member gives up all partitions before it joins again. A cooperative one (KIP-429) keeps them, learns from its
new assignment which ones to give up, and joins once more afterwards. While the application still has to give up
partitions only heartbeats are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from barnabas.client.groups.assignor import Assignor, GroupTopics, Subscriber
from barnabas.client.groups.assignors import assignors_of
from barnabas.client.groups.membership import (
    COORDINATOR_AWAY,
    NO_GENERATION,
    Change,
    ChangeKind,
    ConsumerGroupMetadata,
    GroupSettings,
    Leaving,
    Retry,
    Subscription,
    TopicsView,
    difference,
    lose,
)
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.protocol.embedded_consumer import read_assignment, read_subscription, write_assignment, write_subscription
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage, error_code
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.protocol.schema import Message

PROTOCOL_TYPE = "consumer"
JOIN_MARGIN_MS = 5_000

LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""Errors after the group has rebalanced without this member."""
AGAIN = COORDINATOR_AWAY | {ErrorCode.UNKNOWN_SERVER_ERROR}


class MemberState(Enum):
    UNJOINED = "Unjoined"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicMember:
    """A `Member`."""

    def __init__(self, settings: GroupSettings, subscription: Subscription, now_ms: int) -> None:
        """ConfigException for unknown assignors."""
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.fatal: KafkaError | None = None
        self.last_stamp: ConsumerGroupMetadata | None = None
        self.owned: tuple[TopicPartition, ...] = ()
        self._settings = settings
        self._topics = tuple(sorted(subscription.topics))
        self._assignors = assignors_of(settings.partition_assignors)
        self._eager = not all(assignor.cooperative for assignor in self._assignors.values())
        self._protocol_name: str | None = None
        self._under_way = False
        """A request is in flight."""
        self._changes: list[Change] = []
        self._rejoin = True
        self._reason: str | None = None
        """Reason of the next join, for the coordinator's log (KIP-800)."""
        self._again = False
        """Whether to join once more after the join that is in flight."""
        self._led: list[Subscriber] | None = None
        """Members to assign partitions to, while this one is the leader and has not synced."""
        self._counts: dict[str, int] | None = None
        """Partition counts at its assignment as the leader: when they change, it rebalances."""
        self._view: TopicsView | None = None
        self._retry = Retry(settings)
        self._heartbeat_at_ms = 0
        self._polled_ms = now_ms
        self._left_unpolled = False
        """It left because the application did not poll for max.poll.interval.ms."""
        self._absorb: dict[type[Message], Callable[..., ErrorCode]] = {
            JoinGroupResponse: self._joined,
            SyncGroupResponse: self._synced,
            HeartbeatResponse: self._heartbeat_answered,
            LeaveGroupResponse: self._left,
        }

    def __repr__(self) -> str:
        name = self.member_id or "no member id"
        return f"{name} in {self._settings.group_id}: {self.state.value}, generation {self.generation}"

    @property
    def stamp(self) -> ConsumerGroupMetadata | None:
        if self.generation == NO_GENERATION or self.fatal is not None:
            return None
        settings = self._settings
        return ConsumerGroupMetadata(settings.group_id, self.member_id, self.generation, settings.group_instance_id)

    # ---- the application

    @property
    def change(self) -> Change | None:
        return self._changes[0] if self._changes else None

    def changed(self, change: Change) -> None:
        if self.change is change:
            self._changes.pop(0)
        self.owned = change.applied_to(self.owned)
        if self.generation == NO_GENERATION:
            # It is out of the group, perhaps since a moment ago, while the application carried out the change.
            self._changes = lose(self.owned)
        elif self._rejoin:
            self._revoke_before_joining()

    def subscribe(self, subscription: Subscription) -> None:
        topics = tuple(sorted(subscription.topics))
        if topics != self._topics:
            self._topics = topics
            self.rejoin("the subscription has changed")

    def rejoin(self, reason: str) -> None:
        """Start a rebalance; after the one in progress, if there is one."""
        self._reason = reason
        if self.state is MemberState.PREPARING_REBALANCE:
            self._again = True
        elif self.state is MemberState.COMPLETING_REBALANCE:
            self._rejoin = True
        else:
            self._revoke_before_joining()

    def polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms
        self._left_unpolled = False

    def _revoke_before_joining(self) -> None:
        """An eager member gives up everything before it joins; a cooperative one what it is no longer subscribed to."""
        self._rejoin = True
        wanted = () if self._eager else self._topics
        unwanted = tuple(partition for partition in self.owned if partition.topic not in wanted)
        if unwanted and not self._changes:
            self._changes.append(Change(ChangeKind.REVOKE, unwanted))

    def _lost(self, *, forget_id: bool) -> None:
        """The group continues without it: its partitions may already belong to another member."""
        if forget_id:
            self.member_id = ""
        self.generation = NO_GENERATION
        self.state = MemberState.UNJOINED
        self._led = self._counts = None
        self._rejoin = True
        # Pending changes are void as well.
        self._changes = lose(self.owned)

    # ---- metadata

    def topics_to_learn(self) -> list[str]:
        if self._led is None or self._view is not None:
            return []
        return self._led_topics(self._led)

    def ids_to_learn(self) -> list[bytes]:
        return []

    def topics_to_watch(self) -> list[str]:
        """Topics that it assigned as the leader, whose partition counts are to be learnt regularly."""
        return list(self._counts or ())

    def _led_topics(self, members: Iterable[Subscriber]) -> list[str]:
        return sorted({topic for member in members for topic in member.topics})

    def learnt(self, topics: TopicsView) -> None:
        self._view = topics
        counts = self._counts
        if counts is not None and any(topics.partitions_count(topic) != count for topic, count in counts.items()):
            self._counts = None
            self.rejoin("the number of partitions has changed")

    # ---- the coordinator

    def next_request(self, now_ms: int) -> Message | None:
        if self._under_way or self.fatal is not None or now_ms < self._retry.at_ms:
            return None
        request = self._choose(now_ms)
        self._under_way = request is not None
        return request

    def _choose(self, now_ms: int) -> Message | None:
        in_group = self.generation != NO_GENERATION
        if in_group and now_ms - self._polled_ms > self._settings.max_poll_interval_ms:
            self._left_unpolled = True
            return self.leave(reason="the application has not polled for max.poll.interval.ms")
        if self.state is MemberState.COMPLETING_REBALANCE:
            return self._sync() if self._led is None or self._view is not None else None
        if self._rejoin and not self._changes and not self._left_unpolled:
            self.state = MemberState.PREPARING_REBALANCE
            return self._join()
        if in_group and now_ms >= self._heartbeat_at_ms:
            return HeartbeatRequest(
                group_id=self._settings.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._settings.group_instance_id,
            )
        return None

    def wake_at_ms(self, now_ms: int) -> int | None:
        if self._under_way or self.fatal is not None or self.topics_to_learn():
            return None
        if self.generation == NO_GENERATION:
            return self._retry.at_ms if self._rejoin and not self._changes and not self._left_unpolled else None
        if self._rejoin and not self._changes:
            return self._retry.at_ms
        return max(
            min(self._heartbeat_at_ms, self._polled_ms + self._settings.max_poll_interval_ms + 1), self._retry.at_ms
        )

    def answer_timeout_ms(self, request: Message, request_timeout_ms: int) -> int:
        if isinstance(request, JoinGroupRequest):
            return max(request_timeout_ms, self._settings.max_poll_interval_ms + JOIN_MARGIN_MS)
        return request_timeout_ms

    def answered(self, response: Message, now_ms: int) -> ErrorCode:
        self._under_way = False
        code = self._absorb[type(response)](response, now_ms)
        if code is ErrorCode.NONE:
            self._retry.reset()
        elif code is not ErrorCode.MEMBER_ID_REQUIRED:
            self._retry.failed(now_ms)
        return code

    def unanswered(self, now_ms: int) -> None:
        self._under_way = False
        if self.state is not MemberState.STABLE:
            # It is unknown whether it has joined and what it was assigned: join again, with the same id.
            self._led = None
            self.state = MemberState.UNJOINED
            self._rejoin = True
        self._retry.failed(now_ms)

    def fenced(self, code: ErrorCode, stamp: ConsumerGroupMetadata, now_ms: int) -> None:
        if stamp == self.stamp and self.state is MemberState.STABLE:
            # Otherwise it is joining already, and learns its state from that.
            self._refused(code)

    def _refused(self, code: ErrorCode) -> None:
        if code in LOST:
            self._lost(forget_id=code is ErrorCode.UNKNOWN_MEMBER_ID)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._revoke_before_joining()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(code)

    def fail(self, error: KafkaError) -> None:
        self._lost(forget_id=True)
        self._rejoin = False
        self.fatal = error

    def _fail(self, code: ErrorCode, reason: str = "") -> None:
        self.fail(KafkaError(code, reason or f"group {self._settings.group_id}"))

    # ---- join

    def _join(self) -> JoinGroupRequest:
        settings = self._settings
        reason, self._reason = self._reason, None
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._metadata(assignor))
                for name, assignor in self._assignors.items()
            ],
            reason=reason,
        )

    def _metadata(self, assignor: Assignor) -> bytes:
        """Subscription data for the leader."""
        subscription = ConsumerProtocolSubscription(
            topics=list(self._topics),
            user_data=assignor.user_data(self._topics),
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(self.owned).items()
            ],
            generation_id=self.generation,
            rack_id=self._settings.client_rack or None,
        )
        return write_subscription(subscription)

    def _joined(self, response: JoinGroupResponse, now_ms: int) -> ErrorCode:
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.last_stamp = self.stamp or self.last_stamp
            self._protocol_name = response.protocol_name
            self._rejoin, self._again = self._again, False
            self.state = MemberState.COMPLETING_REBALANCE
            self._led = self._view = self._counts = None
            if response.leader == response.member_id and not response.skip_assignment:
                try:
                    self._led = [
                        _subscriber(member.member_id, member.group_instance_id, member.metadata)
                        for member in response.members
                    ]
                except MalformedMessage as error:
                    self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error))
            return code
        self.state = MemberState.UNJOINED
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code in LOST:
            self._lost(forget_id=True)
        elif code not in AGAIN and code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._fail(code)
        return code

    # ---- sync

    def _sync(self) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=self._assign(),
        )

    def _assign(self) -> list[SyncGroupRequestAssignment]:
        """The assignment, if this member is the leader; empty for a follower."""
        members, view = self._led, self._view
        if members is None or view is None:
            return []
        topics = self._led_topics(members)
        self._counts = {topic: view.partitions_count(topic) for topic in topics}
        racks: Mapping[TopicPartition, frozenset[str]] = {}
        if any(member.rack for member in members):
            racks = {TopicPartition(topic, index): of for topic in topics for index, of in view.racks(topic).items()}
        given = self._assignors[self._protocol_name or ""].assign(members, GroupTopics(self._counts, racks))
        return [
            SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=write_assignment(by_topic(given.get(member.member_id, ())))
            )
            for member in members
        ]

    def _synced(self, response: SyncGroupResponse, now_ms: int) -> ErrorCode:
        code = error_code(response.error_code)
        self._led = None
        if code is ErrorCode.NONE:
            self.state = MemberState.STABLE
            self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
            try:
                assigned = _owned_in(response.assignment)
            except MalformedMessage as error:
                self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error))
            else:
                self._given_assignment(assigned)
            return code
        self.state = MemberState.UNJOINED
        if code in LOST:
            self._lost(forget_id=code is ErrorCode.UNKNOWN_MEMBER_ID)
        elif code in AGAIN or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin = True
        else:
            self._fail(code)
        return code

    def _given_assignment(self, assigned: tuple[TopicPartition, ...]) -> None:
        assert not self._changes, "it joins only when no change is pending"
        if any(partition.topic not in self._topics for partition in assigned):
            # Assigned by the subscription at its join: join again, and keep the partitions until then.
            self.rejoin("the subscription has changed")
            return
        self._assignors[self._protocol_name or ""].assigned(assigned, self.generation)
        revoked, added = difference(self.owned, assigned), difference(assigned, self.owned)
        if revoked:
            self._changes.append(Change(ChangeKind.REVOKE, revoked))
            # The next generation can then assign it to another member.
            self._rejoin = True
        self._changes.append(Change(ChangeKind.ASSIGN, added))

    # ---- heartbeats, leaving

    def _heartbeat_answered(self, response: HeartbeatResponse, now_ms: int) -> ErrorCode:
        code = error_code(response.error_code)
        self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        if code is ErrorCode.NONE:
            return code
        if code in AGAIN:
            self._heartbeat_at_ms = now_ms
        elif code in LOST or code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID):
            self._refused(code)
        else:
            self._fail(code)
        return code if code is not ErrorCode.REBALANCE_IN_PROGRESS else ErrorCode.NONE

    def leave(self, leaving: Leaving = Leaving.DEFAULT, reason: str | None = None) -> Message | None:
        """A static member stays: a new one with its instance id takes its place."""
        member_id, instance_id = self.member_id, self._settings.group_instance_id
        self._lost(forget_id=True)
        self._rejoin = self._left_unpolled
        stays = instance_id is not None if leaving is Leaving.DEFAULT else leaving is Leaving.REMAIN_IN_GROUP
        if stays or not member_id:
            return None
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
        return LeaveGroupRequest(group_id=self._settings.group_id, members=[identity])

    def _left(self, response: LeaveGroupResponse, now_ms: int) -> ErrorCode:
        return ErrorCode.NONE


def _subscriber(member_id: str, group_instance_id: str | None, metadata: bytes) -> Subscriber:
    """Raises MalformedMessage."""
    subscription = read_subscription(metadata)
    owned = tuple(
        TopicPartition(each.topic, partition) for each in subscription.owned_partitions for partition in each.partitions
    )
    return Subscriber(
        member_id,
        group_instance_id,
        tuple(subscription.topics),
        owned,
        subscription.generation_id,
        subscription.rack_id or "",
        subscription.user_data,
    )


def _owned_in(data: bytes) -> tuple[TopicPartition, ...]:
    if not data:
        return ()
    return tuple(
        TopicPartition(each.topic, partition)
        for each in read_assignment(data).assigned_partitions
        for partition in each.partitions
    )
