"""Between the core's messages and the protocol's: the APIs of the metadata quorum, both ways.

A malformed or foreign message (another cluster, another topic, a shape that no correct peer sends) ends here:
requests get Kafka's error code, answers become `UnusableAnswer`. Knows no sockets and no log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.messages import (
    AddVoter,
    Answer,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchedSpan,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumEpochAnswer,
    RemoveVoter,
    Request,
    UpdateVoter,
    Vote,
    VoteAnswer,
)
from barnabas.kraft.raft.voters import ReplicaKey, VoterSet
from barnabas.kraft.voter_messages import (
    NO_DATA,
    read_voter_change_answer,
    write_voter_change,
)
from barnabas.kraft.voter_records import quorum_records_in
from barnabas.protocol.errors import ErrorCode, MalformedMessage, error_code
from barnabas.protocol.messages import begin_quorum_epoch as begin
from barnabas.protocol.messages import end_quorum_epoch as end
from barnabas.protocol.messages import fetch, vote
from barnabas.protocol.messages import fetch_snapshot as snapshot_api
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterResponse
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterResponse
from barnabas.protocol.primitives import INT64_MAX, uuid_from_string
from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid, iterate_batches
from barnabas.protocol.schema import Message
from barnabas.storage.names import METADATA_TOPIC

METADATA_TOPIC_ID = uuid_from_string("AAAAAAAAAAAAAAAAAAAAAQ")
PARTITION = 0

EndpointT = TypeVar("EndpointT")


class UnusableAnswer(Exception):
    """A peer's response does not answer the request."""


class AnotherCluster(UnusableAnswer):
    """The peer belongs to another cluster."""


class RefusedRequest(Exception):
    """A request that the quorum does not act upon: the whole request gets this error."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer as it came from the wire."""

    answer: Answer
    data: memoryview
    """Records of a fetch, cut to whole and sound batches; or a piece of a snapshot."""
    addresses: Mapping[int, NodeAddress]
    """Addresses in the answer: mostly that of the leader."""


class QuorumMessages:
    """Conversions for one node of one cluster."""

    def __init__(self, cluster_id: str, listener_name: str, own_address: NodeAddress | None) -> None:
        self.cluster_id = cluster_id
        self._listener_name = listener_name
        self._own_address = own_address

    # ---- requests, outgoing

    def write_request(self, request: Request, max_bytes: int) -> Message:
        """The protocol's form of a request of ours. `max_bytes` bounds what a fetch may bring."""
        match request:
            case Vote():
                return self._write_vote(request)
            case BeginQuorumEpoch():
                return self._write_begin(request)
            case EndQuorumEpoch():
                return self._write_end(request)
            case Fetch():
                return self._write_fetch(request, max_bytes)
            case FetchSnapshot():
                return self._write_fetch_snapshot(request, max_bytes)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                return write_voter_change(request, self.cluster_id)

    def _write_vote(self, request: Vote) -> vote.VoteRequest:
        voter = request.voter
        partition = vote.RequestPartitionData(
            partition_index=PARTITION,
            replica_epoch=request.epoch,
            replica_id=request.candidate.id,
            replica_directory_id=request.candidate.directory_id,
            last_offset_epoch=request.log_end.epoch,
            last_offset=request.log_end.offset,
            pre_vote=request.pre_vote,
        )
        if voter is not None:
            partition.voter_directory_id = voter.directory_id
        return vote.VoteRequest(
            cluster_id=self.cluster_id,
            voter_id=-1 if voter is None else voter.id,
            topics=[vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        )

    def _write_begin(self, request: BeginQuorumEpoch) -> begin.BeginQuorumEpochRequest:
        voter = request.voter
        partition = begin.RequestPartitionData(
            partition_index=PARTITION, leader_id=request.leader_id, leader_epoch=request.epoch
        )
        if voter is not None:
            partition.voter_directory_id = voter.directory_id
        return begin.BeginQuorumEpochRequest(
            cluster_id=self.cluster_id,
            voter_id=-1 if voter is None else voter.id,
            topics=[begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            leader_endpoints=self._own_endpoints(begin.LeaderEndpoint),
        )

    def _write_end(self, request: EndQuorumEpoch) -> end.EndQuorumEpochRequest:
        partition = end.RequestPartitionData(
            partition_index=PARTITION,
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
            preferred_successors=[key.id for key in request.preferred_candidates],
            preferred_candidates=[
                end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                for key in request.preferred_candidates
            ],
        )
        return end.EndQuorumEpochRequest(
            cluster_id=self.cluster_id,
            topics=[end.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            leader_endpoints=self._own_endpoints(end.LeaderEndpoint),
        )

    def _write_fetch(self, request: Fetch, max_bytes: int) -> fetch.FetchRequest:
        known = request.high_watermark
        partition = fetch.FetchPartition(
            partition=PARTITION,
            current_leader_epoch=request.epoch,
            fetch_offset=request.fetch_offset,
            last_fetched_epoch=request.last_fetched_epoch,
            partition_max_bytes=max_bytes,
            replica_directory_id=request.replica.directory_id,
            high_watermark=INT64_MAX if known is None else known,
        )
        topic = fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        return fetch.FetchRequest(
            cluster_id=self.cluster_id,
            replica_state=fetch.ReplicaState(replica_id=request.replica.id),
            max_wait_ms=request.max_wait_ms,
            max_bytes=max_bytes,
            topics=[topic],
        )

    def _write_fetch_snapshot(self, request: FetchSnapshot, max_bytes: int) -> snapshot_api.FetchSnapshotRequest:
        partition = snapshot_api.RequestPartitionSnapshot(
            partition=PARTITION,
            current_leader_epoch=request.epoch,
            snapshot_id=snapshot_api.SnapshotId(end_offset=request.snapshot.offset, epoch=request.snapshot.epoch),
            position=request.position,
            replica_directory_id=request.replica.directory_id,
        )
        return snapshot_api.FetchSnapshotRequest(
            cluster_id=self.cluster_id,
            replica_id=request.replica.id,
            max_bytes=max_bytes,
            topics=[snapshot_api.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        )

    def _own_endpoints(self, kind: Callable[..., EndpointT]) -> list[EndpointT]:
        own = self._own_address
        return [] if own is None else [kind(name=self._listener_name, host=own.host, port=own.port)]

    # ---- requests, incoming: RefusedRequest unless they are for this cluster's metadata partition

    def check_cluster(self, cluster_id: str | None) -> None:
        """Raises RefusedRequest for another cluster's id."""
        if cluster_id is not None and cluster_id != self.cluster_id:
            raise RefusedRequest(ErrorCode.INCONSISTENT_CLUSTER_ID)

    def _only_partition(self, message: Any) -> Any:
        """The only partition that a Vote, BeginQuorumEpoch or EndQuorumEpoch may name."""
        self.check_cluster(message.cluster_id)
        topics = message.topics
        if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
            raise RefusedRequest(ErrorCode.INVALID_REQUEST)
        partition = topics[0].partitions[0]
        if partition.partition_index != PARTITION:
            raise RefusedRequest(ErrorCode.INVALID_REQUEST)
        return partition

    def read_vote(self, message: vote.VoteRequest) -> Vote:
        partition = self._only_partition(message)
        return Vote(
            voter=_voter_key(message.voter_id, partition.voter_directory_id),
            candidate=ReplicaKey(partition.replica_id, partition.replica_directory_id),
            epoch=partition.replica_epoch,
            log_end=OffsetAndEpoch(offset=partition.last_offset, epoch=partition.last_offset_epoch),
            pre_vote=partition.pre_vote,
        )

    def read_begin(self, message: begin.BeginQuorumEpochRequest) -> BeginQuorumEpoch:
        partition = self._only_partition(message)
        return BeginQuorumEpoch(
            voter=_voter_key(message.voter_id, partition.voter_directory_id),
            leader_id=partition.leader_id,
            epoch=partition.leader_epoch,
        )

    def read_end(self, message: end.EndQuorumEpochRequest) -> EndQuorumEpoch:
        partition = self._only_partition(message)
        candidates = tuple(
            ReplicaKey(info.candidate_id, info.candidate_directory_id) for info in partition.preferred_candidates
        )
        if not candidates:
            candidates = tuple(ReplicaKey(successor) for successor in partition.preferred_successors)
        return EndQuorumEpoch(
            leader_id=partition.leader_id, epoch=partition.leader_epoch, preferred_candidates=candidates
        )

    def read_fetch(self, message: fetch.FetchRequest) -> Fetch:
        self.check_cluster(message.cluster_id)
        topics = message.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            raise RefusedRequest(ErrorCode.INVALID_REQUEST)
        topic, partition = topics[0], topics[0].partitions[0]
        if topic.topic != METADATA_TOPIC and topic.topic_id != METADATA_TOPIC_ID:
            raise RefusedRequest(ErrorCode.INVALID_REQUEST)
        if partition.partition != PARTITION:
            raise RefusedRequest(ErrorCode.INVALID_REQUEST)
        replica_id = message.replica_state.replica_id if message.replica_id < 0 else message.replica_id
        known = partition.high_watermark
        return Fetch(
            replica=ReplicaKey(replica_id, partition.replica_directory_id),
            epoch=partition.current_leader_epoch,
            fetch_offset=partition.fetch_offset,
            last_fetched_epoch=partition.last_fetched_epoch,
            high_watermark=None if known == INT64_MAX else known,
            max_wait_ms=message.max_wait_ms,
        )

    def read_fetch_snapshot(self, message: snapshot_api.FetchSnapshotRequest) -> FetchSnapshot:
        self.check_cluster(message.cluster_id)
        topics = message.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            raise RefusedRequest(ErrorCode.INVALID_REQUEST)
        partition = topics[0].partitions[0]
        if topics[0].name != METADATA_TOPIC or partition.partition != PARTITION:
            raise RefusedRequest(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        snapshot_id = partition.snapshot_id
        return FetchSnapshot(
            replica=ReplicaKey(message.replica_id, partition.replica_directory_id),
            epoch=partition.current_leader_epoch,
            snapshot=OffsetAndEpoch(offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
            position=partition.position,
            max_bytes=message.max_bytes,
        )

    def read_endpoints(self, leader_id: int, endpoints: Sequence[Any]) -> dict[int, NodeAddress]:
        """Address of a leader that made itself known, on the listener that both share."""
        for endpoint in endpoints:
            if endpoint.name == self._listener_name and endpoint.host and 0 < endpoint.port < 65536:
                return {leader_id: NodeAddress(endpoint.host, endpoint.port)}
        return {}

    def refuse_fetch_snapshot(self, message: snapshot_api.FetchSnapshotRequest, code: ErrorCode) -> Message:
        """An unknown partition is an error of the partition, everything else one of the whole response."""
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return snapshot_api.FetchSnapshotResponse(error_code=code)
        topic = message.topics[0]
        partition = snapshot_api.ResponsePartitionSnapshot(index=topic.partitions[0].partition, error_code=code)
        return snapshot_api.FetchSnapshotResponse(
            topics=[snapshot_api.ResponseTopicSnapshot(name=topic.name, partitions=[partition])]
        )

    # ---- answers, outgoing

    def write_vote_answer(self, answer: VoteAnswer, hint: NodeAddress | None, version: int) -> Message:
        partition = vote.ResponsePartitionData(
            partition_index=PARTITION,
            error_code=answer.error,
            leader_id=_id_or_none(answer.leader_id),
            leader_epoch=answer.epoch,
            vote_granted=answer.granted,
        )
        topic = vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return vote.VoteResponse(
            topics=[topic],
            node_endpoints=_endpoints(vote.NodeEndpoint, answer.leader_id, hint if version >= 1 else None),
        )

    def write_begin_answer(self, answer: QuorumEpochAnswer, hint: NodeAddress | None, version: int) -> Message:
        partition = begin.ResponsePartitionData(
            partition_index=PARTITION,
            error_code=answer.error,
            leader_id=_id_or_none(answer.leader_id),
            leader_epoch=answer.epoch,
        )
        topic = begin.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return begin.BeginQuorumEpochResponse(
            topics=[topic],
            node_endpoints=_endpoints(begin.NodeEndpoint, answer.leader_id, hint if version >= 1 else None),
        )

    def write_end_answer(self, answer: QuorumEpochAnswer, hint: NodeAddress | None, version: int) -> Message:
        partition = end.ResponsePartitionData(
            partition_index=PARTITION,
            error_code=answer.error,
            leader_id=_id_or_none(answer.leader_id),
            leader_epoch=answer.epoch,
        )
        topic = end.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return end.EndQuorumEpochResponse(
            topics=[topic],
            node_endpoints=_endpoints(end.NodeEndpoint, answer.leader_id, hint if version >= 1 else None),
        )

    def write_fetch_answer(self, answer: FetchAnswer, data: bytes, hint: NodeAddress | None, version: int) -> Message:
        partition = fetch.PartitionData(
            partition_index=PARTITION,
            error_code=answer.error,
            high_watermark=-1 if answer.high_watermark is None else answer.high_watermark,
            log_start_offset=answer.log_start_offset,
            aborted_transactions=None,
            records=data,
        )
        if version >= 12:
            partition.current_leader = fetch.LeaderIdAndEpoch(
                leader_id=_id_or_none(answer.leader_id), leader_epoch=answer.epoch
            )
        if answer.diverging is not None:
            partition.diverging_epoch = fetch.EpochEndOffset(
                epoch=answer.diverging.epoch, end_offset=answer.diverging.offset
            )
        if answer.snapshot is not None:
            partition.snapshot_id = fetch.SnapshotId(end_offset=answer.snapshot.offset, epoch=answer.snapshot.epoch)
        topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        return fetch.FetchResponse(
            responses=[topic],
            node_endpoints=_endpoints(fetch.NodeEndpoint, answer.leader_id, hint if version >= 16 else None),
        )

    def write_fetch_snapshot_answer(
        self, answer: FetchSnapshotAnswer, data: bytes, hint: NodeAddress | None, version: int
    ) -> Message:
        partition = snapshot_api.ResponsePartitionSnapshot(
            index=PARTITION,
            error_code=answer.error,
            current_leader=snapshot_api.LeaderIdAndEpoch(
                leader_id=_id_or_none(answer.leader_id), leader_epoch=answer.epoch
            ),
            size=answer.size_bytes,
            position=answer.position,
            unaligned_records=data,
        )
        if answer.snapshot is not None:
            partition.snapshot_id = snapshot_api.SnapshotId(
                end_offset=answer.snapshot.offset, epoch=answer.snapshot.epoch
            )
        topic = snapshot_api.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
        return snapshot_api.FetchSnapshotResponse(
            topics=[topic],
            node_endpoints=_endpoints(snapshot_api.NodeEndpoint, answer.leader_id, hint if version >= 1 else None),
        )

    # ---- answers, incoming: UnusableAnswer unless they fit a replica of this partition

    def read_answer(self, message: Message) -> ReadAnswer:
        """An answer to a request of ours."""
        match message:
            case vote.VoteResponse():
                partition = _answered_partition(message, message.topics)
                return ReadAnswer(
                    VoteAnswer(
                        error=error_code(partition.error_code),
                        leader_id=_known_id(partition.leader_id),
                        epoch=partition.leader_epoch,
                        granted=partition.vote_granted,
                    ),
                    NO_DATA,
                    _addresses(message.node_endpoints),
                )
            case begin.BeginQuorumEpochResponse() | end.EndQuorumEpochResponse():
                partition = _answered_partition(message, message.topics)
                return ReadAnswer(
                    QuorumEpochAnswer(
                        error=error_code(partition.error_code),
                        leader_id=_known_id(partition.leader_id),
                        epoch=partition.leader_epoch,
                    ),
                    NO_DATA,
                    _addresses(message.node_endpoints),
                )
            case fetch.FetchResponse():
                return _read_fetch_answer(message)
            case AddRaftVoterResponse() | RemoveRaftVoterResponse() | UpdateRaftVoterResponse():
                return ReadAnswer(*read_voter_change_answer(message))
            case snapshot_api.FetchSnapshotResponse():
                return _read_fetch_snapshot_answer(message)
            case _:
                raise UnusableAnswer(f"{type(message).__name__} answers none of the requests of a quorum")


def _read_fetch_answer(message: fetch.FetchResponse) -> ReadAnswer:
    partition = _answered_partition(message, message.responses)
    data = NO_DATA if partition.records is None else memoryview(partition.records)
    spans, end_position = _spans(data)
    try:
        quorum_records = tuple(quorum_records_in(data[:end_position]))
    except (CorruptBatch, MalformedMessage) as error:
        raise UnusableAnswer(str(error)) from error
    answer = FetchAnswer(
        error=error_code(partition.error_code),
        leader_id=_known_id(partition.current_leader.leader_id),
        epoch=partition.current_leader.leader_epoch,
        high_watermark=None if partition.high_watermark < 0 else partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging=_position(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset),
        snapshot=_position(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        spans=spans,
        quorum_records=quorum_records,
    )
    return ReadAnswer(answer, data[:end_position], _addresses(message.node_endpoints))


def _read_fetch_snapshot_answer(message: snapshot_api.FetchSnapshotResponse) -> ReadAnswer:
    partition = _answered_partition(message, message.topics)
    data = memoryview(partition.unaligned_records)
    return ReadAnswer(
        FetchSnapshotAnswer(
            error=error_code(partition.error_code),
            leader_id=_known_id(partition.current_leader.leader_id),
            epoch=partition.current_leader.leader_epoch,
            snapshot=_position(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
            size_bytes=partition.size,
            position=partition.position,
            count=len(data),
        ),
        data,
        _addresses(message.node_endpoints),
    )


def _spans(data: memoryview) -> tuple[tuple[FetchedSpan, ...], int]:
    """(the offsets and epochs of the batches, where the last whole one ends)"""
    spans: list[FetchedSpan] = []
    end_position = 0
    try:
        for position, header in iterate_batches(data):
            if header.magic != 2 or not crc_is_valid(data, position, header):
                raise UnusableAnswer(f"wrong CRC in the fetched batch at offset {header.base_offset}")
            epoch, first, following = header.partition_leader_epoch, header.base_offset, header.next_offset
            if spans and spans[-1].epoch == epoch and spans[-1].next_offset == first < following:
                first = spans.pop().first_offset
            spans.append(FetchedSpan(epoch, first, following))
            end_position = position + header.size_bytes
    except CorruptBatch as error:
        raise UnusableAnswer(str(error)) from error
    return tuple(spans), end_position


def _answered_partition(message: Any, topics: list[Any]) -> Any:
    if message.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        raise AnotherCluster(f"{type(message).__name__}: INCONSISTENT_CLUSTER_ID")
    if message.error_code != ErrorCode.NONE:
        raise UnusableAnswer(f"{type(message).__name__}: {error_code(message.error_code).name}")
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise UnusableAnswer(f"{type(message).__name__} is not about one partition")
    return topics[0].partitions[0]


def voter_addresses(voters: VoterSet, listener_name: str) -> dict[int, NodeAddress]:
    """The addresses of the voters on the listener of the quorum."""
    found = {voter.id: voter.endpoint(listener_name) for voter in voters.voters}
    return {voter_id: NodeAddress(it.host, it.port) for voter_id, it in found.items() if it is not None}


def _voter_key(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    return None if voter_id < 0 else ReplicaKey(voter_id, directory_id)


def _known_id(node_id: int) -> int | None:
    return None if node_id < 0 else node_id


def _id_or_none(node_id: int | None) -> int:
    return -1 if node_id is None else node_id


def _position(epoch: int, offset: int) -> OffsetAndEpoch | None:
    if epoch < 0 and offset < 0:
        return None
    if epoch < 0 or offset < 0:
        raise UnusableAnswer(f"offset {offset} of epoch {epoch}")
    return OffsetAndEpoch(epoch=epoch, offset=offset)


def _endpoints(kind: Callable[..., EndpointT], leader_id: int | None, hint: NodeAddress | None) -> list[EndpointT]:
    """Address of the leader in the form of one API; empty if it is not known, or the version has no field for it."""
    if leader_id is None or hint is None:
        return []
    return [kind(node_id=leader_id, host=hint.host, port=hint.port)]


def _addresses(endpoints: list[Any]) -> dict[int, NodeAddress]:
    return {
        endpoint.node_id: NodeAddress(endpoint.host, endpoint.port)
        for endpoint in endpoints
        if endpoint.node_id >= 0 and endpoint.host and 0 < endpoint.port < 65536
    }
