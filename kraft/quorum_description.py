"""The answer to DescribeQuorum: the progress of every voter and observer, as the leader knows it (KIP-595, 836,
853)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from barnabas.kraft.raft.progress import ReplicaProgress
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.voters import NO_DIRECTORY
from barnabas.kraft.replica_config import ReplicaConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from barnabas.runtime.meter import Meter
from barnabas.storage.names import METADATA_TOPIC


@dataclass(frozen=True, slots=True)
class Clocks:
    """Raft's monotonic time, and its offset to the wall clock."""

    now_ms: int
    wall_offset_ms: int

    def wall_ms(self, time_ms: int | None) -> int:
        """-1 for None."""
        return -1 if time_ms is None else time_ms + self.wall_offset_ms


def asks_for_metadata(request: DescribeQuorumRequest) -> bool:
    """True if the request names the one partition of the metadata log, and nothing else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return topic.topic_name == METADATA_TOPIC and topic.partitions[0].partition_index == 0


def describe_others(
    request: DescribeQuorumRequest, meter: Meter
) -> Generator[None, None, DescribeQuorumResponse]:
    """The answer to a request that names anything else: an error for each partition."""
    response = DescribeQuorumResponse()
    for topic in request.topics:
        described = ResponseTopicData(topic_name=topic.topic_name)
        response.topics.append(described)
        meter.answer_grows()
        for partition in topic.partitions:
            index = partition.partition_index
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            described.partitions.append(ResponsePartitionData(partition_index=index, error_code=error))
            meter.answer_grows()
            if meter.step_ends():
                yield None
        if meter.step_ends():
            yield None
    return response


def describe_quorum(
    core: Raft, version: int, config: ReplicaConfig, clocks: Clocks
) -> DescribeQuorumResponse:
    """The answer in `version`: directory ids and nodes only from 2 on."""
    partition = ResponsePartitionData(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=-1 if core.leader_id is None else core.leader_id,
        leader_epoch=core.epoch,
    )
    nodes: list[Node] = []
    progress = core.progress
    if progress is not None:
        own_id = config.node_id
        shown = core.shown_high_watermark
        partition.error_code = ErrorCode.NONE
        partition.high_watermark = -1 if shown is None else shown
        partition.current_voters = [_state(voter, clocks) for voter in progress.voters.values()]
        for state in partition.current_voters:
            if state.replica_id == own_id:
                state.log_end_offset = core.log.end_offset
                state.last_fetch_timestamp = state.last_caught_up_timestamp = clocks.wall_ms(clocks.now_ms)
        partition.observers = [_state(observer, clocks) for observer in progress.active_observers(clocks.now_ms)]
        nodes = [
            Node(
                node_id=voter.id,
                listeners=[Listener(name=it.name, host=it.host, port=it.port) for it in voter.endpoints],
            )
            for voter in core.voters.voters
        ]
    if version < 2:
        nodes = []
        for state in (*partition.current_voters, *partition.observers):
            state.replica_directory_id = NO_DIRECTORY
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])], nodes=nodes
    )


def _state(replica: ReplicaProgress, clocks: Clocks) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=-1 if replica.end_offset is None else replica.end_offset,
        last_fetch_timestamp=clocks.wall_ms(replica.last_fetch_ms),
        last_caught_up_timestamp=clocks.wall_ms(replica.last_caught_up_ms),
    )
