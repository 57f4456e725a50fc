"""Core: one classic group with its members, state, generation and common protocols.

Has no timers and does not start rebalances; `classic_rebalance.py` does. The content of `GroupMetadataValue` is
durable; waiting requests are not.
"""

from __future__ import annotations

import logging
from collections import Counter

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, Reply
from barnabas.broker.groups.classic_member import ClassicMember, MemberProtocol, size_of
from barnabas.broker.groups.classic_state import CAN_REBALANCE, MOVES, ClassicState
from barnabas.broker.groups.group import Client, Commit, GroupType
from barnabas.broker.groups.group_memory import NAME_BYTES, GroupMemory, HeldBytes
from barnabas.broker.groups.limits import MOST_ELEMENTS_READ, MOST_GROUP_BYTES, MOST_TOPICS_READ
from barnabas.protocol.embedded_consumer import TopicsReader, read_assignment, read_subscription
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage, TooManyElements
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

CONSUMER_PROTOCOL_TYPE = "consumer"
"""Protocol type of consumers, the only one whose member bytes are parsed."""

VALUE_VERSION = 3
"""Schema version in which groups are written, as in Kafka: version 4 only adds room for tagged fields."""


class ClassicGroup:
    """Implements `broker.groups.group.Group`. A new group is Empty and in generation 0."""

    def __init__(self, group_id: str, since_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        self.since_ms = since_ms
        """Wall time of the last state change; None if an old record does not have it."""
        self.generation = 0
        self.kind: str | None = None
        """Protocol type: `consumer`, `connect`, …; None until the first member joins."""
        self.protocol_name: str | None = None
        """Assignment protocol of this generation."""
        self.leader_id: str | None = None
        """Member id of the leader; None only without members."""
        self.is_unled = False
        """This generation has no leader: its assignments come from a group of another kind and may leave partitions
        unowned. A rebalance must follow, also after a failover. In the log it is a generation without a leader.
        """
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.pending_join: dict[str, None] = {}
        """Member ids that were assigned to clients that have not joined with them yet (KIP-394)."""
        self.pending_sync: dict[str, None] = {}
        """Members that have not sent SyncGroup in this generation."""
        self.new_member_added = False
        """A member joined during the initial rebalance delay."""
        self.initial_delay_is_over = False
        """The initial rebalance delay is over; the join phase waits only for `pending_join`."""
        self._joined = 0
        """Number of members with a waiting JoinGroup."""
        self.held = HeldBytes()
        self._metadata_bytes = 0
        """Bytes of the metadata of all members."""
        self._supporters: Counter[str] = Counter()
        """Number of members that support each protocol."""
        self._subscription: frozenset[str] | None = None
        """Topics subscribed by the members of this generation; None if unknown."""

    def __repr__(self) -> str:
        return f"{self.group_id} {self.state.value} generation {self.generation} with {len(self.members)} members"

    # -- conversion from and to records

    @classmethod
    def from_parts(
        cls, group_id: str, kind: str, generation: int, members: list[ClassicMember], now: Now
    ) -> ClassicGroup:
        """A Stable group of these members, which have assignments and a common protocol; used when a group of another
        kind becomes classic.
        """
        group = cls(group_id, now.wall_ms)
        group.generation = generation
        for member in members:
            group.add(member, kind)
        group.become_stable()
        return group

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group of a record: Stable if it has members, else Empty."""
        group = cls(group_id, None if value.current_state_timestamp == -1 else value.current_state_timestamp)
        group.generation = value.generation
        group.protocol_name = value.protocol
        group.kind = value.protocol_type or None
        for stored in value.members:
            if stored.member_id in group.members:
                log.error("group %s: its record contains %s twice", group_id, stored.member_id)
                continue
            timeout_ms = stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
            member = ClassicMember(
                stored.member_id,
                stored.group_instance_id,
                Client(stored.client_id, stored.client_host),
                timeout_ms,
                stored.session_timeout,
                (MemberProtocol(value.protocol or "", stored.subscription),),
                stored.assignment,
            )
            group.add(member, value.protocol_type)
        if group.members:
            group.state = ClassicState.STABLE
            group.protocol_name = value.protocol or ""
            group.is_unled = value.leader is None
            if value.leader in group.members:
                group.leader_id = value.leader
        group._subscription = group._read_subscription()
        return group

    def record(self) -> CoordinatorRecord:
        """Record of the group's current state."""
        protocol_name = self.protocol_name or ""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client.client_id,
                client_host=member.client.host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol_name),
                assignment=member.assignment,
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol_name,
            leader=None if self.is_unled else self.leader_id,
            current_state_timestamp=-1 if self.since_ms is None else self.since_ms,
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, VALUE_VERSION)

    # -- the Group protocol

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def protocol_type(self) -> str:
        return self.kind or ""

    def state_name(self) -> str:
        return self.state.value

    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def empty_since_ms(self) -> int | None:
        return self.since_ms if self.is_empty() and self.kind is not None else None

    def is_subscribed_to(self, topic: str) -> bool:
        """A consumer with an unreadable subscription may be subscribed to any topic; members of other protocol types to
        none.
        """
        return self.is_of_consumers if self._subscription is None else topic in self._subscription

    def check_commit(self, commit: Commit, now: Now) -> None:
        if self.state is ClassicState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if commit.generation_or_epoch < 0 and self.is_empty():
            return
        if commit.generation_or_epoch >= 0 or commit.member_id or commit.group_instance_id is not None:
            member = self.check_member(commit.member_id, commit.group_instance_id)
            if commit.generation_or_epoch != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif commit.transactional:
            # TxnOffsetCommit before version 3 does not name the member.
            return
        else:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if commit.transactional:
            return
        if self.state is ClassicState.COMPLETING_REBALANCE:
            # The member knows the generation and is about to receive its assignment; it will commit again.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        member.renew_session(now)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.state is ClassicState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_delete(self) -> None:
        if self.state is ClassicState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not self.is_empty():
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    # -- state

    def move(self, state: ClassicState, now: Now) -> None:
        """Change the state. Asserts that the table allows it."""
        assert (self.state, state) in MOVES, f"{self!r} cannot become {state.value}"
        self.previous_state, self.state = self.state, state
        self.since_ms = now.wall_ms

    def die(self) -> None:
        """The group was removed or replaced."""
        assert (self.state, ClassicState.DEAD) in MOVES
        self.previous_state, self.state = self.state, ClassicState.DEAD

    @property
    def can_rebalance(self) -> bool:
        return self.state in CAN_REBALANCE

    @property
    def is_of_consumers(self) -> bool:
        return self.kind == CONSUMER_PROTOCOL_TYPE

    def begin_generation(self, now: Now) -> None:
        """Start the next generation with the members that have joined."""
        self.generation += 1
        self.is_unled = False
        self.protocol_name = self.choose_protocol() if self.members else None
        self._subscription = self._read_subscription()
        self.move(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now)
        self.pending_sync.clear()

    def become_stable(self) -> None:
        """All its members were added, have assignments, and share a protocol."""
        self.state = ClassicState.STABLE
        self.protocol_name = self.choose_protocol()
        self._subscription = self._read_subscription()

    # -- members

    def add(self, member: ClassicMember, kind: str) -> None:
        """Add a new member that supports the group's protocol type and protocols; the first member determines them."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.kind = kind
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(member.protocol_names())
        self._metadata_bytes += size_of(member.protocols)
        self.held.change(_held_by(member))
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Does nothing if it is not a member. Waiting requests must be answered before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supporters.subtract(member.protocol_names())
            self._metadata_bytes -= size_of(member.protocols)
            self.held.change(-_held_by(member))
            self._joined -= member.awaiting_join is not None
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.pending_sync.pop(member_id, None)

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Give a returned static member its new id; everything else stays."""
        assert member.group_instance_id is not None
        old_id, member.member_id = member.member_id, member_id
        self.held.change(2 * (len(member_id) - len(old_id)))
        del self.members[old_id]
        self.members[member_id] = member
        self.static_members[member.group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[member_id] = None

    def set_protocols(self, member: ClassicMember, protocols: tuple[MemberProtocol, ...]) -> None:
        """Replace the protocols that the member supports."""
        self._supporters.subtract(member.protocol_names())
        growth = size_of(protocols) - size_of(member.protocols)
        self._metadata_bytes += growth
        self.held.change(growth)
        member.protocols = protocols
        self._supporters.update(member.protocol_names())

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Look the member up. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            owner_id = self.static_members.get(group_instance_id)
            if owner_id is not None and owner_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            if owner_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def has_unrevoked_partitions(self, member: ClassicMember) -> bool:
        """True if the member joined this generation with partitions that its new assignment leaves out. They stay
        unowned until it revokes them and rejoins (KIP-429), and a replacement of the member does not know of them.
        """
        if not self.is_of_consumers:
            return False
        try:
            metadata = member.metadata(self.protocol_name or "")
            owned = read_subscription(metadata, MOST_ELEMENTS_READ // 2).owned_partitions
            if not owned:
                return False
            part = member.assignment
            given = read_assignment(part, MOST_ELEMENTS_READ // 2).assigned_partitions if part else []
        except TooManyElements:
            return True  # unreadable: let a rebalance sort it out
        except MalformedMessage:
            return False
        keeps = {(topic.topic, number) for topic in given for number in topic.partitions}
        return any((topic.topic, number) not in keeps for topic in owned for number in topic.partitions)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Maximum of the members' rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def has_all_joined(self) -> bool:
        """True if every member waits in JoinGroup and no assigned member id is outstanding."""
        return not self.pending_join and self._joined == len(self.members)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined. False if none has."""
        leader = None if self.leader_id is None else self.members[self.leader_id]
        if leader is None or leader.awaiting_join is None:
            joined = (member.member_id for member in self.members.values() if member.awaiting_join is not None)
            chosen = next(joined, None)
            if chosen is None:
                return False
            log.info("group %s: %s did not rejoin in time, %s leads", self.group_id, self.leader_id, chosen)
            self.leader_id = chosen
        return True

    def check_memory(self, member_id: str, protocols: tuple[MemberProtocol, ...], memory: GroupMemory) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED if the member may not have these protocols: the metadata of all
        members is limited."""
        member = self.members.get(member_id)
        growth = size_of(protocols) - (0 if member is None else size_of(member.protocols))
        if self._metadata_bytes + growth > MOST_GROUP_BYTES:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        memory.check_room(growth)

    def expect(self, member_id: str) -> None:
        """A client got this id, to join with it (KIP-394)."""
        self.pending_join[member_id] = None
        self.held.change(NAME_BYTES + len(member_id))

    def forget_pending(self, member_id: str) -> None:
        """The client has joined with its id, or will not."""
        if member_id in self.pending_join:
            del self.pending_join[member_id]
            self.held.change(-NAME_BYTES - len(member_id))

    def set_assignment(self, member: ClassicMember, assignment: bytes) -> None:
        self.held.change(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def accepts(self, member_id: str, max_size: int) -> bool:
        """True if the member may join. Members that have joined already take precedence, so that the last ones are left
        out after `max_size` was lowered (KIP-389).
        """
        member = self.members.get(member_id)
        if self.state is ClassicState.PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or self._joined < max_size
        if self.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return member is not None or len(self.members) < max_size
        return True

    # -- common protocols

    def supports(self, kind: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        """True if a member with this protocol type and these protocols may be in the group."""
        if self.is_empty():
            return bool(kind and protocols)
        return kind == self.kind and any(self._supporters[protocol.name] == len(self.members) for protocol in protocols)

    def choose_protocol(self) -> str:
        """The protocol with most votes among those that all members support."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def subscription(self) -> frozenset[str] | None:
        """Topics subscribed by the members of this generation; None if unknown."""
        return self._subscription

    def _read_subscription(self) -> frozenset[str] | None:
        if not self.is_of_consumers:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        reader = TopicsReader(MOST_TOPICS_READ)
        try:
            for member in self.members.values():
                topics |= reader.read(member.metadata(self.protocol_name))
        except MalformedMessage as error:
            log.warning("group %s: the subscription of %s is unreadable: %s", self.group_id, member.member_id, error)
            return None
        return frozenset(topics)

    # -- answers

    def join_response(self, member: ClassicMember) -> JoinGroupResponse:
        """JoinGroup answer of this generation; only the leader's lists the members."""
        is_leader = member.member_id == self.leader_id
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.kind,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member.member_id,
            members=self._roster() if is_leader else [],
        )

    def _roster(self) -> list[JoinGroupResponseMember]:
        protocol_name = self.protocol_name or ""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(protocol_name),
            )
            for member in self.members.values()
        ]

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        """SyncGroup answer with the member's assignment."""
        return SyncGroupResponse(
            protocol_type=self.kind, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def await_join(self, member: ClassicMember, reply: Reply) -> None:
        """Let the member's JoinGroup wait. None may be waiting already."""
        assert member.awaiting_join is None
        member.awaiting_join = reply
        self._joined += 1

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse, outcome: Outcome) -> None:
        """Answer the member's JoinGroup if it waits."""
        if member.awaiting_join is not None:
            outcome.answers.append((member.awaiting_join, response))
            member.awaiting_join = None
            self._joined -= 1

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse, outcome: Outcome) -> bool:
        """Answer the member's SyncGroup if it waits. Returns whether it did."""
        if member.awaiting_sync is None:
            return False
        outcome.answers.append((member.awaiting_sync, response))
        member.awaiting_sync = None
        return True

    def waiting(self) -> list[Reply]:
        """Forget and return all waiting replies; the group ends."""
        replies = []
        for member in self.members.values():
            replies += [reply for reply in (member.awaiting_join, member.awaiting_sync) if reply is not None]
            member.awaiting_join = member.awaiting_sync = None
        return replies


def _held_by(member: ClassicMember) -> int:
    # An id of a coordinator begins with the client id, which is held, too.
    return 2 * (NAME_BYTES + len(member.member_id)) + size_of(member.protocols) + len(member.assignment)
