"""Reassignments of partitions (KIP-455, KIP-860): begun and cancelled here, finished by a change of the ISR.

A reassignment adds its new replicas to the list at once and marks the replicas to add and to remove. The new
replicas catch up; the AlterPartition that brings the last of them into the ISR also drops the old ones
(`partition_change.py`). Cancelling removes the added ones again.
"""

from __future__ import annotations

from barnabas.kraft.controller.effective_configs import unclean_leader_election
from barnabas.kraft.controller.partition_change import Election, PartitionChange
from barnabas.kraft.controller.partition_notes import Located, note_change
from barnabas.kraft.controller.partitions import change_of
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps, refuse_if_excessive
from barnabas.kraft.controller.topics import check_assignment
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.protocol.schema import Message

REPLICAS_PER_ITEM = 100
"""Replicas of an assignment that are looked at in the time of an item."""


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, version: int
) -> Steps[ControllerResult[AlterPartitionReassignmentsResponse]]:
    """Begin, replace or (replicas null) cancel reassignments, each partition by itself."""
    response = AlterPartitionReassignmentsResponse(error_message=None)
    response.allow_replication_factor_change = request.allow_replication_factor_change
    records: list[Message] = []
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        response.responses.append(answer)
        for wanted in topic.partitions:
            if state.pace.is_full(1 + len(wanted.replicas or ()) // REPLICAS_PER_ITEM):
                yield None
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            answer.partitions.append(result)
            try:
                located = _find(state, topic.name, wanted.partition_index)
                if wanted.replicas is None:
                    change, cause = _cancelled(state, located), "a client cancelled it"
                else:
                    if not request.allow_replication_factor_change:
                        _check_same_factor(located[2], wanted.replicas)
                    change, cause = _begun(state, located, wanted.replicas), "a client asked for it"
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
                continue
            record = change.build()
            if record is not None:
                records.append(record)
                note_change(state, located, record, cause)
    refuse_if_excessive(len(records))
    return ControllerResult(response, records)


def _find(state: ControllerState, topic_name: str, partition_id: int) -> Located:
    topic = state.image.topics.by_name.get(topic_name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_name}-{partition_id}")
    return topic, partition_id, partition


def _original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """The assignment without the replicas that a reassignment in progress is adding."""
    return tuple(it for it in partition.replicas if it not in partition.adding_replicas)


def _check_same_factor(partition: PartitionImage, wanted: list[int]) -> None:
    target = [it for it in partition.replicas if it not in partition.removing_replicas]
    if len(wanted) != len(target):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(target)} to {len(wanted)}",
        )


def _begun(state: ControllerState, located: Located, wanted: list[int]) -> PartitionChange:
    """A reassignment from the replicas that hold the partition now; it replaces one in progress."""
    check_assignment(state.image, wanted, None)
    partition = located[2]
    original = _original_replicas(partition)
    change = change_of(state, located)
    change.removing_replicas = tuple(sorted(it for it in partition.replicas if it not in wanted))
    change.adding_replicas = tuple(sorted(it for it in wanted if it not in original))
    change.replicas = (*wanted, *change.removing_replicas)
    return change


def _cancelled(state: ControllerState, located: Located) -> PartitionChange:
    topic, _, partition = located
    if not (partition.adding_replicas or partition.removing_replicas):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
    change = change_of(state, located)
    change.replicas = _original_replicas(partition)
    change.isr = tuple(it for it in partition.isr if it in change.replicas)
    change.removing_replicas = change.adding_replicas = ()
    unclean = unclean_leader_election(state, topic.name)
    if unclean:
        change.election = Election.UNCLEAN
    if partition.isr and not change.isr:
        # Only new replicas are in sync: going back to the old ones may lose records.
        if not unclean or not change.replicas:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "none of the original replicas is in sync")
        change.isr = change.replicas[:1]
    return change
