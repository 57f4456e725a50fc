"""A classic group as a plain value, and what requests and timers make of it (KIP-62, 134, 345, 394, 814).

It lists the answers that it expects and the decision notes, in order, and what its log holds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse

E = ErrorCode
GROUP = "readers"
NEW_MEMBER_MS, PENDING_MS, ABSENT_MS = 300_000, 500, 500
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"

Protocols = tuple[tuple[str, bytes], ...]


@dataclass
class PlainMember:
    instance: str | None
    client: tuple[str, str]
    rebalance_ms: int
    session_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join: int | None = None
    """The request that waits."""
    sync: int | None = None
    deadline_ms: int = 0

    def metadata(self, protocol: str | None) -> bytes:
        return dict(reversed(self.protocols)).get(protocol or "", b"")


@dataclass(frozen=True)
class Written:
    """The group's record."""

    kind: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int | None
    members: tuple[tuple[str, str | None, tuple[str, str], int, int, bytes, bytes], ...]


@dataclass
class PlainClassic:
    """One group, and the time."""

    delay_ms: int
    size: int
    now_ms: int = 0
    wall_ms: int = 0
    state: str = EMPTY
    is_first: bool = False
    """Preparing the first generation since the group was empty."""
    since_ms: int | None = 0
    """None if an old record does not have it."""
    generation: int = 0
    kind: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, PlainMember] = field(default_factory=dict)
    expected: dict[str, None] = field(default_factory=dict)
    """Ids given to clients that have not joined with them."""
    unsynced: dict[str, None] = field(default_factory=dict)
    topics: frozenset[str] | None = None
    somebody_new: bool = False
    delay_is_over: bool = False
    timers: dict[str, int] = field(default_factory=dict)
    """Deadlines of members by id, and of `join` and `sync`."""
    delay: tuple[int, int] | None = None
    """The first delay: its length, and what may follow it."""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    written: Written | None = None
    writes: bool = False
    """This step has written the group."""
    rebalances: int = 0

    # -- small things

    def note(self, what: str, cause: str) -> None:
        self.notes.append((what, cause))

    def moves(self, state: str) -> None:
        self.state, self.since_ms = state, self.wall_ms

    def holder(self, instance: str | None) -> str | None:
        return next(
            (name for name, it in self.members.items() if instance is not None and it.instance == instance), None
        )

    def stranger(self, name: str, instance: str | None) -> ErrorCode | None:
        if instance is not None and self.holder(instance) not in (None, name):
            return E.FENCED_INSTANCE_ID
        if instance is not None and self.holder(instance) is None:
            return E.UNKNOWN_MEMBER_ID
        return None if name in self.members else E.UNKNOWN_MEMBER_ID

    @property
    def rebalance_ms(self) -> int:
        return max((it.rebalance_ms for it in self.members.values()), default=0)

    @property
    def joined(self) -> list[str]:
        return [name for name, it in self.members.items() if it.join is not None]

    @property
    def all_joined(self) -> bool:
        return not self.expected and len(self.joined) == len(self.members)

    def watch(self, name: str, time_ms: int | None = None) -> None:
        member = self.members[name]
        member.deadline_ms = self.now_ms + (member.session_ms if time_ms is None else time_ms)
        self.timers[name] = min(self.timers.get(name, member.deadline_ms), member.deadline_ms)

    def answer_join(self, name: str, response: JoinGroupResponse) -> None:
        member = self.members[name]
        if member.join is not None:
            self.answers.append((member.join, response))
            member.join = None

    def answer_sync(self, name: str, response: SyncGroupResponse) -> bool:
        member = self.members[name]
        if member.sync is None:
            return False
        self.answers.append((member.sync, response))
        member.sync = None
        return True

    def write(self) -> None:
        self.writes = True
        self.written = Written(
            self.kind,
            self.generation,
            self.protocol,
            self.leader,
            self.since_ms,
            tuple(
                (
                    name,
                    it.instance,
                    it.client,
                    it.rebalance_ms,
                    it.session_ms,
                    it.metadata(self.protocol),
                    it.assignment,
                )
                for name, it in self.members.items()
            ),
        )

    # -- protocols

    def common(self) -> set[str]:
        """Protocols of all members."""
        names = [{name for name, _ in it.protocols} for it in self.members.values()]
        return set.intersection(*names) if names else set()

    def supports(self, kind: str, protocols: Protocols) -> bool:
        if self.state == EMPTY:
            return bool(kind and protocols)
        names = {name for name, _ in protocols}
        return kind == self.kind and bool(names & self.common() if self.members else names)

    def choice(self) -> str:
        common = self.common()
        votes = Counter(next(name for name, _ in it.protocols if name in common) for it in self.members.values())
        return max(votes, key=lambda name: votes[name])

    # -- joining

    def accepts(self, name: str) -> bool:
        if self.state == PREPARING:
            return name in self.joined or len(self.joined) < self.size
        return self.state == EMPTY or name in self.members or len(self.members) < self.size

    def join(
        self, number: int, request: JoinGroupRequest, version: int, client: tuple[str, str], new: str
    ) -> ErrorCode | None:
        """`new`: the id that a new member gets. Returns the error of a refusal."""
        name, instance = request.member_id, request.group_instance_id
        protocols = tuple((it.name, it.metadata) for it in request.protocols)
        if not self.accepts(name):
            if name in self.members:
                self.leaves(name)
            else:
                self.forgets(name)
            self.answers.append((number, JoinGroupResponse(member_id="", error_code=E.GROUP_MAX_SIZE_REACHED)))
            self.goes_on()
            return None
        if not self.supports(request.protocol_type, protocols):
            return E.INCONSISTENT_GROUP_PROTOCOL
        member = PlainMember(
            instance,
            client,
            request.session_timeout_ms if version < 1 else max(request.rebalance_timeout_ms, 0),
            request.session_timeout_ms,
            protocols,
        )
        holder = self.holder(instance)
        if not name and holder is not None:
            self.replaces(holder, new, member, number, version, request.reason)
        elif not name and instance is None and version >= 4:
            self.expected[new] = None
            self.timers[new] = self.now_ms + request.session_timeout_ms
            self.answers.append((number, JoinGroupResponse(member_id=new, error_code=E.MEMBER_ID_REQUIRED)))
        elif not name:
            self.adds(new, member, number, request)
        elif name in self.expected:
            if instance is not None:
                return E.UNKNOWN_SERVER_ERROR
            self.adds(name, member, number, request)
        else:
            return self.joins_again(name, member, number, request)
        return None

    def adds(self, name: str, member: PlainMember, number: int, request: JoinGroupRequest) -> None:
        member.is_new, member.join = True, number
        self.somebody_new |= self.state == PREPARING and self.is_first
        if not self.members:
            self.kind = request.protocol_type
        self.leader = self.leader or name
        self.members[name] = member
        self.expected.pop(name, None)
        self.watch(name, NEW_MEMBER_MS)
        self.begins_or_goes_on(f"{name} joins; reason given: {request.reason or 'not provided'}")

    def joins_again(self, name: str, said: PlainMember, number: int, request: JoinGroupRequest) -> ErrorCode | None:
        if (wrong := self.stranger(name, request.group_instance_id)) is not None:
            return wrong
        member = self.members[name]
        is_settled = self.state == COMPLETING or (self.state == STABLE and self.leader != name)
        if is_settled and member.protocols == said.protocols:
            self.watch(name)
            self.answers.append((number, self.join_response(name)))
        else:
            self.updates(name, said, number)
            self.begins_or_goes_on(f"{name} rejoins; reason given: {request.reason or 'not provided'}")
        return None

    def updates(self, name: str, said: PlainMember, number: int) -> None:
        member = self.members[name]
        member.protocols, member.rebalance_ms, member.session_ms = said.protocols, said.rebalance_ms, said.session_ms
        self.answer_join(name, JoinGroupResponse(member_id=name, error_code=E.REBALANCE_IN_PROGRESS))
        member.join = number

    def join_response(self, name: str) -> JoinGroupResponse:
        response = JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.kind,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=name,
        )
        if name == self.leader:
            response.members = [
                JoinGroupResponseMember(
                    member_id=other, group_instance_id=it.instance, metadata=it.metadata(self.protocol)
                )
                for other, it in self.members.items()
            ]
        return response

    def replaces(self, old: str, new: str, said: PlainMember, number: int, version: int, reason: str | None) -> None:
        """A static member has returned without its id."""
        member, leader = self.members[old], self.leader
        instance, why = member.instance, f"reason given: {reason or 'not provided'}"
        self.note(f"member {old} of group {GROUP} is fenced", f"static member {instance} returned as {new}")
        self.answer_join(old, JoinGroupResponse(member_id=old, protocol_name=None, error_code=E.FENCED_INSTANCE_ID))
        self.answer_sync(old, SyncGroupResponse(error_code=E.FENCED_INSTANCE_ID))
        member.is_new = False
        has_to_revoke = self.kind == "consumer" and has_to_revoke_after(
            member.metadata(self.protocol), member.assignment
        )
        del self.members[old]
        self.members[new] = member
        if old in self.unsynced:
            del self.unsynced[old]
            self.unsynced[new] = None
        if leader == old:
            self.leader = new
        self.timers.pop(old, None)
        self.watch(new)
        self.updates(new, said, number)
        if self.state != STABLE:
            self.begins_or_goes_on(f"static member {instance} returned; {why}")
        elif self.choice() != self.protocol:
            self.begins_or_goes_on(f"static member {instance} changes the protocol; {why}")
        elif has_to_revoke:
            self.begins_or_goes_on(f"static member {instance} returned and had partitions to revoke; {why}")
        else:
            response = self.join_response(new)
            if version >= 9:
                response.skip_assignment = self.leader == new
            else:
                response.leader, response.members = leader or "", []
            self.answer_join(new, response)
            self.write()

    # -- rebalances

    def begins_or_goes_on(self, reason: str) -> None:
        if self.state == PREPARING:
            self.goes_on()
        else:
            self.begins(reason)

    def begins(self, reason: str) -> None:
        if self.state == COMPLETING:
            self.refuses_syncs(E.REBALANCE_IN_PROGRESS)
        self.unsynced.clear()
        self.timers.pop("sync", None)
        self.is_first = self.state == EMPTY
        self.moves(PREPARING)
        self.note(f"group {GROUP} rebalances, after generation {self.generation}", reason)
        if self.is_first:
            self.somebody_new = self.delay_is_over = False
            self.delay = (self.delay_ms, max(self.rebalance_ms - self.delay_ms, 0))
            self.timers["join"] = self.now_ms + self.delay_ms
        elif self.all_joined:
            self.completes()
        else:
            self.awaits_joins(self.rebalance_ms)

    def awaits_joins(self, time_ms: int) -> None:
        self.delay = None
        self.timers["join"] = self.now_ms + time_ms

    def goes_on(self) -> None:
        if self.state == PREPARING and self.all_joined and (self.delay_is_over or not self.is_first):
            self.completes()

    def completes(self) -> None:
        self.timers.pop("join", None)
        late = [name for name, it in self.members.items() if it.join is None and it.instance is None]
        for name in late:
            self.forgets(name)
        if self.members and not self.joined:
            self.awaits_joins(max(self.rebalance_ms, ABSENT_MS))
            return
        if self.members and self.members[self.leader or ""].join is None:
            self.leader = self.joined[0]
        self.generation += 1
        self.protocol = self.choice() if self.members else None
        self.unsynced.clear()
        self.reads_topics()
        self.moves(COMPLETING if self.members else EMPTY)
        names, count = ", ".join(late), len(self.members)
        if not self.members:
            cause = f"no member remains: {names} did not rejoin" if late else "no member remains"
            self.note(f"group {GROUP} is empty in generation {self.generation}", cause)
            self.write()
            return
        self.note(
            f"group {GROUP} begins generation {self.generation} with {count} members, {self.leader} assigns",
            f"the rebalance timeout is over, and {names} did not join" if late else "all have joined",
        )
        for name, member in self.members.items():
            self.answer_join(name, self.join_response(name))
            member.is_new = False
            self.watch(name)
            self.unsynced[name] = None
        self.timers["sync"] = self.now_ms + self.rebalance_ms

    def reads_topics(self) -> None:
        if self.kind != "consumer":
            self.topics = None
            return
        found = [topics_in(it.metadata(self.protocol)) for it in self.members.values()]
        self.topics = None if None in found else frozenset(name for names in found for name in names or ())

    def refuses_syncs(self, code: ErrorCode) -> None:
        for name, member in self.members.items():
            member.assignment = b""
            if self.answer_sync(name, SyncGroupResponse(error_code=code)):
                self.watch(name)

    def syncs(self, number: int, name: str, parts: dict[str, bytes]) -> bool:
        """Returns whether the leader has assigned."""
        member = self.members[name]
        self.unsynced.pop(name, None)
        if not self.unsynced:
            self.timers.pop("sync", None)
        if self.state == STABLE:
            self.watch(name)
            self.answers.append((number, self.sync_response(name)))
            return False
        self.answer_sync(name, SyncGroupResponse(error_code=E.REBALANCE_IN_PROGRESS))
        member.sync = number
        if self.leader != name:
            return False
        self.rebalances += 1
        for other, it in self.members.items():
            it.assignment = parts.get(other, b"")
        for other in self.members:
            if self.answer_sync(other, self.sync_response(other)):
                self.watch(other)
        self.write()
        self.moves(STABLE)
        count = len(self.members)
        self.note(
            f"group {GROUP} is stable in generation {self.generation}",
            f"{name} has assigned the partitions to {count} members",
        )
        return True

    def sync_response(self, name: str) -> SyncGroupResponse:
        assignment = self.members[name].assignment
        return SyncGroupResponse(protocol_type=self.kind, protocol_name=self.protocol, assignment=assignment)

    # -- leaving

    def forgets(self, name: str) -> None:
        self.timers.pop(name, None)
        self.members.pop(name, None)
        self.expected.pop(name, None)
        self.unsynced.pop(name, None)
        if self.leader == name:
            self.leader = next(iter(self.members), None)

    def leaves(self, name: str) -> None:
        if name in self.members:
            self.answer_join(name, JoinGroupResponse(member_id="", error_code=E.UNKNOWN_MEMBER_ID))
            self.answer_sync(name, SyncGroupResponse(error_code=E.UNKNOWN_MEMBER_ID))
        self.forgets(name)

    def is_due(self, timer: str) -> None:
        """The time of a timer has come."""
        at_ms = self.timers.pop(timer)
        self.now_ms = max(self.now_ms, at_ms)
        if timer == "join":
            self.ends_joins()
        elif timer == "sync":
            silent = list(self.unsynced)
            for name in silent:
                self.forgets(name)
            within = f"within {self.rebalance_ms} ms"
            self.begins(f"{', '.join(silent)} did not send SyncGroup {within}")
        else:
            self.ends_session(timer)

    def ends_joins(self) -> None:
        if self.state != PREPARING:
            return
        delay, rest = self.delay or (0, 0)
        if self.delay is not None and self.somebody_new and rest > 0:
            self.somebody_new = False
            self.timers["join"] = self.now_ms + min(self.delay_ms, rest)
            self.delay = (min(self.delay_ms, rest), max(rest - delay, 0))
        elif self.delay is not None and self.expected and rest > 0:
            self.delay_is_over = True
            self.awaits_joins(min(PENDING_MS, rest))
        else:
            self.completes()

    def ends_session(self, name: str) -> None:
        member = self.members.get(name)
        if member is None:
            if name in self.expected:
                self.forgets(name)
                if self.state == PREPARING and self.all_joined:
                    self.completes()
            return
        if not member.is_new and (member.join is not None or member.sync is not None):
            self.timers[name] = self.now_ms + member.session_ms
        elif member.deadline_ms > self.now_ms:
            self.timers[name] = member.deadline_ms
        else:
            silent_ms = member.session_ms + self.now_ms - member.deadline_ms
            why = f"it sent nothing for {silent_ms} ms; session timeout {member.session_ms} ms"
            self.note(f"member {name} of group {GROUP} is fenced", why)
            self.leaves(name)
            if self.state != PREPARING:
                self.begins(f"the session of {name} expired; {why}")
            elif self.all_joined:
                self.completes()


KNOWN_BYTES: dict[bytes, tuple[frozenset[str], frozenset[tuple[str, int]]]] = {}
"""Metadata and assignments of consumers: topics, and owned or assigned partitions. All others are unreadable."""


def has_to_revoke_after(metadata: bytes, assignment: bytes) -> bool:
    """True if it joined with partitions that the assignment leaves out; False if something cannot be read."""
    if metadata not in KNOWN_BYTES or assignment not in KNOWN_BYTES:
        return False
    return bool(KNOWN_BYTES[metadata][1] - KNOWN_BYTES[assignment][1])


def topics_in(data: bytes) -> frozenset[str] | None:
    return KNOWN_BYTES[data][0] if data in KNOWN_BYTES else None
