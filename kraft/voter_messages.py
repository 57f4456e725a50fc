"""Between the core's changes of the voters and the protocol's: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter
(KIP-853)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VoterChange, VoterChangeAnswer
from barnabas.kraft.raft.voters import ReplicaKey, Voter
from barnabas.kraft.voter_records import endpoints
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.add_raft_voter import Listener as AddedListener
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.update_raft_voter import (
    CurrentLeader,
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from barnabas.protocol.messages.update_raft_voter import Listener as UpdatedListener

ADD_TIMEOUT_MS = 2000
"""`timeout_ms` of a request that a controller sends for itself; the leader uses its own."""

NO_DATA = memoryview(b"")


def write_voter_change(
    request: VoterChange, cluster_id: str
) -> AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest:
    """The protocol's form of what this replica asks about itself."""
    match request:
        case AddVoter(voter=voter):
            return AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=ADD_TIMEOUT_MS,
                voter_id=voter.id,
                voter_directory_id=voter.key.directory_id,
                listeners=[AddedListener(name=it.name, host=it.host, port=it.port) for it in voter.endpoints],
                ack_when_committed=request.ack_when_committed,
            )
        case RemoveVoter(voter=key):
            return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=key.id, voter_directory_id=key.directory_id)
        case UpdateVoter(voter=voter):
            lowest, highest = voter.versions
            return UpdateRaftVoterRequest(
                cluster_id=cluster_id,
                current_leader_epoch=request.epoch,
                voter_id=voter.id,
                voter_directory_id=voter.key.directory_id,
                listeners=[UpdatedListener(name=it.name, host=it.host, port=it.port) for it in voter.endpoints],
                k_raft_version_feature=KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
            )


def read_add(message: AddRaftVoterRequest) -> AddVoter:
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    return AddVoter(voter=Voter(key, endpoints(message.listeners)), ack_when_committed=message.ack_when_committed)


def read_remove(message: RemoveRaftVoterRequest) -> RemoveVoter:
    return RemoveVoter(voter=ReplicaKey(message.voter_id, message.voter_directory_id))


def read_update(message: UpdateRaftVoterRequest) -> UpdateVoter:
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    feature = message.k_raft_version_feature
    versions = (feature.min_supported_version, feature.max_supported_version)
    return UpdateVoter(epoch=message.current_leader_epoch, voter=Voter(key, endpoints(message.listeners), versions))


def write_update_answer(answer: VoterChangeAnswer, leader: NodeAddress | None) -> UpdateRaftVoterResponse:
    """The leader is named in every answer: a Kafka follower takes one without it for stale."""
    current = CurrentLeader(leader_id=-1 if answer.leader_id is None else answer.leader_id, leader_epoch=answer.epoch)
    if leader is not None:
        current.host, current.port = leader.host, leader.port
    return UpdateRaftVoterResponse(error_code=answer.error, current_leader=current)


def read_voter_change_answer(
    message: AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse,
) -> tuple[VoterChangeAnswer, memoryview, Mapping[int, NodeAddress]]:
    """The answer, no data, and the address of the leader if it is there."""
    error = error_code(message.error_code)
    if not isinstance(message, UpdateRaftVoterResponse):
        return VoterChangeAnswer(error=error, message=message.error_message), NO_DATA, {}
    leader = message.current_leader
    known_id = None if leader.leader_id < 0 else leader.leader_id
    addresses: dict[int, NodeAddress] = {}
    if known_id is not None and leader.host and 0 < leader.port < 65536:
        addresses = {known_id: NodeAddress(leader.host, leader.port)}
    return VoterChangeAnswer(error=error, leader_id=known_id, epoch=leader.leader_epoch), NO_DATA, addresses


def refusal(
    message: AddRaftVoterRequest | RemoveRaftVoterRequest, code: ErrorCode, text: str | None
) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
    """The answer to a change that an operator asked for."""
    kind = AddRaftVoterResponse if isinstance(message, AddRaftVoterRequest) else RemoveRaftVoterResponse
    return kind(error_code=code, error_message=text)
