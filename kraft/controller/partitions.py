"""Decisions about existing partitions: who leads, who is in sync, in which directory a replica lies.

Two ways in: the cluster changed (`partition_changes`, used when brokers come and go) and somebody asked
(AlterPartition, ElectLeaders, AssignReplicasToDirs, ListPartitionReassignments). What one change looks like
is in `partition_change.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kraft.controller.effective_configs import min_insync_replicas, unclean_leader_election
from kraft.controller.partition_change import Election, PartitionChange, PartitionRules, Replicas
from kraft.controller.partition_notes import Located, note_change
from kraft.controller.state import ControllerResult, ControllerState
from kraft.metadata.features import DIRECTORIES_SINCE
from kraft.metadata.image import (
    LEADER_RECOVERED,
    LEADER_RECOVERING,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionImage,
    TopicImage,
    directory_is_online,
)
from kraft.metadata.replay import merge_change
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import alter_partition as alter
from protocol.messages import assign_replicas_to_dirs as assign
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.messages.metadata_log import PartitionChangeRecord
from protocol.schema import Message
from runtime.decisions import DecisionKind

log = logging.getLogger("kraft.controller")

MAX_CHANGES_TOLD = 1000
"""So many partitions that change by one cause are told one by one; the others as a number."""

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


def all_partitions(image: MetadataImage) -> Iterator[Located]:
    """Every partition. A scan of 10,000 takes a millisecond or two, so nothing keeps an index up to date."""
    for topic in image.topics.by_name.values():
        for partition_id, partition in topic.partitions.items():
            yield topic, partition_id, partition


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in all_partitions(image))


def partitions_in_isr(image: MetadataImage, *broker_ids: int) -> list[Located]:
    """Those with any of these brokers in the ISR."""
    return [it for it in all_partitions(image) if any(broker_id in it[2].isr for broker_id in broker_ids)]


def partitions_in_isr_or_elr(image: MetadataImage, broker_id: int) -> list[Located]:
    return [it for it in all_partitions(image) if broker_id in it[2].isr or broker_id in it[2].elr]


def leaderless_partitions(image: MetadataImage) -> list[Located]:
    return [it for it in all_partitions(image) if it[2].leader == NO_LEADER]


@dataclass(frozen=True, slots=True)
class BrokerMoves:
    """How brokers are changing while records about their partitions are made; ids, NO_LEADER for nobody."""

    leaving: Replicas = ()
    """Leave ISRs together and lead no more, though the image still has them as active."""
    returning: int = NO_LEADER
    """May lead, though the image still has it as fenced."""
    restarted_uncleanly: int = NO_LEADER
    """Leaves ISRs and ELRs: its log may lack what it had acknowledged."""
    directories: tuple[bytes, ...] = ()
    """What `restarted_uncleanly` came back with."""


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """Where a new replica on this broker will lie: known in advance only if it has a single directory."""
    broker = image.cluster.brokers.get(broker_id)
    if image.features.metadata_version < DIRECTORIES_SINCE:
        return MIGRATING_DIRECTORY
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.log_directories:
        return MIGRATING_DIRECTORY
    return broker.log_directories[0] if len(broker.log_directories) == 1 else UNASSIGNED_DIRECTORY


def change_of(state: ControllerState, located: Located, moves: BrokerMoves | None = None) -> PartitionChange:
    """An empty change of one partition under the rules that hold now."""
    topic, partition_id, partition = located
    image = state.image
    rules = PartitionRules(
        may_lead=_who_may_lead(image, partition, moves or BrokerMoves()),
        default_directory=lambda broker_id: default_directory(image, broker_id),
        min_insync_replicas=min_insync_replicas(state, topic),
        elr_enabled=image.features.elr_enabled,
        metadata_version=image.features.metadata_version,
    )
    return PartitionChange(topic.id, partition_id, partition, rules)


def _who_may_lead(image: MetadataImage, partition: PartitionImage, moves: BrokerMoves) -> Callable[[int], bool]:
    brokers = image.cluster.brokers

    def may_lead(broker_id: int) -> bool:
        broker = brokers.get(broker_id)
        if broker is None or broker_id in (*moves.leaving, moves.restarted_uncleanly):
            return False
        if not broker.active and broker_id != moves.returning:
            return False
        return broker_id in partition.replicas and broker.has_online_directory(partition.directory_of(broker_id))

    return may_lead


def partition_changes(
    state: ControllerState, cause: str, partitions: Iterable[Located], moves: BrokerMoves
) -> list[Message]:
    """Take leaving brokers out of ISRs and elect leaders where that is needed or newly possible."""
    records: list[Message] = []
    gone = (*moves.leaving, moves.restarted_uncleanly)
    brokers = tuple(f"broker {it}" for it in (*gone, moves.returning) if it != NO_LEADER)
    told = 0
    for located in partitions:
        topic, _, partition = located
        change = change_of(state, located, moves)
        if unclean_leader_election(state, topic.name):
            change.election = Election.UNCLEAN
        if moves.restarted_uncleanly != NO_LEADER:
            change.unclean_restarts = (moves.restarted_uncleanly,)
            directory = partition.directory_of(moves.restarted_uncleanly)
            if not directory_is_online(directory, moves.directories):
                change.emptied = change.unclean_restarts
        change.isr = tuple(it for it in partition.isr if it not in gone)
        record = change.build()
        if record is not None:
            records.append(record)
            if told < MAX_CHANGES_TOLD:
                note_change(state, located, record, cause, also=brokers)
                told += 1
    if told < len(records):
        for broker in brokers:
            text = f"{len(records) - told} more partitions change"
            state.notes.note(DecisionKind.ELECTION, broker, text, cause=cause, partitions=len(records))
    return records


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    """Raises KafkaError STALE_BROKER_EPOCH unless this is the registered incarnation."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}",
        )


# AlterPartition (KIP-497, KIP-704, KIP-841, KIP-903)


def alter_partition(
    state: ControllerState, request: alter.AlterPartitionRequest, version: int
) -> ControllerResult[alter.AlterPartitionResponse]:
    """A leader proposes ISRs. Each is taken only if the leader knows the partition as it is (compare and set
    on the partition epoch) and every member is alive in the very incarnation that the leader saw."""
    check_broker_epoch(state.image, request.broker_id, request.broker_epoch)
    response = alter.AlterPartitionResponse()
    records: list[Message] = []
    for wanted_topic in request.topics:
        answer = alter.ResponseTopicData(topic_id=wanted_topic.topic_id)
        response.topics.append(answer)
        topic = state.image.topics.by_id.get(wanted_topic.topic_id)
        for wanted in wanted_topic.partitions:
            if version < 3:
                wanted.new_isr_with_epochs = [alter.BrokerState(broker_id=it) for it in wanted.new_isr]
            if topic is None:
                answer.partitions.append(_altered(wanted, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            refusal = _why_not_alter(state.image, request.broker_id, topic, wanted)
            if refusal is not None:
                code, reason = refusal
                log.info(
                    "AlterPartition of %s-%d by broker %d refused with %s: %s",
                    topic.name,
                    wanted.partition_index,
                    request.broker_id,
                    code.name,
                    reason,
                )
                answer.partitions.append(_altered(wanted, code))
                continue
            answer.partitions.append(_alter(state, request.broker_id, topic, wanted, records))
    return ControllerResult(response, records)


def _altered(wanted: alter.RequestPartitionData, code: ErrorCode) -> alter.ResponsePartitionData:
    return alter.ResponsePartitionData(partition_index=wanted.partition_index, error_code=code)


def _alter(
    state: ControllerState,
    broker_id: int,
    topic: TopicImage,
    wanted: alter.RequestPartitionData,
    records: list[Message],
) -> alter.ResponsePartitionData:
    partition_id = wanted.partition_index
    partition = topic.partitions[partition_id]
    change = change_of(state, (topic, partition_id, partition))
    if unclean_leader_election(state, topic.name):
        change.election = Election.UNCLEAN
    change.isr = tuple(it.broker_id for it in wanted.new_isr_with_epochs)
    change.leader_recovery_state = wanted.leader_recovery_state
    record = change.build()
    if record is not None:
        records.append(record)
        cause = f"its leader, broker {broker_id}, asked for it"
        note_change(state, (topic, partition_id, partition), record, cause)
        partition = merge_change(partition, record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The proposal completed a reassignment that takes the leader away: done, but not as it thinks.
            return _altered(wanted, ErrorCode.NEW_LEADER_ELECTED)
    return alter.ResponsePartitionData(
        partition_index=partition_id,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _why_not_alter(
    image: MetadataImage, broker_id: int, topic: TopicImage, wanted: alter.RequestPartitionData
) -> tuple[ErrorCode, str] | None:
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The broker knows more than we do, so somebody else is the active controller by now.
        return ErrorCode.NOT_CONTROLLER, "the broker has a later epoch"
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {partition.leader_epoch}"
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST, f"the leader is {partition.leader}"
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {partition.partition_epoch}"
    isr = [it.broker_id for it in wanted.new_isr_with_epochs]
    if broker_id not in isr or len(set(isr)) != len(isr) or any(it not in partition.replicas for it in isr):
        return ErrorCode.INVALID_REQUEST, f"{isr} is no ISR of replicas {list(partition.replicas)}"
    if wanted.leader_recovery_state not in (LEADER_RECOVERED, LEADER_RECOVERING):
        return ErrorCode.INVALID_REQUEST, f"unknown leader recovery state {wanted.leader_recovery_state}"
    if wanted.leader_recovery_state == LEADER_RECOVERING and len(isr) > 1:
        return ErrorCode.INVALID_REQUEST, "nobody may join while the leader recovers"
    if partition.leader_recovery_state == LEADER_RECOVERED != wanted.leader_recovery_state:
        return ErrorCode.INVALID_REQUEST, "a leader that recovered does not recover again"
    for member in wanted.new_isr_with_epochs:
        reason = _why_ineligible(image, member)
        if reason is not None:
            return ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} {reason}"
    return None


def _why_ineligible(image: MetadataImage, member: alter.BrokerState) -> str | None:
    broker = image.cluster.brokers.get(member.broker_id)
    if broker is None:
        return "is not registered"
    if broker.in_controlled_shutdown:
        return "is shutting down"
    if broker.fenced:
        return "is fenced"
    if member.broker_epoch not in (-1, broker.epoch):
        return f"has epoch {broker.epoch}, not {member.broker_epoch}"
    return None


# ElectLeaders (KIP-183, KIP-460)


def elect_leaders(
    state: ControllerState, request: ElectLeadersRequest, version: int
) -> ControllerResult[ElectLeadersResponse]:
    """Preferred (type 0) or unclean (type 1) elections of some partitions, or of all that need one."""
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}")
    every = request.topic_partitions is None
    wanted = request.topic_partitions
    if wanted is None:
        wanted = [
            TopicPartitions(topic=topic.name, partitions=list(topic.partitions))
            for topic in state.image.topics.by_name.values()
        ]
    response = ElectLeadersResponse()
    records: list[Message] = []
    for topic in wanted:
        answer = ReplicaElectionResult(topic=topic.topic)
        for partition_id in topic.partitions:
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
    """One election; a change goes to `records`."""
    topic = state.image.topics.by_name.get(topic_name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_name}-{partition_id}"
    if election_type == PREFERRED_ELECTION and partition.leader == partition.preferred_leader:
        return ErrorCode.ELECTION_NOT_NEEDED, "the preferred leader leads already"
    if election_type == UNCLEAN_ELECTION and partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, "there is a leader"
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


# AssignReplicasToDirs (KIP-858)


def assign_replicas_to_dirs(
    state: ControllerState, request: assign.AssignReplicasToDirsRequest, version: int
) -> ControllerResult[assign.AssignReplicasToDirsResponse]:
    """A broker tells where its replicas lie. Those in a directory that is offline cannot lead or be in
    sync."""
    image = state.image
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.cluster.brokers[request.broker_id]
    response = assign.AssignReplicasToDirsResponse()
    records: list[Message] = []
    offline: dict[tuple[bytes, int], None] = {}
    for directory in request.directories:
        directory_answer = assign.ResponseDirectoryData(id=directory.id)
        response.directories.append(directory_answer)
        for wanted_topic in directory.topics:
            topic_answer = assign.ResponseTopicData(topic_id=wanted_topic.topic_id)
            directory_answer.topics.append(topic_answer)
            topic = image.topics.by_id.get(wanted_topic.topic_id)
            for wanted in wanted_topic.partitions:
                code = _assign(state, topic, wanted.partition_index, (broker.id, directory.id), records)
                topic_answer.partitions.append(
                    assign.ResponsePartitionData(partition_index=wanted.partition_index, error_code=code)
                )
                if code is ErrorCode.NONE and not broker.has_online_directory(directory.id):
                    offline[(wanted_topic.topic_id, wanted.partition_index)] = None
    if offline:
        assigned = state.after(records)
        located: list[Located] = []
        for topic_id, partition_id in offline:
            topic = assigned.image.topics.by_id[topic_id]
            located.append((topic, partition_id, topic.partitions[partition_id]))
        cause = f"broker {broker.id} has it in a directory that is offline"
        records += partition_changes(assigned, cause, located, BrokerMoves(leaving=(broker.id,)))
    return ControllerResult(response, records)


def _assign(
    state: ControllerState,
    topic: TopicImage | None,
    partition_id: int,
    place: tuple[int, bytes],
    records: list[Message],
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(partition_id)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker_id, directory = place
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    index = partition.replicas.index(broker_id)
    if partition.directories[index] != directory:
        directories = list(partition.directories)
        directories[index] = directory
        records.append(PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id, directories=directories))
    return ErrorCode.NONE


# ListPartitionReassignments (KIP-455)


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Partitions whose replicas are moving, of the topics asked for or of all."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    wanted = request.topics
    if wanted is None:
        wanted = [
            ListPartitionReassignmentsTopics(name=topic.name, partition_indexes=list(topic.partitions))
            for topic in image.topics.by_name.values()
        ]
    for topic in wanted:
        answer = OngoingTopicReassignment(name=topic.name)
        for partition_id in topic.partition_indexes:
            partition = image.topics.partition(topic.name, partition_id)
            if partition is not None and (partition.adding_replicas or partition.removing_replicas):
                answer.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=partition_id,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if answer.partitions:
            response.topics.append(answer)
    return response
