"""Core: a member of the group of registries, which elects the one that writes.

The protocol is that of Confluent's registry: members of a classic group with the protocol type `sr` send who they are;
the group's leader names the registry that leads, and sends the same assignment to all. A leader stays the leader until
it leaves.

    Unjoined ─► Joining ─► Syncing ─► Stable
       ▲           │          │          │
       └───────────┴──────────┴──────────┘   each of them: an error, or a rebalance
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from barnabas.client.groups.membership import COORDINATOR_AWAY, NO_GENERATION, Retry
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.protocol.schema import Message

PROTOCOL_TYPE = "sr"
PROTOCOL_NAME = "v0"
NO_ERROR, DUPLICATE_URLS = 0, 1
_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})
_AGAIN = COORDINATOR_AWAY | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR}


@dataclass(frozen=True, slots=True)
class Identity:
    """A registry, as other registries see it."""

    host: str
    port: int
    is_eligible: bool = True
    scheme: str = "http"
    leads: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
            "leader": self.leads,
        }

    @classmethod
    def of(cls, found: object) -> Identity | None:
        """None for what is no identity."""
        match found:
            case {"host": str(host), "port": int(port), **rest}:
                scheme = rest.get("scheme")
                return cls(
                    host,
                    port,
                    rest.get("master_eligibility") is True,
                    scheme if isinstance(scheme, str) else "http",
                    rest.get("leader") is True,
                )
        return None

    def is_same(self, other: Identity | None) -> bool:
        return other is not None and replace(other, leads=False) == replace(self, leads=False)


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """Settings with Confluent's defaults."""

    group_id: str = "schema-registry"
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


class CandidateState(Enum):
    UNJOINED = "Unjoined"
    JOINING = "Joining"
    SYNCING = "Syncing"
    STABLE = "Stable"


class Candidate:
    """One membership."""

    def __init__(self, settings: ElectionSettings, identity: Identity) -> None:
        self.state = CandidateState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.leader: Identity | None = None
        self.error = ""
        """The reason why nobody leads, if the members cannot agree."""
        self._settings = settings
        self._identity = identity
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._heartbeat_at_ms = 0
        self._confirmed_ms: int | None = None
        """Time at which the last request that the coordinator accepted was sent."""
        self._retry = Retry(settings)
        self._is_waiting = False

    def leads(self, now_ms: int) -> bool:
        """True if it may write: nobody else can have been elected, as the coordinator counts it in for the length of a
        session from the last accepted request on."""
        return (
            self.state is CandidateState.STABLE
            and self._identity.is_same(self.leader)
            and self._confirmed_ms is not None
            and now_ms - self._confirmed_ms < self._settings.session_timeout_ms
        )

    # ---- requests

    def next_request(self, now_ms: int) -> Message | None:
        """The request to send now."""
        if self._is_waiting or now_ms < self._retry.at_ms:
            return None
        if self.state is CandidateState.STABLE and now_ms < self._heartbeat_at_ms:
            return None
        self._is_waiting = True
        match self.state:
            case CandidateState.STABLE:
                group_id = self._settings.group_id
                return HeartbeatRequest(group_id=group_id, generation_id=self.generation, member_id=self.member_id)
            case CandidateState.SYNCING:
                return SyncGroupRequest(
                    group_id=self._settings.group_id,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=PROTOCOL_NAME,
                    assignments=self._assignments,
                )
            case _:
                self.state = CandidateState.JOINING
                return self._join()

    def _join(self) -> JoinGroupRequest:
        identity = replace(self._identity, leads=self._identity.is_same(self.leader))
        return JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=_json(identity.to_json()))],
        )

    def wake_at_ms(self) -> int | None:
        """Time of the next request; None while one is under way."""
        if self._is_waiting:
            return None
        return max(self._retry.at_ms, self._heartbeat_at_ms if self.state is CandidateState.STABLE else 0)

    def timeout_ms(self, request: Message) -> int:
        """Time to wait for the response: a join waits for all members."""
        if isinstance(request, JoinGroupRequest):
            return self._settings.rebalance_timeout_ms + 5_000
        return self._settings.session_timeout_ms

    def leave(self) -> LeaveGroupRequest | None:
        if not self.member_id:
            return None
        member = MemberIdentity(member_id=self.member_id, reason="the registry ends")
        return LeaveGroupRequest(group_id=self._settings.group_id, members=[member])

    # ---- responses

    def answered(self, response: Message, sent_ms: int, now_ms: int) -> ErrorCode:
        """Take over a response. Returns its error; the caller looks the coordinator up again if it has moved."""
        self._is_waiting = False
        code = error_code(getattr(response, "error_code", 0))
        if code is ErrorCode.NONE:
            self._confirmed_ms = sent_ms
            self._retry.reset()
            match response:
                case JoinGroupResponse():
                    self._joined(response)
                case SyncGroupResponse():
                    self._synced(response, now_ms)
                case HeartbeatResponse():
                    self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        elif code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(response, JoinGroupResponse):
            self.member_id = response.member_id
        elif code in _AGAIN and isinstance(response, HeartbeatResponse) and code in COORDINATOR_AWAY:
            self._retry.failed(now_ms)
        else:
            self._rejoin(forget=code in _LOST)
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._retry.failed(now_ms)
            if code not in _LOST | _AGAIN:
                self.error = f"the coordinator answered {code.name}"
        return code

    def unanswered(self, now_ms: int) -> None:
        """No response came."""
        self._is_waiting = False
        if self.state is not CandidateState.STABLE:
            self.state = CandidateState.UNJOINED
        self._retry.failed(now_ms)

    def _rejoin(self, *, forget: bool) -> None:
        self.state = CandidateState.UNJOINED
        if forget:
            self.member_id, self.generation, self.leader = "", NO_GENERATION, None

    def _joined(self, response: JoinGroupResponse) -> None:
        self.member_id, self.generation = response.member_id, response.generation_id
        self.state = CandidateState.SYNCING
        self._assignments = []
        if response.leader == response.member_id:
            members = {each.member_id: Identity.of(_parsed(each.metadata)) for each in response.members}
            assignment = _json(elect(members))
            self._assignments = [
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=assignment) for each in response.members
            ]

    def _synced(self, response: SyncGroupResponse, now_ms: int) -> None:
        self.state = CandidateState.STABLE
        self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        found = _parsed(response.assignment)
        assignment: Mapping[str, Any] = found if isinstance(found, dict) else {"error": -1}
        self.leader = Identity.of(assignment.get("master_identity"))
        match assignment.get("error", 0):
            case 0:
                self.error = "" if self.leader is not None else "no registry of the group may lead"
            case 1:
                self.leader = None
                self.error = f"two registries of the group have the same address; this one is {self._identity.url}"
            case other:
                self.leader = None
                self.error = f"the election failed with error {other}"


def elect(members: Mapping[str, Identity | None]) -> dict[str, Any]:
    """The assignment for all members: the leader there was, else the eligible one whose address is the smallest."""
    known = {member_id: each for member_id, each in members.items() if each is not None}
    eligible = sorted((each.url, member_id) for member_id, each in known.items() if each.is_eligible)
    leading = [member_id for _, member_id in eligible if known[member_id].leads]
    chosen = leading[0] if len(leading) == 1 else eligible[0][1] if eligible else None
    error = NO_ERROR if len({each.url for each in known.values()}) == len(known) else DUPLICATE_URLS
    assignment: dict[str, Any] = {"version": 1, "error": error}
    if chosen is not None:
        assignment |= {"master": chosen, "master_identity": known[chosen].to_json()}
    return assignment


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parsed(data: bytes) -> object:
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found
