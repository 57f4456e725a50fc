"""Creating, growing and deleting topics (KIP-4, KIP-195, KIP-464, KIP-516, KIP-525).

Each topic of a request succeeds or fails by itself; the records of all that succeed are one atomic batch. A topic is
created with all its records at once: its name and id, its configs, its partitions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from barnabas.kraft.controller.configs import check_topic_configs, config_records, requested_configs
from barnabas.kraft.controller.effective_configs import broker_layers
from barnabas.kraft.controller.partitions import default_directory
from barnabas.kraft.controller.placement import UsableBroker, place_replicas
from barnabas.kraft.controller.state import (
    ControllerResult,
    ControllerState,
    Steps,
    refuse_if_excessive,
)
from barnabas.kraft.metadata.image import (
    LEADER_RECOVERED,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.kraft.metadata.snapshot import partition_record
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.metadata_log import TopicRecord
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind
from barnabas.runtime.uuids import random_uuid
from barnabas.settings.describe import describe_topic_configs

METADATA_TOPIC = "__cluster_metadata"
LONGEST_TOPIC_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_REPLICAS = 1000
"""Replicas that an assignment may name."""
CONFIGS_ITEMS = 10
"""Items that the check and the description of a topic's configs count as."""
NAMES_PER_ITEM = 100
"""Names that are looked through in the time of an item."""

ReportedConfigs = dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]]
"""Configs as CreateTopics reports them, by overrides: topics with the same overrides share them."""


def invalid_topic_name(name: str) -> str | None:
    """Reason why no topic can have this name; None if it is legal."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic name cannot be {name!r}"
    if len(name) > LONGEST_TOPIC_NAME:
        return f"a topic name has at most {LONGEST_TOPIC_NAME} characters; got {len(name)}"
    if not _LEGAL_NAME.fullmatch(name):
        return "a topic name consists of letters, digits, '.', '_' and '-' of ASCII"
    return None


# CreateTopics


def create_topics(
    state: ControllerState, request: CreateTopicsRequest, version: int
) -> Steps[ControllerResult[CreateTopicsResponse]]:
    """Create each topic that can be created, report the error of each other one."""
    yield from _refuse_too_many_partitions(state, request)
    response = CreateTopicsResponse()
    records: list[Message] = []
    occurrences = Counter(topic.name for topic in request.topics)
    if state.pace.is_full(len(occurrences), per_item=NAMES_PER_ITEM):
        yield None
    normal_names = yield from _normal_names(state, occurrences)
    reported: ReportedConfigs = {}
    for topic in request.topics:
        if occurrences[topic.name] > 1:
            continue
        try:
            _check_new_name(state.image, topic.name, normal_names)
            result, topic_records = yield from _create_topic(state, topic, reported)
        except KafkaError as error:
            result = CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
        else:
            records += topic_records
            normal_names[_normal_name(topic.name)] = topic.name
        response.topics.append(result)
        if state.pace.is_full():
            yield None
    for name in [name for name, count in occurrences.items() if count > 1]:
        if state.pace.is_full():
            yield None
        response.topics.append(
            CreatableTopicResult(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="the topic is in the request more than once",
            )
        )
    refuse_if_excessive(len(records))
    return ControllerResult(response, [] if request.validate_only else records)


def _refuse_too_many_partitions(state: ControllerState, request: CreateTopicsRequest) -> Steps[None]:
    total = 0
    for topic in request.topics:
        if state.pace.is_full(per_item=NAMES_PER_ITEM):
            yield None
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += state.defaults.num_partitions
        else:
            total += max(0, topic.num_partitions)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the request names {total} partitions; at most {MAX_PARTITIONS_PER_REQUEST} are allowed",
        )


def _checked_configs(
    state: ControllerState, overrides: Mapping[str, str], reported: ReportedConfigs
) -> Steps[list[CreatableTopicConfigs]]:
    """All configs of a topic with these overrides. Raises KafkaError if one of them is not allowed."""
    key = frozenset(overrides.items())
    if key not in reported:
        check_topic_configs(state, overrides)
        reported[key] = [
            CreatableTopicConfigs(name=it.name, value=it.value, config_source=it.source, is_sensitive=it.sensitive)
            for it in describe_topic_configs(overrides, broker_layers(state.image, state.defaults))
        ]
        if state.pace.is_full(CONFIGS_ITEMS):
            yield None
    return reported[key]


def _create_topic(
    state: ControllerState, topic: CreatableTopic, reported: ReportedConfigs
) -> Steps[tuple[CreatableTopicResult, list[Message]]]:
    overrides = requested_configs(topic)
    configs = yield from _checked_configs(state, overrides, reported)
    if topic.assignments:
        partitions = yield from _assigned_partitions(state, topic)
    else:
        partitions = yield from _placed_partitions(state, topic)
    state.spend(len(partitions))
    topic_id = random_uuid(state.chance)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=configs,
    )
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += config_records((TOPIC_RESOURCE, topic.name), overrides)
    records += yield from _partition_records(state, topic_id, 0, partitions)
    factor = len(partitions[0].replicas)
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"topic {topic.name}",
        f"topic {topic.name} is created with {len(partitions)} partitions of {factor} replicas",
        cause="CreateTopics asked for it",
        partitions=len(partitions),
        replication_factor=factor,
        leaders=[it.leader for it in partitions],
        topic_id=uuid_to_string(topic_id),
    )
    return result, records


def _partition_records(
    state: ControllerState, topic_id: bytes, first_index: int, partitions: Iterable[PartitionImage]
) -> Steps[list[Message]]:
    records: list[Message] = []
    level = state.image.features.metadata_version
    for index, partition in enumerate(partitions, first_index):
        records.append(partition_record(topic_id, index, partition, level))
        if state.pace.is_full():
            yield None
    return records


def _normal_name(name: str) -> str:
    """Metrics write dots as underscores; two topics must not share a metric."""
    return name.replace(".", "_")


def _normal_names(state: ControllerState, wanted: Iterable[str]) -> Steps[dict[str, str]]:
    """Existing topics with which a new one could clash, by normal name."""
    names: dict[str, str] = {}
    if any("." in name or "_" in name for name in wanted):
        for name in state.image.topics.by_name:
            names[_normal_name(name)] = name
            if state.pace.is_full(per_item=NAMES_PER_ITEM):
                yield None
    return names


def _check_new_name(image: MetadataImage, name: str, normal_names: Mapping[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is reserved for the controllers")
    reason = invalid_topic_name(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in image.topics.by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    other = normal_names.get(_normal_name(name))
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name {name} would clash with topic {other}")


def _assigned_partitions(state: ControllerState, topic: CreatableTopic) -> Steps[list[PartitionImage]]:
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
        if state.pace.is_full():
            yield None
    if sorted(by_index) != list(range(len(by_index))):
        raise _bad_assignment("partitions must be numbered from 0 without a gap")
    return [by_index[index] for index in range(len(by_index))]


def _placed_partitions(state: ControllerState, topic: CreatableTopic) -> Steps[list[PartitionImage]]:
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
    return (yield from _place(state, count, factor))


def _place(state: ControllerState, count: int, replication_factor: int) -> Steps[list[PartitionImage]]:
    partitions: list[PartitionImage] = []
    for replicas in place_replicas(usable_brokers(state.image), count, replication_factor, state.chance):
        partitions.append(_new_partition(state.image, replicas, ErrorCode.INVALID_REPLICATION_FACTOR))
        if state.pace.is_full():
            yield None
    return partitions


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Brokers that may get new replicas: not in controlled shutdown, and with a directory that is not cordoned. Fenced
    brokers are among them, as a last resort, whether they were stopped or killed.
    """
    return [
        UsableBroker(broker.id, broker.rack, broker.fenced, broker.host)
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
    """A new partition; all its active replicas are in sync."""
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
    if len(broker_ids) > MAX_REPLICAS:
        raise _bad_assignment(f"a partition has at most {MAX_REPLICAS} replicas; got {len(broker_ids)}")
    for broker_id in sorted(broker_ids):
        if broker_id not in image.cluster.brokers:
            raise _bad_assignment(f"there is no broker {broker_id}")
    if len(set(broker_ids)) != len(broker_ids):
        raise _bad_assignment(f"a broker is named more than once in {broker_ids}")
    refuse_shared_hosts(image, broker_ids)
    if replication_factor is not None and len(broker_ids) != replication_factor:
        raise _bad_assignment(
            f"{broker_ids} has {len(broker_ids)} replicas, other partitions have {replication_factor}"
        )


def refuse_shared_hosts(image: MetadataImage, broker_ids: Sequence[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT if two of these brokers are on one host."""
    by_host: dict[str, int] = {}
    for broker_id in broker_ids:
        host = image.cluster.brokers[broker_id].host
        if host is None:
            continue
        if host in by_host:
            raise _bad_assignment(
                f"brokers {by_host[host]} and {broker_id} are both on host {host}; "
                "replicas of a partition must be on different hosts"
            )
        by_host[host] = broker_id


def _bad_assignment(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


# CreatePartitions


def create_partitions(
    state: ControllerState, request: CreatePartitionsRequest, version: int
) -> Steps[ControllerResult[CreatePartitionsResponse]]:
    """Add partitions to topics up to the requested counts; they are placed like those of a new topic."""
    response = CreatePartitionsResponse()
    records: list[Message] = []
    occurrences = Counter(topic.name for topic in request.topics)
    for name in [name for name, count in occurrences.items() if count > 1]:
        if state.pace.is_full():
            yield None
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
            records += yield from _grow(state, topic, len(records))
        except KafkaError as error:
            if error.code is ErrorCode.POLICY_VIOLATION:
                raise
            result.error_code, result.error_message = error.code, error.message
        response.results.append(result)
        if state.pace.is_full():
            yield None
    return ControllerResult(response, [] if request.validate_only else records)


def _grow(state: ControllerState, wanted: CreatePartitionsTopic, others: int) -> Steps[list[Message]]:
    """The records of one topic; `others` is their number for the topics before it."""
    topic = state.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name}")
    existing = len(topic.partitions)
    additional = wanted.count - existing
    if additional <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {wanted.name} has {existing} partition(s), so the new count must be higher; got {wanted.count}",
        )
    refuse_if_excessive(others + additional)
    partitions = yield from _additional_partitions(state, topic, wanted, additional)
    state.spend(additional)
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"topic {topic.name}",
        f"topic {topic.name} grows from {existing} to {wanted.count} partitions",
        cause="CreatePartitions asked for it",
        partitions=wanted.count,
        leaders=[it.leader for it in partitions],
    )
    return (yield from _partition_records(state, topic.id, existing, partitions))


def _additional_partitions(
    state: ControllerState, topic: TopicImage, wanted: CreatePartitionsTopic, additional: int
) -> Steps[list[PartitionImage]]:
    replication_factor = len(next(iter(topic.partitions.values())).replicas)
    if wanted.assignments is None:
        return (yield from _place(state, additional, replication_factor))
    if len(wanted.assignments) != additional:
        raise _bad_assignment(f"{additional} partition(s) are added, but {len(wanted.assignments)} assignment(s) given")
    partitions: list[PartitionImage] = []
    for assignment in wanted.assignments:
        check_assignment(state.image, assignment.broker_ids, replication_factor)
        partitions.append(_new_partition(state.image, assignment.broker_ids, ErrorCode.INVALID_REPLICA_ASSIGNMENT))
        if state.pace.is_full():
            yield None
    return partitions


# DeleteTopics


