"""The answer to DescribeQuorum: how far every voter and observer is, as the leader knows it (KIP-595, 836,
853)."""

from __future__ import annotations

from kraft.raft.progress import ReplicaProgress
from kraft.raft.raft import Raft
from kraft.replica_config import ReplicaConfig
from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from storage.names import METADATA_TOPIC


def describe_quorum(
    core: Raft, request: DescribeQuorumRequest, config: ReplicaConfig, *, now_ms: int, wall_offset_ms: int
) -> DescribeQuorumResponse:
    """`wall_offset_ms` is what turns the core's times into wall clock times."""
    asked = [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            topics=[
                ResponseTopicData(
                    topic_name=name,
                    partitions=[
                        ResponsePartitionData(
                            partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in asked
            ]
        )
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
        partition.current_voters = [_state(voter, wall_offset_ms) for voter in progress.voters.values()]
        for state in partition.current_voters:
            if state.replica_id == own_id:
                state.replica_directory_id = config.directory_id
                state.log_end_offset = core.log.end_offset
                state.last_fetch_timestamp = state.last_caught_up_timestamp = now_ms + wall_offset_ms
        partition.observers = [
            _state(observer, wall_offset_ms) for observer in progress.active_observers(now_ms)
        ]
        nodes = [
            Node(
                node_id=voter_id,
                listeners=[Listener(name=config.listener_name, host=address.host, port=address.port)],
            )
            for voter_id, address in sorted(config.voters.items())
        ]
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])], nodes=nodes
    )


def _state(replica: ReplicaProgress, wall_offset_ms: int) -> ReplicaState:
    def wall_ms(time_ms: int | None) -> int:
        return -1 if time_ms is None else time_ms + wall_offset_ms

    return ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=-1 if replica.end_offset is None else replica.end_offset,
        last_fetch_timestamp=wall_ms(replica.last_fetch_ms),
        last_caught_up_timestamp=wall_ms(replica.last_caught_up_ms),
    )
