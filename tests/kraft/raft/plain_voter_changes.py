"""Changes of the voters at a plain leader (KIP-853), one check after the other, with Kafka's messages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from barnabas.kraft.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VoterChangeAnswer
from barnabas.kraft.raft.ready import AppendQuorumRecords, ProbeVoter, VoterChangeDone
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import NO_DIRECTORY, ReplicaKey, VoterSet
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.primitives import uuid_to_string
from tests.kraft.raft.plain_elections import PlainElections

E = ErrorCode
EARLIER = "Request timed out waiting for leader to handle previous voter change request"
NO_COMMIT = "Request timed out waiting for leader to establish HWM and fence previous voter changes"


@dataclass
class UnderWay:
    """The change that the leader works on."""

    ticket: int
    epoch: int
    until_ms: int
    adds: AddVoter | None = None
    offset: int | None = None
    is_answered: bool = False


def text(key: ReplicaKey) -> str:
    directory = "<undefined>" if key.directory_id == NO_DIRECTORY else uuid_to_string(key.directory_id)
    return f"ReplicaKey(id={key.id}, directoryId={directory})"


def texts(voters: VoterSet) -> str:
    return f"[{', '.join(text(key) for key in voters.keys)}]"


def is_named(key: ReplicaKey) -> bool:
    return key.id >= 0 and key.directory_id != NO_DIRECTORY


@dataclass
class PlainVoterChanges(PlainElections):
    """One change at a time."""

    under_way: UnderWay | None = None
    done: list[VoterChangeDone] = field(default_factory=list)

    def finish(self, ticket: int, error: ErrorCode = E.NONE, message: str | None = None) -> None:
        self.done.append(VoterChangeDone(ticket, VoterChangeAnswer(error=error, message=message)))

    def end_change(self, error: ErrorCode = E.NONE, message: str | None = None) -> None:
        """Answered at most once."""
        assert self.under_way is not None
        if not self.under_way.is_answered:
            self.finish(self.under_way.ticket, error, message)
        self.under_way = None

    @property
    def last_set_is_committed(self) -> bool:
        assert self.lead is not None and self.lead.high_watermark is not None
        return self.voters.offset is not None and self.voters.offset < self.lead.high_watermark

    def refusal(self, doing: str) -> tuple[ErrorCode, str] | None:
        assert self.lead is not None
        mark = self.lead.high_watermark
        if self.under_way is not None:
            return E.REQUEST_TIMED_OUT, EARLIER
        if mark is None:
            return E.REQUEST_TIMED_OUT, NO_COMMIT
        if self.voters.kraft_version == 0:
            why = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
            return E.UNSUPPORTED_VERSION, why
        if not self.last_set_is_committed:
            latest = f"the latest voter change at Optional[{self.voters.offset}] with HWM {mark}"
            return E.REQUEST_TIMED_OUT, f"Request timed out waiting for voters to commit {latest}"
        return None

    # -- requests

    def add(self, request: AddVoter, ticket: int) -> None:
        key = request.voter.key
        names = [endpoint.name for endpoint in request.voter.endpoints]
        if self.lead is None:
            return self.finish(ticket, E.NOT_LEADER_OR_FOLLOWER)
        if not is_named(key):
            return self.finish(ticket, E.INVALID_REQUEST, "Add voter request didn't include a valid voter")
        if self.config.listener_name not in names:
            why = f"the endpoint ({names}) for the default listener {self.config.listener_name}"
            return self.finish(ticket, E.INVALID_REQUEST, f"Add voter request didn't include {why}")
        if (refusal := self.refusal("adding")) is not None:
            return self.finish(ticket, *refusal)
        if key.id in self.ids:
            why = f"is already part of the set of voters {texts(self.voters.current)}."
            return self.finish(ticket, E.DUPLICATE_VOTER, f"The voter id for {text(key)} {why}")
        until_ms = self.now_ms + self.config.request_timeout_ms
        self.under_way = UnderWay(ticket, self.role.epoch, until_ms, adds=request)
        self.asked["probe_voter"] = ProbeVoter(ticket, request.voter)
        return None

    def probed(self, ticket: int, error: ErrorCode, versions: tuple[int, int] | None) -> None:
        change, level = self.under_way, self.voters.kraft_version
        if self.lead is None or change is None or change.adds is None:
            return
        if change.ticket != ticket or change.offset is not None:
            return
        voter = change.adds.voter
        aborted = f"Aborted add voter operation for {text(voter.key)} since"
        if error is not E.NONE:
            why = f"Aborted add voter operation for since API_VERSIONS returned an error {error.name}"
            self.end_change(E.REQUEST_TIMED_OUT, why)
        elif versions is None or level not in range(versions[0], versions[1] + 1):
            least, most = versions if versions is not None else (0, 0)
            spans = f"(min: {least}, max: {most}) doesn't support the finalized version {level}"
            self.end_change(E.INVALID_REQUEST, f"{aborted} the kraft.version range {spans}")
        elif not self.lead.progress.is_caught_up(voter.key, self.now_ms):
            self.end_change(E.REQUEST_TIMED_OUT, f"{aborted} it is lagging behind")
        else:
            change.offset = self.append_set(
                VoterSet.of((*self.voters.current.voters, replace(voter, versions=versions)))
            )
            if not change.adds.ack_when_committed:
                self.finish(ticket)
                change.is_answered = True

    def remove(self, request: RemoveVoter, ticket: int) -> None:
        key, current = request.voter, self.voters.current
        if self.lead is None:
            return self.finish(ticket, E.NOT_LEADER_OR_FOLLOWER)
        if not is_named(key):
            return self.finish(ticket, E.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
        if (refusal := self.refusal("removing")) is not None:
            return self.finish(ticket, *refusal)
        if key not in current.keys or current.keys == (key,):
            why = f"Cannot remove voter {text(key)} from the set of voters {texts(current)}"
            return self.finish(ticket, E.VOTER_NOT_FOUND, why)
        left = VoterSet(tuple(each for each in current.voters if each.key != key))
        silent = self.lead.progress.silent_voters(self.now_ms - self.config.fetch_timeout_ms)
        present = [each for each in left.ids if each not in silent]
        needed = len(left.ids) // 2 + 1
        if len(present) < needed:
            remain = f"{needed} of the voters {left} that would remain are a majority"
            why = f"Cannot remove voter {text(key)}: {remain}, and only {present} fetch"
            return self.finish(ticket, E.INVALID_REQUEST, why)
        offset = self.append_set(left)
        until_ms = self.now_ms + self.config.request_timeout_ms
        self.under_way = UnderWay(ticket, self.role.epoch, until_ms, offset=offset)
        return None

    def update(self, request: UpdateVoter) -> ErrorCode:
        """The voter is checked before; this replica leads."""
        assert self.lead is not None
        lead, level, voter = self.lead, self.voters.kraft_version, request.voter
        voters = self.voters.current if level else lead.reported
        if self.under_way is not None or lead.high_watermark is None or voters is None:
            return E.REQUEST_TIMED_OUT
        if level and not self.last_set_is_committed:
            return E.REQUEST_TIMED_OUT
        if level not in range(voter.versions[0], voter.versions[1] + 1):
            return E.INVALID_REQUEST
        keys = {each.id: each.key for each in voters.voters}
        if voter.id not in keys or (level and keys[voter.id] != voter.key):
            return E.VOTER_NOT_FOUND
        updated = VoterSet(tuple(voter if each.id == voter.id else each for each in voters.voters))
        if level:
            self.append_set(updated)
        else:
            lead.reported = updated
        return E.NONE

    def upgrade(self, level: int, *, validate_only: bool) -> str | None:
        if self.lead is None:
            return "Upgrade kraft version failed because the replica is not the current leader"
        current, voters = self.voters.kraft_version, self.lead.reported
        if level == current:
            return None
        if level < current:
            why = "because the new version is a downgrade"
            return f"Invalid upgrade of kraft.version from version {current} to {level} {why}"
        if voters is None:
            return f"Invalid upgrade of kraft.version from version {current} to {level}"
        if any(level not in range(each.versions[0], each.versions[1] + 1) for each in voters.voters):
            return f"Invalid upgrade of kraft.version to {level} because not all of the voters support it"
        if not validate_only:
            end = self.log.end_offset
            records = [QuorumRecord(offset=end, kraft_version=level)]
            if voters != self.voters.current:
                records.append(QuorumRecord(offset=end + 1, voters=voters))
            self.append_records(*records)
        return None

    def append_set(self, voters: VoterSet) -> int:
        offset = self.log.end_offset
        self.append_records(QuorumRecord(offset=offset, voters=voters))
        return offset

    def append_records(self, *records: QuorumRecord) -> None:
        self.asked["append_quorum_records"] = AppendQuorumRecords(epoch=self.role.epoch, records=records)
        self.log = self.log.appended(self.role.epoch, records[-1].offset + 1)
        self.voters.add(records)

    def look_at_change(self) -> None:
        """It ends when it has committed, when its time is over, or when this replica leads no longer."""
        change = self.under_way
        if change is None:
            return
        if self.lead is None or self.role.epoch != change.epoch:
            self.end_change(E.NOT_LEADER_OR_FOLLOWER)
        elif change.offset is not None and (self.lead.high_watermark or 0) > change.offset:
            self.end_change()
        elif self.now_ms >= change.until_ms:
            self.end_change(E.REQUEST_TIMED_OUT, "The request timed out.")
