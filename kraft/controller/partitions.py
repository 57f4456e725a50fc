"""Decisions about existing partitions: leaders, in-sync replicas, log directories of replicas.

Two entries: the cluster changed (`partition_changes`, used when brokers come and go), or a request asked for a change
(AlterPartition, ElectLeaders, AssignReplicasToDirs, ListPartitionReassignments). `partition_change.py` has the rules of
a single change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.kraft.controller.effective_configs import min_insync_replicas, unclean_leader_election
from barnabas.kraft.controller.partition_change import Election, PartitionChange, PartitionRules, Replicas
from barnabas.kraft.controller.partition_notes import Located, note_change
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.metadata.features import DIRECTORIES_SINCE
from barnabas.kraft.metadata.image import (
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
from barnabas.kraft.metadata.replay import merge_change
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_partition as alter
from barnabas.protocol.messages import assign_replicas_to_dirs as assign
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.decisions import DecisionKind

MAX_CHANGES_NOTED = 1000
"""Changes of partitions by one cause that are noted one by one; the others are noted as a number."""
TOPICS_PER_ITEM = 10
PARTITIONS_PER_ITEM = 100
"""Partitions that are looked at in the time of an item."""

LISTED_IN_A_STEP = 2_000
"""Topics and partitions that are looked at in one step for a list of reassignments."""

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


def find_partitions(state: ControllerState, is_wanted: Callable[[PartitionImage], bool]) -> Steps[list[Located]]:
    """All partitions that fit. A scan of 10,000 takes a few milliseconds, so no index is kept."""
    found: list[Located] = []
    for topic in state.image.topics.by_name.values():
        for partition_id, partition in topic.partitions.items():
            if is_wanted(partition):
                found.append((topic, partition_id, partition))
            if state.pace.is_full(per_item=PARTITIONS_PER_ITEM):
                yield None
    return found


def leads_any(state: ControllerState, broker_id: int) -> Steps[bool]:
    """True if the broker leads a partition."""
    return bool((yield from find_partitions(state, lambda it: it.leader == broker_id)))


def partitions_in_isr(state: ControllerState, *broker_ids: int) -> Steps[list[Located]]:
    """Partitions with any of these brokers in the ISR; first those that they lead, which nobody can use meanwhile."""
    wanted = frozenset(broker_ids)
    found = yield from find_partitions(state, lambda it: not wanted.isdisjoint(it.isr))
    led = [it for it in found if it[2].leader in wanted]
    return led + [it for it in found if it[2].leader not in wanted] if led else found


def partitions_in_isr_or_elr(state: ControllerState, broker_id: int) -> Steps[list[Located]]:
    return find_partitions(state, lambda it: broker_id in it.isr or broker_id in it.elr)


def leaderless_partitions(state: ControllerState) -> Steps[list[Located]]:
    return find_partitions(state, lambda it: it.leader == NO_LEADER)


@dataclass(frozen=True, slots=True)
class BrokerMoves:
    """Changes of brokers that come with changes of their partitions; broker ids, or NO_LEADER."""

    leaving: Replicas = ()
    """They leave ISRs together and may not lead, although the image still has them as active."""
    returning: Replicas = ()
    """They may lead, although the image still has them as fenced."""
    restarted_uncleanly: int = NO_LEADER
    """It leaves ISRs and ELRs: its log may lack records that it had acknowledged."""
    directories: tuple[bytes, ...] = ()
    """Log directories with which `restarted_uncleanly` came back."""


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """The log directory of a new replica on this registered broker: known in advance only if it has a single one."""
    directories = image.cluster.brokers[broker_id].log_directories
    if image.features.metadata_version < DIRECTORIES_SINCE or not directories:
        return MIGRATING_DIRECTORY
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY


def change_of(state: ControllerState, located: Located, moves: BrokerMoves | None = None) -> PartitionChange:
    """An empty change of one partition under the rules that hold now."""
    topic, partition_id, partition = located
    image = state.image
    rules = PartitionRules(
        may_lead=_who_may_lead(image, partition, moves or BrokerMoves()),
        has_room=lambda broker_id: has_room(state, partition, broker_id),
        default_directory=lambda broker_id: default_directory(image, broker_id),
        min_insync_replicas=min_insync_replicas(state, topic),
        elr_enabled=image.features.elr_enabled,
        metadata_version=image.features.metadata_version,
    )
    return PartitionChange(topic.id, partition_id, partition, rules)


def has_room(state: ControllerState, partition: PartitionImage, broker_id: int) -> bool:
    """True if the log directory of a replica has room, as far as its broker reported."""
    session = state.sessions.get(broker_id)
    if session is None or not session.full_directories or broker_id not in partition.replicas:
        return True
    broker = state.image.cluster.brokers.get(broker_id)
    everywhere = broker is not None and all(it in session.full_directories for it in broker.log_directories)
    return not everywhere and partition.directory_of(broker_id) not in session.full_directories


def _who_may_lead(image: MetadataImage, partition: PartitionImage, moves: BrokerMoves) -> Callable[[int], bool]:
    brokers = image.cluster.brokers

    def may_lead(broker_id: int) -> bool:
        broker = brokers.get(broker_id)
        if broker is None or broker_id in (*moves.leaving, moves.restarted_uncleanly):
            return False
        if not broker.active and broker_id not in moves.returning:
            return False
        return broker_id in partition.replicas and broker.has_online_directory(partition.directory_of(broker_id))

    return may_lead


def partition_changes(
    state: ControllerState, cause: str, partitions: Iterable[Located], moves: BrokerMoves
) -> Steps[list[Message]]:
    """Records that take leaving brokers out of ISRs and elect leaders where that is needed or newly possible."""
    records: list[Message] = []
    gone = (*moves.leaving, moves.restarted_uncleanly)
    brokers = tuple(f"broker {it}" for it in (*gone, *moves.returning) if it != NO_LEADER)
    noted = 0
    for located in partitions:
        topic, _, partition = located
        change = change_of(state, located, moves)
        if unclean_leader_election(state, topic.name) and not partition.awaits_decision:
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
            if noted < MAX_CHANGES_NOTED:
                note_change(state, located, record, cause, also=brokers)
                noted += 1
        if state.pace.is_full():
            yield None
    if noted < len(records):
        for broker in brokers:
            text = f"{len(records) - noted} more partitions change"
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
) -> Steps[ControllerResult[alter.AlterPartitionResponse]]:
    """A leader proposes ISRs. Each is accepted only if the leader knows the current state of the partition (compare
    and set on the partition epoch) and every member is alive in the same incarnation that the leader saw."""
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
            if state.pace.is_full():
                yield None
            refusal = _refusal(state, request.broker_id, topic, wanted)
            if refusal is not None:
                answer.partitions.append(_altered(wanted, refusal))
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
            # The proposal completed a reassignment that removes this leader: it is done, but the leader has changed.
            return _altered(wanted, ErrorCode.NEW_LEADER_ELECTED)
    return alter.ResponsePartitionData(
        partition_index=partition_id,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _refusal(
    state: ControllerState, broker_id: int, topic: TopicImage, wanted: alter.RequestPartitionData
) -> ErrorCode | None:
    """The error of a proposal; None if it is accepted."""
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The broker has read more than this controller, so another one is active by now.
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [it.broker_id for it in wanted.new_isr_with_epochs]
    if broker_id not in isr or len(set(isr)) != len(isr) or any(it not in partition.replicas for it in isr):
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state not in (LEADER_RECOVERED, LEADER_RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == LEADER_RECOVERING and len(isr) > 1:
        return ErrorCode.INVALID_REQUEST
    if partition.leader_recovery_state == LEADER_RECOVERED != wanted.leader_recovery_state:
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(state, partition, member) for member in wanted.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _is_eligible(state: ControllerState, partition: PartitionImage, member: alter.BrokerState) -> bool:
    """True if a replica may be in the ISR (KIP-841, KIP-903)."""
    broker = state.image.cluster.brokers.get(member.broker_id)
    if broker is None or not broker.active or member.broker_epoch not in (-1, broker.epoch):
        return False
    return member.broker_id in partition.isr or has_room(state, partition, member.broker_id)


# ElectLeaders (KIP-183, KIP-460)


# AssignReplicasToDirs (KIP-858)


def assign_replicas_to_dirs(
    state: ControllerState, request: assign.AssignReplicasToDirsRequest, version: int
) -> Steps[ControllerResult[assign.AssignReplicasToDirsResponse]]:
    """A broker reports the directories of its replicas. Replicas in a directory that is offline cannot lead or be in
    sync."""
    image = state.image
    if image.features.metadata_version < DIRECTORIES_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
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
                if state.pace.is_full():
                    yield None
                code = _assign(state, topic, wanted.partition_index, (broker.id, directory.id), records)
                topic_answer.partitions.append(
                    assign.ResponsePartitionData(partition_index=wanted.partition_index, error_code=code)
                )
                if code is ErrorCode.NONE and not broker.has_online_directory(directory.id):
                    offline[(wanted_topic.topic_id, wanted.partition_index)] = None
    if offline:
        assigned = yield from state.after(records)
        located: list[Located] = []
        for topic_id, partition_id in offline:
            topic = assigned.image.topics.by_id[topic_id]
            located.append((topic, partition_id, topic.partitions[partition_id]))
        cause = f"its log directory on broker {broker.id} is offline"
        records += yield from partition_changes(assigned, cause, located, BrokerMoves(leaving=(broker.id,)))
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
) -> Stepwise[ListPartitionReassignmentsResponse]:
    """Partitions that are being reassigned, of the requested topics or of all."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    every = image.topics.by_name
    wanted: Iterable[tuple[str, Iterable[int]]] = ((topic.name, topic.partitions) for topic in every.values())
    if request.topics is not None:
        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics)
    seen = 0
    for name, partition_ids in wanted:
        answer = OngoingTopicReassignment(name=name)
        known = every[name].partitions if name in every else {}
        seen += 1
        for partition_id in partition_ids:
            seen += 1
            if seen >= LISTED_IN_A_STEP:
                seen = 0
                yield
            partition = known.get(partition_id)
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
