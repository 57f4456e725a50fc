"""Creating, growing and deleting topics (KIP-4, KIP-195, KIP-464, KIP-516, KIP-525).

Each topic of a request succeeds or fails by itself; what succeeds is written in one atomic batch. A topic is
created with all its records at once: its name and id, its configs, its partitions.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping

from kraft.controller.configs import config_records, new_topic_configs
from kraft.controller.effective_configs import broker_layers
from kraft.controller.partitions import default_directory
from kraft.controller.placement import UsableBroker, place_replicas
from kraft.controller.state import (
    ControllerResult,
    ControllerState,
    refuse_if_excessive,
)
from kraft.metadata.image import (
    LEADER_RECOVERED,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraft.metadata.snapshot import partition_record
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.messages.metadata_log import RemoveTopicRecord, TopicRecord
from protocol.primitives import ZERO_UUID, uuid_to_string
from protocol.schema import Message
from runtime.decisions import DecisionKind
from runtime.uuids import random_uuid
from settings.describe import describe_topic_configs

log = logging.getLogger("kraft.controller")

METADATA_TOPIC = "__cluster_metadata"
LONGEST_TOPIC_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
MAX_PARTITIONS_PER_REQUEST = 10_000

ToldConfigs = dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]]
"""What CreateTopics reports of topics with the same overrides."""


def invalid_topic_name(name: str) -> str | None:
    """Why no topic can be called so; None if one can."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > LONGEST_TOPIC_NAME:
        return f"a topic name has at most {LONGEST_TOPIC_NAME} characters, this one {len(name)}"
    if not _LEGAL_NAME.fullmatch(name):
        return "a topic name consists of letters, digits, '.', '_' and '-' of ASCII"
    return None


# CreateTopics


def create_topics(
    state: ControllerState, request: CreateTopicsRequest, version: int
) -> ControllerResult[CreateTopicsResponse]:
    """Create each topic that is fine, tell what is wrong with the others."""
    _refuse_too_many_partitions(state, request)
    response = CreateTopicsResponse()
    records: list[Message] = []
    occurrences = Counter(topic.name for topic in request.topics)
    normal_names = {_normal_name(name): name for name in state.image.topics.by_name}
    told: ToldConfigs = {}
    for topic in request.topics:
        if occurrences[topic.name] > 1:
            continue
        try:
            _check_new_name(state.image, topic.name, normal_names)
            result, topic_records = _create_topic(state, topic, told)
        except KafkaError as error:
            result = CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            log.info("CreateTopics: %s refused with %s: %s", topic.name, error.code.name, error.message)
        else:
            records += topic_records
            normal_names[_normal_name(topic.name)] = topic.name
        response.topics.append(result)
    for name in [name for name, count in occurrences.items() if count > 1]:
        response.topics.append(
            CreatableTopicResult(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="the topic is in the request more than once",
            )
        )
    refuse_if_excessive(len(records))
    return ControllerResult(response, [] if request.validate_only else records)


def _refuse_too_many_partitions(state: ControllerState, request: CreateTopicsRequest) -> None:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += state.defaults.num_partitions
        else:
            total += max(0, topic.num_partitions)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{total} partitions in one request, more than {MAX_PARTITIONS_PER_REQUEST}",
        )


def _configs_of(state: ControllerState, overrides: Mapping[str, str], told: ToldConfigs) -> list[CreatableTopicConfigs]:
    """All configs of a topic with these overrides, made once for all topics of a request that have the same."""
    key = frozenset(overrides.items())
    if key not in told:
        told[key] = [
            CreatableTopicConfigs(name=it.name, value=it.value, config_source=it.source, is_sensitive=it.sensitive)
            for it in describe_topic_configs(overrides, broker_layers(state.image, state.defaults))
        ]
    return told[key]


def _create_topic(
    state: ControllerState, topic: CreatableTopic, told_configs: ToldConfigs
) -> tuple[CreatableTopicResult, list[Message]]:
    overrides = new_topic_configs(state, topic)
    partitions = _assigned_partitions(state, topic) if topic.assignments else _placed_partitions(state, topic)
    topic_id = random_uuid(state.chance)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=_configs_of(state, overrides, told_configs),
    )
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += config_records((TOPIC_RESOURCE, topic.name), overrides)
    records += [partition_record(topic_id, index, it) for index, it in enumerate(partitions)]
    factor = len(partitions[0].replicas)
    told = f"topic {topic.name} is made with {len(partitions)} partitions of {factor} replicas"
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"topic {topic.name}",
        told,
        cause="CreateTopics asked for it",
        partitions=len(partitions),
        replication_factor=factor,
        leaders=[it.leader for it in partitions],
        topic_id=uuid_to_string(topic_id),
    )
    return result, records


def _normal_name(name: str) -> str:
    """Metrics write dots as underscores; two topics must not share a metric."""
    return name.replace(".", "_")


def _check_new_name(image: MetadataImage, name: str, normal_names: Mapping[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the controllers' own")
    reason = invalid_topic_name(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in image.topics.by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    other = normal_names.get(_normal_name(name))
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name {name} would clash with topic {other}")


def _assigned_partitions(state: ControllerState, topic: CreatableTopic) -> list[PartitionImage]:
    """The partitions of a topic whose replicas the request names."""
    if topic.replication_factor != -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "with replicas assigned by hand the replication factor must be -1")
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "with replicas assigned by hand the number of partitions must be -1"
        )
    by_index: dict[int, PartitionImage] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise _bad_assignment(f"partition {assignment.partition_index} is assigned twice")
        check_assignment(state.image, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        by_index[assignment.partition_index] = _new_partition(
            state.image, assignment.broker_ids, ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
    if sorted(by_index) != list(range(len(by_index))):
        raise _bad_assignment("partitions must be numbered from 0 without a gap")
    return [by_index[index] for index in range(len(by_index))]


def _placed_partitions(state: ControllerState, topic: CreatableTopic) -> list[PartitionImage]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "the replication factor must be positive, or -1 for the cluster's default",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "the number of partitions must be positive, or -1 for the cluster's default",
        )
    defaults = state.defaults
    count = defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = topic.replication_factor
    factor = defaults.default_replication_factor if factor == -1 else factor
    return _place(state, count, factor)


def _place(state: ControllerState, count: int, replication_factor: int) -> list[PartitionImage]:
    assignments = place_replicas(usable_brokers(state.image), count, replication_factor, state.chance)
    return [_new_partition(state.image, replicas, ErrorCode.INVALID_REPLICATION_FACTOR) for replicas in assignments]


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Brokers that may get new replicas: not on their way out, and with a directory that is not cordoned. A fenced
    broker has left: it is a last resort, whether it was stopped or killed.
    """
    return [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for _, broker in sorted(image.cluster.brokers.items())
        if (broker.fenced or not broker.in_controlled_shutdown)
        and (
            not broker.log_directories
            or any(it not in broker.cordoned_log_directories for it in broker.log_directories)
        )
    ]


def _new_partition(
    image: MetadataImage, replicas: tuple[int, ...] | list[int], none_active: ErrorCode
) -> PartitionImage:
    """A new partition; its active replicas are in sync, for there is nothing to lag behind."""
    brokers = image.cluster.brokers
    isr = tuple(it for it in replicas if it in brokers and brokers[it].active)
    if not isr:
        raise KafkaError(none_active, f"none of the brokers {list(replicas)} is active")
    return PartitionImage(
        replicas=tuple(replicas),
        directories=tuple(default_directory(image, it) for it in replicas),
        isr=isr,
        leader=isr[0],
        leader_recovery_state=LEADER_RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
    )


def check_assignment(image: MetadataImage, broker_ids: list[int], replication_factor: int | None) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT unless these are distinct registered brokers, as many as
    the other partitions have."""
    if not broker_ids:
        raise _bad_assignment("a partition is assigned no replicas")
    for broker_id in sorted(broker_ids):
        if broker_id not in image.cluster.brokers:
            raise _bad_assignment(f"there is no broker {broker_id}")
    if len(set(broker_ids)) != len(broker_ids):
        raise _bad_assignment(f"a broker is there more than once in {broker_ids}")
    if replication_factor is not None and len(broker_ids) != replication_factor:
        raise _bad_assignment(
            f"{broker_ids} are {len(broker_ids)} replicas, other partitions have {replication_factor}"
        )


def _bad_assignment(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


# CreatePartitions


def create_partitions(
    state: ControllerState, request: CreatePartitionsRequest, version: int
) -> ControllerResult[CreatePartitionsResponse]:
    """Grow topics to the counts asked for; the new partitions are placed like those of a new topic."""
    response = CreatePartitionsResponse()
    records: list[Message] = []
    occurrences = Counter(topic.name for topic in request.topics)
    for name in [name for name, count in occurrences.items() if count > 1]:
        response.results.append(
            CreatePartitionsTopicResult(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="the topic is in the request more than once",
            )
        )
    for topic in request.topics:
        if occurrences[topic.name] > 1:
            continue
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            records += _grow(state, topic)
        except KafkaError as error:
            if error.code is ErrorCode.POLICY_VIOLATION:
                raise
            result.error_code, result.error_message = error.code, error.message
        response.results.append(result)
    refuse_if_excessive(len(records))
    return ControllerResult(response, [] if request.validate_only else records)


def _grow(state: ControllerState, wanted: CreatePartitionsTopic) -> list[Message]:
    topic = state.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name}")
    existing = len(topic.partitions)
    additional = wanted.count - existing
    if additional <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {wanted.name} has {existing} partition(s) already, {wanted.count} would be no increase",
        )
    refuse_if_excessive(additional)
    partitions = _additional_partitions(state, topic, wanted, additional)
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"topic {topic.name}",
        f"topic {topic.name} grows from {existing} to {wanted.count} partitions",
        cause="CreatePartitions asked for it",
        partitions=wanted.count,
        leaders=[it.leader for it in partitions],
    )
    return [partition_record(topic.id, existing + index, it) for index, it in enumerate(partitions)]


def _additional_partitions(
    state: ControllerState, topic: TopicImage, wanted: CreatePartitionsTopic, additional: int
) -> list[PartitionImage]:
    replication_factor = len(next(iter(topic.partitions.values())).replicas)
    if wanted.assignments is None:
        return _place(state, additional, replication_factor)
    if len(wanted.assignments) != additional:
        raise _bad_assignment(f"{additional} partition(s) are added, but {len(wanted.assignments)} assignment(s) given")
    partitions: list[PartitionImage] = []
    for assignment in wanted.assignments:
        check_assignment(state.image, assignment.broker_ids, replication_factor)
        partitions.append(_new_partition(state.image, assignment.broker_ids, ErrorCode.INVALID_REPLICA_ASSIGNMENT))
    return partitions


# DeleteTopics


def delete_topics(
    state: ControllerState, request: DeleteTopicsRequest, version: int
) -> ControllerResult[DeleteTopicsResponse]:
    """Delete topics named by name or id. Brokers remove the data once they see the record."""
    if not state.defaults.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code, "delete.topic.enable is false")
    by_name = state.image.topics.by_name
    by_id = state.image.topics.by_id
    response = DeleteTopicsResponse()
    refused = response.responses
    names = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for wanted in request.topics:
        if wanted.name is not None and wanted.topic_id != ZERO_UUID:
            refused.append(_not_deleted(wanted.name, wanted.topic_id, "both name and id are given"))
        elif wanted.name is not None:
            names[wanted.name] += 1
        elif wanted.topic_id != ZERO_UUID:
            ids[wanted.topic_id] += 1
        else:
            refused.append(_not_deleted(None, ZERO_UUID, "neither name nor id is given"))
    doomed: dict[bytes, str | None] = {}
    for topic_id, count in ids.items():
        if count > 1:
            refused.append(_not_deleted(None, topic_id, "the id is in the request more than once"))
        elif topic_id not in by_id:
            refused.append(
                DeletableTopicResult(
                    name=None,
                    topic_id=topic_id,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    error_message="there is no topic with this id",
                )
            )
        else:
            doomed[topic_id] = by_id[topic_id].name
    for name, count in names.items():
        topic = by_name.get(name)
        if count > 1:
            refused.append(_not_deleted(name, ZERO_UUID, "the name is in the request more than once"))
        elif topic is None:
            refused.append(
                DeletableTopicResult(
                    name=name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=f"there is no topic {name}",
                )
            )
        elif topic.id in ids:
            doomed.pop(topic.id, None)
            refused.append(_not_deleted(name, topic.id, "the topic is named by its id, too"))
        else:
            doomed[topic.id] = name
    records: list[Message] = []
    for topic_id, doomed_name in doomed.items():
        state.notes.note(
            DecisionKind.LIFECYCLE,
            f"topic {doomed_name}",
            f"topic {doomed_name} is deleted",
            cause="DeleteTopics asked for it",
            topic_id=uuid_to_string(topic_id),
        )
        records.append(RemoveTopicRecord(topic_id=topic_id))
        response.responses.append(DeletableTopicResult(name=doomed_name, topic_id=topic_id))
    refuse_if_excessive(len(records))
    return ControllerResult(response, records)


def _not_deleted(name: str | None, topic_id: bytes, reason: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=reason
    )
