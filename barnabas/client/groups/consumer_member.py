"""Core: a member of a consumer group (KIP-848): heartbeats carry everything, the broker assigns.

    Joining ─► Stable ◄─► Reconciling ─► Acknowledging ─► Stable        Fenced ─► Joining

The response to a heartbeat has the member's epoch and, when it changed, the target assignment. The member then gives up
what is not in the target, takes on what is new, and reports what it has in its next heartbeat: only then may the broker
assign to others what it gave up.
"""

from __future__ import annotations

from enum import Enum

from barnabas.client.groups.membership import (
    COORDINATOR_AWAY,
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
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.share_group_heartbeat import Assignment as ShareAssignment
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from barnabas.protocol.schema import Message

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
JOIN_EPOCH = 0

FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
"""Errors after the group has rebalanced without this member."""


class MemberState(Enum):
    JOINING = "Joining"
    STABLE = "Stable"
    RECONCILING = "Reconciling"
    ACKNOWLEDGING = "Acknowledging"
    FENCED = "Fenced"
    LEFT = "Left"


class ConsumerMember:
    """A `Member`."""

    def __init__(self, settings: GroupSettings, subscription: Subscription, member_id: str, now_ms: int) -> None:
        """`member_id` is a random uuid for each membership."""
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.state = MemberState.JOINING
        self.fatal: KafkaError | None = None
        self.last_stamp: ConsumerGroupMetadata | None = None
        self.owned: tuple[TopicPartition, ...] = ()
        self._settings = settings
        self._subscription = subscription
        self._subscribed: Subscription | None = None
        """Subscription that the broker knows; None: send it."""
        self._subscribing: Subscription | None = None
        """Subscription in the heartbeat that is in flight."""
        self._patterned = False
        """Whether the broker may know a pattern of this member."""
        self._ids: dict[str, bytes] = {}
        """Ids of the topics that were ever assigned."""
        self._target: list[tuple[bytes, int]] | None = None
        """Target assignment by the broker."""
        self._unnamed: dict[bytes, None] = {}
        """Topic ids in the target whose names are unknown."""
        self._version = 0
        """Version of the owned partitions: it grows with each step towards a target. The broker may wait for the report
        of a step that led back to partitions reported before."""
        self._acknowledged: int | None = None
        """Version that the broker has acknowledged; None: report everything."""
        self._reported: int | None = None
        """Version in the heartbeat that is in flight."""
        self._changes: list[Change] = []
        self._may_be_in = False
        """Whether the broker may count it as a member."""
        self._under_way = False
        self._void = False
        """Whether the request in flight belongs to an earlier membership."""
        self._interval_ms = settings.heartbeat_interval_ms
        self._heartbeat_at_ms = now_ms
        self._polled_ms = now_ms
        self._retry = Retry(settings)

    def __repr__(self) -> str:
        return f"{self.member_id} in {self._settings.group_id}: {self.state.value}, epoch {self.epoch}"

    @property
    def stamp(self) -> ConsumerGroupMetadata | None:
        if self.epoch <= 0 or self.fatal is not None:
            return None
        settings = self._settings
        return ConsumerGroupMetadata(settings.group_id, self.member_id, self.epoch, settings.group_instance_id)

    # ---- the application

    @property
    def change(self) -> Change | None:
        return self._changes[0] if self._changes else None

    def changed(self, change: Change) -> None:
        if self.change is change:
            self._changes.pop(0)
        self.owned = change.applied_to(self.owned)
        self._version += 1
        if self.epoch == JOIN_EPOCH:
            # It is out of the group, perhaps since a moment ago, while the application carried out the change.
            self._changes = lose(self.owned)
            if self._changes and self.state is MemberState.JOINING:
                # It may be joining already, without partitions: it joins once more after it has lost these.
                self._void = self._under_way
            if self.state in (MemberState.FENCED, MemberState.JOINING):
                self.state = MemberState.FENCED if self._changes else MemberState.JOINING
        elif not self._changes and self.state is MemberState.RECONCILING:
            self.state = MemberState.ACKNOWLEDGING
            self._heartbeat_at_ms = 0

    def subscribe(self, subscription: Subscription) -> None:
        if subscription != self._subscription:
            self._subscription = subscription
            self._heartbeat_at_ms = 0

    def polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms
        if self.state is MemberState.LEFT:
            self.state = MemberState.FENCED if self._changes else MemberState.JOINING

    # ---- metadata

    def topics_to_learn(self) -> list[str]:
        return []

    def ids_to_learn(self) -> list[bytes]:
        return list(self._unnamed)

    def topics_to_watch(self) -> list[str]:
        """None: the broker watches them."""
        return []

    def learnt(self, topics: TopicsView) -> None:
        for topic_id in self._unnamed:
            name = topics.topic_name(topic_id)
            if name is not None:
                self._ids[name] = topic_id
        self._unnamed = {}
        self._reconcile()

    # ---- the coordinator

    def next_request(self, now_ms: int) -> Message | None:
        if self._under_way or self.fatal is not None or now_ms < self._retry.at_ms:
            return None
        request: Message | None = None
        if self.epoch > 0 and now_ms - self._polled_ms > self._settings.max_poll_interval_ms:
            request = self.leave()
            self._void = request is not None
        elif self.state not in (MemberState.FENCED, MemberState.LEFT) and now_ms >= self._heartbeat_at_ms:
            request = self._heartbeat()
        self._under_way = request is not None
        return request

    def wake_at_ms(self, now_ms: int) -> int | None:
        if self._under_way or self.fatal is not None or self.state in (MemberState.FENCED, MemberState.LEFT):
            return None
        leave_at_ms = self._polled_ms + self._settings.max_poll_interval_ms + 1
        at_ms = min(self._heartbeat_at_ms, leave_at_ms) if self.epoch > 0 else self._heartbeat_at_ms
        return max(at_ms, self._retry.at_ms)

    def answer_timeout_ms(self, request: Message, request_timeout_ms: int) -> int:
        return request_timeout_ms

    def _heartbeat(self) -> Message:
        """Everything at first and after a failure, later only changes."""
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.group_instance_id,
        )
        self._reported = self._subscribing = None
        self._may_be_in = True
        if self._acknowledged is None:
            # The response brings the target again. Nothing of the old target may be taken on: partitions that this
            # heartbeat does not report are free.
            self._target, self._unnamed = None, {}
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
            request.rack_id = settings.client_rack or None
        if self._acknowledged is None or self._subscribed != self._subscription:
            self._add_subscription(request)
        if self._acknowledged != self._version and (self._acknowledged is None or not self._changes):
            request.topic_partitions = [
                TopicPartitions(topic_id=self._ids[topic], partitions=partitions)
                for topic, partitions in by_topic(self._claimed()).items()
            ]
            self._reported = self._version
        return request

    def _claimed(self) -> tuple[TopicPartition, ...]:
        """Partitions that no other member may get: owned ones, and those that the application is about to take on."""
        claimed = self.owned
        for change in self._changes:
            if change.kind is ChangeKind.ASSIGN:
                claimed = change.applied_to(claimed)
        return claimed

    def _add_subscription(self, request: ConsumerGroupHeartbeatRequest) -> None:
        wanted = self._subscription
        request.subscribed_topic_names = sorted(wanted.topics)
        if wanted.pattern is not None or self._patterned:
            # An empty pattern withdraws an earlier one.
            request.subscribed_topic_regex = wanted.pattern or ""
            self._patterned = True
        self._subscribing = wanted

    def answered(self, response: Message, now_ms: int) -> ErrorCode:
        assert isinstance(response, ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse)
        self._under_way = False
        if self._void:
            self._void = False
            return ErrorCode.NONE
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            self._retry.reset()
            self._heartbeat_answered(response, now_ms)
            return code
        self._acknowledged = None
        self._heartbeat_at_ms = now_ms
        self._retry.failed(now_ms)
        if code in FENCED:
            self._lost()
        elif code not in COORDINATOR_AWAY:
            self.fail(KafkaError(code, response.error_message or f"group {self._settings.group_id}"))
        return code

    def fail(self, error: KafkaError) -> None:
        self._lost()
        self.fatal = error

    def unanswered(self, now_ms: int) -> None:
        self._under_way = self._void = False
        self._acknowledged = None
        self._heartbeat_at_ms = now_ms
        self._retry.failed(now_ms)

    def fenced(self, code: ErrorCode, stamp: ConsumerGroupMetadata, now_ms: int) -> None:
        if stamp.member_id != self.member_id or self.epoch <= 0:
            return
        if code in FENCED:
            self._lost()
        elif code is ErrorCode.STALE_MEMBER_EPOCH:
            # A heartbeat brings the current epoch.
            self._heartbeat_at_ms = now_ms

    def leave(self, leaving: Leaving = Leaving.DEFAULT, reason: str | None = None) -> Message | None:
        """A static member announces its return, unless it leaves for good. Reasons are not sent."""
        settings = self._settings
        was_in, dynamic = self._may_be_in, settings.group_instance_id is None
        self._lost()
        self.state = MemberState.LEFT
        if not was_in or (dynamic and leaving is Leaving.REMAIN_IN_GROUP):
            return None
        return self._plain_heartbeat(
            LEAVE_EPOCH if dynamic or leaving is Leaving.LEAVE_GROUP else LEAVE_STATIC_EPOCH
        )

    def _plain_heartbeat(self, epoch: int) -> Message:
        settings = self._settings
        return ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=settings.group_instance_id,
        )

    # ---- target assignment

    def _heartbeat_answered(
        self, response: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse, now_ms: int
    ) -> None:
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.last_stamp = self.stamp or self.last_stamp
        self._interval_ms = response.heartbeat_interval_ms or self._interval_ms
        self._heartbeat_at_ms = now_ms + self._interval_ms
        if self._subscribing is not None:
            self._subscribed = self._subscribing
        if self._subscribed != self._subscription:
            self._heartbeat_at_ms = now_ms
        if self._reported is not None:
            self._acknowledged = self._reported
        if self.state in (MemberState.JOINING, MemberState.ACKNOWLEDGING):
            self.state = MemberState.STABLE if self._acknowledged == self._version else MemberState.ACKNOWLEDGING
        if self.state is MemberState.ACKNOWLEDGING:
            self._heartbeat_at_ms = now_ms
        if response.assignment is not None:
            self._take_target(response.assignment)
        self._reconcile()

    def _take_target(self, assignment: Assignment | ShareAssignment) -> None:
        target = [
            (topic.topic_id, partition) for topic in assignment.topic_partitions for partition in topic.partitions
        ]
        if self._target is not None and self._target != target:
            # Partitions that are no longer in the target have to be reported as free, though never taken on.
            self._version += 1
        self._target = target

    def _reconcile(self) -> None:
        """Take up the newest target, unless the application still carries out an earlier one."""
        if self._target is None or self._changes or self.state is not MemberState.STABLE:
            return
        names = {topic_id: name for name, topic_id in self._ids.items()}
        self._unnamed = {topic_id: None for topic_id, _ in self._target if topic_id not in names}
        target = tuple(TopicPartition(names[topic_id], index) for topic_id, index in self._target if topic_id in names)
        revoked, added = difference(self.owned, target), difference(target, self.owned)
        if not self._unnamed:
            self._target = None
        if revoked:
            self._changes.append(Change(ChangeKind.REVOKE, revoked))
        if added:
            self._changes.append(Change(ChangeKind.ASSIGN, added))
        if self._changes:
            self.state = MemberState.RECONCILING
        elif self._acknowledged != self._version:
            self.state = MemberState.ACKNOWLEDGING
            self._heartbeat_at_ms = 0

    def _lost(self) -> None:
        self.epoch = JOIN_EPOCH
        self._may_be_in = False
        self._heartbeat_at_ms = 0
        self._void = self._under_way
        self._target = self._acknowledged = self._subscribed = None
        self._unnamed = {}
        self._changes = lose(self.owned)
        self.state = MemberState.FENCED if self._changes else MemberState.JOINING
