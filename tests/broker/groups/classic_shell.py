"""A shell for classic groups in virtual time: clock, timers, a log in memory, and clients that join.

Carries out the core's decisions as `broker.coordinator.shard.Shard` does, and checks after each step what must always
hold: each request is answered once, generations only increase, each generation has one assignment, no member is without
a timer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas.broker.coordinator.outcome import Now, Operation, Outcome, Reply
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.classic_rebalance import session_key
from barnabas.broker.groups.classic_state import ClassicState
from barnabas.broker.groups.group import Client, GroupContext, GroupDirectory
from barnabas.broker.groups.group_memory import NAME_BYTES
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import group_log
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.protocol.records.coordinator import (
    decode_key,
    decode_versioned,
    encode_key,
    encode_versioned,
    record_types,
)
from barnabas.protocol.schema import Message, decode, encode
from barnabas.runtime.decisions import Decisions
from tests.broker.groups.share_states import AskedShareStates
from tests.broker.some_settings import some_settings

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000
WALL_MS = 1_700_000_000_000

TYPES = dict(record_types(group_log))


def subscription(*topics: str, version: int = 3, owned: Mapping[str, list[int]] | None = None) -> bytes:
    """Subscription of a consumer and the partitions it owns."""
    body = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in (owned or {}).items()
        ],
    )
    return version.to_bytes(2, "big") + encode(body, version)


class VirtualTimers:
    """`broker.coordinator.outcome.Timers` with a manual clock."""

    def __init__(self) -> None:
        self.due: dict[Hashable, tuple[int, int, Operation]] = {}
        self._order = 0

    def schedule(self, key: Hashable, deadline_ms: int, operation: Operation) -> None:
        self._order += 1
        self.due[key] = (deadline_ms, self._order, operation)

    def cancel(self, key: Hashable) -> None:
        self.due.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        return self.due[key][0] if key in self.due else None

    def pop_due(self, now_ms: int) -> tuple[int, Operation] | None:
        """The first timer that is due, with its deadline."""
        first = min(self.due.items(), key=lambda item: item[1][:2], default=None)
        if first is None or first[1][0] > now_ms:
            return None
        del self.due[first[0]]
        return first[1][0], first[1][2]


class Asked:
    """A request and its answer."""

    def __init__(self, refusal: Callable[[ErrorCode], Message], version: int) -> None:
        self.version = version
        self.response: Any = None
        self._refusal = refusal
        self.reply = Reply(self._answer, lambda code: self._answer(self._refusal(code)))

    def _answer(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        if isinstance(response, JoinGroupResponse) and self.version < 7 and response.protocol_name is None:
            response.protocol_name = ""
        encode(response, self.version)
        self.response = response

    @property
    def waits(self) -> bool:
        return self.response is None

    @property
    def error(self) -> ErrorCode:
        assert self.response is not None, "not answered yet"
        return ErrorCode(self.response.error_code)


class Shell:
    """One partition of `__consumer_offsets` that is led here, with classic groups only."""

    def __init__(self, seed: int = 0, **settings: int) -> None:
        self.settings = some_settings(**settings)
        self.chance = random.Random(seed)
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.append_error: ErrorCode | None = None
        """If set, every append fails."""
        self.is_cut_off = False
        """No follower fetches: nothing is replicated, and no answer is sent."""
        self.held: list[tuple[Reply, Any]] = []
        self.replicated = 0
        """Length of the replicated log."""
        self.asked: list[Asked] = []
        self.decisions = Decisions("broker-1", lambda: WALL_MS + self.now_ms)
        self._begin()

    def _begin(self) -> None:
        self.timers = VirtualTimers()
        self.context = GroupContext(
            GroupDirectory(), self.timers, self.chance, lambda: self.settings, MetadataImage, AskedShareStates()
        )
        self.core = ClassicGroups(self.context)
        self.assignments: dict[int, list[bytes]] = {}
        """Written assignments by generation."""

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    @property
    def group(self) -> ClassicGroup:
        group = self.core.find(GROUP)
        assert group is not None, "there is no such group"
        return group

    @property
    def state(self) -> str:
        return self.group.state_name()

    # -- the duties of the shard

    def run(self, operation: Operation, reply: Reply | None = None) -> None:
        try:
            outcome = operation(self.now)
        except KafkaError as error:
            assert reply is not None, "a timer must not raise"
            outcome = Outcome(answers=[(reply, error.code)], replay=False)
        assert not (outcome.replay and outcome.records), "classic groups change before their records are written"
        if outcome.records and self.append_error is not None:
            assert outcome.failed is not None, "a live group was changed: somebody has to undo it"
            outcome = outcome.failed(KafkaError(self.append_error))
            assert not outcome.records
        for record in outcome.records:
            value = None if record.value is None else encode_versioned(record.value, record.version)
            self.log.append((encode_key(record.key), value))
            self._check_record(record.key, record.value)
        self.decisions.take(outcome.notes)
        self.held += outcome.answers
        if not self.is_cut_off:
            self.replicate()
        self._check_groups()

    def replicate(self) -> None:
        """All records are replicated: send the answers."""
        self.is_cut_off = False
        self.replicated = len(self.log)
        held, self.held = self.held, []
        for reply, response in held:
            if isinstance(response, ErrorCode):
                reply.refuse(response)
            else:
                reply.answer(response)

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the clock and run the timers that are due."""
        until_ms = self.now_ms + duration_ms
        while (due := self.timers.pop_due(until_ms)) is not None:
            deadline_ms, operation = due
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(operation)
        self.now_ms = until_ms

    def fail_over(self) -> None:
        """Another broker becomes the leader; unreplicated records are lost."""
        for reply in [*self.core.give_up(), *(reply for reply, _ in self.held)]:
            reply.refuse(ErrorCode.NOT_COORDINATOR)
        self.held.clear()
        assert not any(asked.waits for asked in self.asked), "every waiting request is refused"
        del self.log[self.replicated :]
        self.is_cut_off = False
        self._begin()
        for key, value in self.log:
            decoded_key = decode_key(TYPES, key)
            decoded_value = None if value is None else decode_versioned(GroupMetadataValue, value)[0]
            assert isinstance(decoded_key, GroupMetadataKey)
            self.core.replay(decoded_key, decoded_value)
            self._check_record(decoded_key, decoded_value)
        self.run(self.core.loaded)

    # -- invariants

    def _check_groups(self) -> None:
        for group in self.context.groups:
            assert isinstance(group, ClassicGroup)
            members = list(group.members.values())
            held = sum(2 * (NAME_BYTES + len(it.member_id)) + len(it.assignment) for it in members)
            held += sum(len(each.metadata) for it in members for each in it.protocols)
            assert group.held.size_bytes == held + sum(NAME_BYTES + len(it) for it in group.pending_join)
            joining = [member for member in members if member.awaiting_join is not None]
            assert group.has_all_joined() == (len(joining) == len(members) and not group.pending_join)
            assert (group.leader_id in group.members) if members else group.leader_id is None
            assert not joining or group.state is ClassicState.PREPARING_REBALANCE
            if group.state is not ClassicState.COMPLETING_REBALANCE:
                assert all(member.awaiting_sync is None for member in members)
            assert not members or group.state is not ClassicState.EMPTY
            assert {member.group_instance_id: member.member_id for member in members if member.is_static} == (
                group.static_members
            )
            if self.timers.deadline_ms(("classic sync", group.group_id)) is not None:
                assert group.pending_sync, "nobody is waited for"
            if self.timers.deadline_ms(("classic join", group.group_id)) is not None:
                assert group.state is ClassicState.PREPARING_REBALANCE
            for member_id in [*group.members, *group.pending_join]:
                key = session_key(group.group_id, member_id)
                assert self.timers.deadline_ms(key) is not None, f"nobody would notice that {member_id} is silent"
            for member in members:
                due_ms = self.timers.deadline_ms(session_key(group.group_id, member.member_id))
                assert due_ms is not None and (member.is_excused() or due_ms <= member.session_deadline_ms)

    def _check_record(self, key: Message, value: Message | None) -> None:
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            self.assignments.clear()
            return
        assert isinstance(value, GroupMetadataValue)
        assert value.generation >= max(self.assignments, default=0), "generations only rise"
        parts = sorted(member.assignment for member in value.members)
        assert self.assignments.setdefault(value.generation, parts) == parts, "one assignment for each generation"

    # -- requests

    def ask(
        self, command: Callable[..., Outcome], request: Any, refusal: Callable[[ErrorCode], Message], version: int
    ) -> Asked:
        asked = Asked(refusal, version)
        self.asked.append(asked)
        request = decode(type(request), encode(request, version), version)
        operation = partial(command, request, Client("client", "/127.0.0.1"), version, asked.reply)
        self.run(operation, asked.reply)
        return asked

    def join(self, request: JoinGroupRequest, version: int = 9) -> Asked:
        def refusal(code: ErrorCode) -> Message:
            return JoinGroupResponse(member_id=request.member_id, error_code=code)

        return self.ask(self.core.join, request, refusal, version)

    def sync(self, request: SyncGroupRequest, version: int = 5) -> Asked:
        return self.ask(self.core.sync, request, lambda code: SyncGroupResponse(error_code=code), version)

    def heartbeat(self, request: HeartbeatRequest, version: int = 4) -> Asked:
        return self.ask(self.core.heartbeat, request, lambda code: HeartbeatResponse(error_code=code), version)

    def leave(self, request: LeaveGroupRequest, version: int = 5) -> Asked:
        return self.ask(self.core.leave, request, lambda code: LeaveGroupResponse(error_code=code), version)

    def stable(self, *people: Person) -> None:
        """A Stable group of these clients; the first one leads."""
        joins = [person.join() for person in people]
        while any(asked.waits for asked in joins):
            self.pass_ms(INITIAL_DELAY_MS)
        self.sync_all(people)

    def sync_all(self, people: Iterable[Person]) -> None:
        """All of them sync, the leader last."""
        ordered = sorted(people, key=lambda person: person.member_id == self.group.leader_id)
        for person in ordered:
            person.sync()
        assert self.state == "Stable"


@dataclass(eq=False)
class Person:
    """A client that keeps its member id and generation, as real ones do."""

    shell: Shell
    instance_id: str | None = None
    kind: str = "consumer"
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": subscription("news")})
    join_version: int = 9
    session_ms: int = SESSION_MS
    rebalance_ms: int = REBALANCE_MS
    member_id: str = ""
    signature: str = ""
    """Appears in the assignments that it makes as a leader."""
    parts: Sequence[bytes] | None = None
    """Assignments to make as a leader, in the order of the members, instead of the usual ones."""
    joining: Asked | None = None

    @property
    def joined(self) -> JoinGroupResponse:
        """Answer to its last JoinGroup."""
        assert self.joining is not None
        response = self.joining.response
        assert isinstance(response, JoinGroupResponse), "its JoinGroup waits"
        return response

    @property
    def generation(self) -> int:
        return self.joined.generation_id

    @property
    def is_leader(self) -> bool:
        return self.joined.leader == self.member_id

    def join_once(self) -> Asked:
        """One JoinGroup."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()],
            reason="because",
        )
        self.joining = self.shell.join(request, self.join_version)
        return self.joining

    def join(self) -> Asked:
        """JoinGroup, repeated with the assigned member id."""
        asked = self.join_once()
        if not asked.waits and asked.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = asked.response.member_id
            asked = self.join_once()
        elif not asked.waits and asked.error is ErrorCode.NONE:
            self.member_id = asked.response.member_id
        else:
            self.learn_id()
        return asked

    def learn_id(self) -> None:
        """Read the member id from the group, if the version assigns none in advance."""
        assert self.joining is not None
        for member in self.shell.group.members.values():
            if member.awaiting_join is self.joining.reply:
                self.member_id = member.member_id

    def sync(self, **changes: Any) -> Asked:
        """SyncGroup; a leader gives each member an assignment that is unique to the generation."""
        joined = self.joined
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=(
                    f"part {place} of {joined.generation_id}{self.signature}".encode()
                    if self.parts is None
                    else self.parts[place]
                ),
            )
            for place, member in enumerate([] if joined.skip_assignment else joined.members)
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=changes.pop("generation", self.generation),
            member_id=changes.pop("member_id", self.member_id),
            group_instance_id=changes.pop("instance_id", self.instance_id),
            protocol_type=changes.pop("kind", self.kind),
            protocol_name=changes.pop("protocol", self.joined.protocol_name),
            assignments=assignments,
        )
        assert not changes
        return self.shell.sync(request)

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return self.shell.heartbeat(request).error

    def leave(self, version: int = 5) -> Asked:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="done")
        if version >= 3:
            return self.shell.leave(LeaveGroupRequest(group_id=GROUP, members=[identity]), version)
        return self.shell.leave(LeaveGroupRequest(group_id=GROUP, member_id=self.member_id), version)
