"""Core: ElectLeaders, and leader elections that partitions need by themselves."""

from __future__ import annotations

from barnabas.kraft.controller.partition_change import Election
from barnabas.kraft.controller.partition_notes import note_change
from barnabas.kraft.controller.partitions import PREFERRED_ELECTION, TOPICS_PER_ITEM, UNCLEAN_ELECTION, change_of
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.metadata.image import (
    NO_LEADER,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from barnabas.protocol.schema import Message


def elect_leaders(
    state: ControllerState, request: ElectLeadersRequest, version: int
) -> Steps[ControllerResult[ElectLeadersResponse]]:
    """Preferred (type 0) or unclean (type 1) elections of some partitions, or of all that need one."""
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}")
    every = request.topic_partitions is None
    wanted = request.topic_partitions
    if wanted is None:
        wanted = []
        for known in state.image.topics.by_name.values():
            wanted.append(TopicPartitions(topic=known.name, partitions=list(known.partitions)))
            if state.pace.is_full(per_item=TOPICS_PER_ITEM):
                yield None
    response = ElectLeadersResponse()
    records: list[Message] = []
    for topic in wanted:
        answer = ReplicaElectionResult(topic=topic.topic)
        for partition_id in topic.partitions:
            if state.pace.is_full():
                yield None
            code, reason = elect_leader(state, topic.topic, partition_id, request.election_type, records)
            if every and code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            answer.partition_result.append(
                PartitionResult(partition_id=partition_id, error_code=code, error_message=reason)
            )
        response.replica_election_results.append(answer)
    return ControllerResult(response, records)


def elect_leader(
    state: ControllerState,
    topic_name: str,
    partition_id: int,
    election_type: int,
    records: list[Message],
    wanted_by: str = "a client asked for it",
) -> tuple[ErrorCode, str | None]:
    """One election; its change is added to `records`."""
    topic = state.image.topics.by_name.get(topic_name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_name}-{partition_id}"
    if election_type == PREFERRED_ELECTION and partition.leader == partition.preferred_leader:
        return ErrorCode.ELECTION_NOT_NEEDED, "the preferred leader leads already"
    if election_type == UNCLEAN_ELECTION and partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, "the partition has a leader"
    change = change_of(state, (topic, partition_id, partition))
    preferred = election_type == PREFERRED_ELECTION
    change.election = Election.PREFERRED if preferred else Election.UNCLEAN
    record = change.build()
    if record is None:
        if preferred:
            return (
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "the preferred leader is not in sync or not active",
            )
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is active"
    records.append(record)
    cause = f"{'a preferred' if preferred else 'an unclean'} election, {wanted_by}"
    note_change(state, (topic, partition_id, partition), record, cause)
    return ErrorCode.NONE, None
