"""Changing dynamic configs of topics, brokers, groups and client metrics (KIP-133, KIP-339).

Each resource of a request succeeds or fails by itself, all its keys together. While eligible leader replicas
are enabled, min.insync.replicas is one value for all brokers: eligibility depends on it (KIP-966).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from barnabas.kraft.controller.effective_configs import MIN_INSYNC_REPLICAS, broker_layers
from barnabas.kraft.controller.eligibility import clear_of_all, clear_of_topic
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps, refuse_if_excessive
from barnabas.kraft.metadata.features import CORDONED_DIRECTORIES_SINCE
from barnabas.kraft.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigResource,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.create_topics import CreatableTopic
from barnabas.protocol.messages.metadata_log import ConfigRecord, PartitionChangeRecord
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind, cut
from barnabas.settings.definitions import KeyDefinition, definitions
from barnabas.settings.describe import unknown_broker_config, validate_broker_config
from barnabas.settings.errors import SettingsError
from barnabas.settings.group import validate_group_configs
from barnabas.settings.topic import TIERED, TopicConfig, is_true, validate_topic_configs

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""

LONGEST_VALUE = 32767
MOST_OVERRIDES = 10_000
"""Configs of a resource. Brokers take any name, and the config of a topic is made of all configs of a broker."""
CORDONED_LOG_DIRS = "cordoned.log.dirs"
RESOURCE_ITEMS = 5
"""Items that a resource counts as, besides its keys."""
WARNED_KEYS = 3
SHOWN_CHANGES = 20
"""Changed keys of a resource that are named in its decision note."""

CLIENT_METRICS_MATCHES = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)
Changes = dict[str, str | None]
"""New values by key; None removes the override."""


def incremental_alter_configs(
    state: ControllerState, request: incremental.IncrementalAlterConfigsRequest, version: int
) -> Steps[ControllerResult[incremental.IncrementalAlterConfigsResponse]]:
    """Change single keys of resources; the others stay."""
    response = incremental.IncrementalAlterConfigsResponse()
    records: list[Message] = []
    occurrences = Counter((it.resource_type, it.resource_name) for it in request.resources)
    for wanted in request.resources:
        resource = (wanted.resource_type, wanted.resource_name)
        answer = incremental.AlterConfigsResourceResponse(
            resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            _check_resource(state, resource, occurrences[resource])
            _check_keys([it.name for it in wanted.configs])
            current = state.image.config(*resource)
            changes: Changes = {}
            for config in wanted.configs:
                changes[config.name] = operate(wanted.resource_type, config, current.get(config.name))
                if state.pace.is_full():
                    yield None
            records += yield from _alter(state, resource, changes)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        if state.pace.is_full(RESOURCE_ITEMS):
            yield None
    refuse_if_excessive(len(records))
    if request.validate_only:
        return ControllerResult(response)
    return ControllerResult(response, (yield from _with_cleared_elrs(state, records)))


def alter_configs(
    state: ControllerState, request: legacy.AlterConfigsRequest, version: int
) -> Steps[ControllerResult[legacy.AlterConfigsResponse]]:
    """Replace all overrides of resources: keys that are not named get their defaults again."""
    response = legacy.AlterConfigsResponse()
    records: list[Message] = []
    occurrences = Counter((it.resource_type, it.resource_name) for it in request.resources)
    for wanted in request.resources:
        resource = (wanted.resource_type, wanted.resource_name)
        answer = legacy.AlterConfigsResourceResponse(
            resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            _check_resource(state, resource, occurrences[resource])
            _check_keys([it.name for it in wanted.configs])
            changes: Changes = {it.name: _not_null(it.name, it.value) for it in wanted.configs}
            for key in state.image.config(*resource):
                changes.setdefault(key, None)
            records += yield from _alter(state, resource, changes)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        if state.pace.is_full(RESOURCE_ITEMS):
            yield None
    refuse_if_excessive(len(records))
    if request.validate_only:
        return ControllerResult(response)
    return ControllerResult(response, (yield from _with_cleared_elrs(state, records)))


def requested_configs(topic: CreatableTopic) -> dict[str, str]:
    """The overrides of a new topic. Raises KafkaError if one has no value."""
    nulls = [it.name for it in topic.configs if it.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"no value is given for {', '.join(nulls)}")
    return {it.name: it.value for it in topic.configs if it.value is not None}


def config_records(resource: ConfigResource, changes: Mapping[str, str | None]) -> list[Message]:
    """One record for each changed key."""
    resource_type, name = resource
    return [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in changes.items()
    ]


def elr_safety_records(state: ControllerState) -> list[Message]:
    """Records that enabling eligible leader replicas needs: one cluster-wide min.insync.replicas, and no broker's
    own."""
    records: list[Message] = []
    if MIN_INSYNC_REPLICAS not in state.image.config(BROKER_RESOURCE, ""):
        value = str(state.defaults.min_insync_replicas)
        records += config_records((BROKER_RESOURCE, ""), {MIN_INSYNC_REPLICAS: value})
    for resource, overrides in sorted(state.image.configs.items()):
        if resource[0] == BROKER_RESOURCE and resource[1] and MIN_INSYNC_REPLICAS in overrides:
            records += config_records(resource, {MIN_INSYNC_REPLICAS: None})
    return records


def _check_resource(state: ControllerState, resource: ConfigResource, occurrences: int) -> None:
    """Raises KafkaError unless this is one existing resource that has configs."""
    resource_type, name = resource
    if occurrences > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is in the request more than once")
    if resource_type == TOPIC_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no defaults for all topics")
        if name not in state.image.topics.by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    elif resource_type == BROKER_RESOURCE:
        _check_node(state, name)
    elif resource_type in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource needs a name")
    elif resource_type == BROKER_LOGGER_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "log levels are altered on the broker itself")
    else:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unknown resource type {resource_type}")


def _check_node(state: ControllerState, name: str) -> None:
    if not name:
        return
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a node id is a number; got {name!r}")
    node_id = int(name)
    if node_id not in state.image.cluster.brokers and node_id not in state.defaults.quorum_ids:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node_id}")


def _check_keys(keys: Sequence[str]) -> None:
    duplicates = [key for key, count in Counter(keys).items() if count > 1]
    if duplicates:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{', '.join(duplicates)} more than once")


def _not_null(key: str, value: str | None) -> str:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no value is given for {key}")
    return value


def operate(resource_type: int, wanted: incremental.AlterableConfig, current: str | None) -> str | None:
    """The value that one operation gives a key; None removes it. Raises KafkaError."""
    operation, key = wanted.config_operation, wanted.name
    if operation == DELETE:
        return None
    if operation not in (SET, APPEND, SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown operation {operation} on {key}")
    value = _not_null(key, wanted.value)
    if operation == SET:
        return value
    definition = _definition(resource_type, key)
    if definition is None or definition.type != "list":
        verb = "appended to" if operation == APPEND else "subtracted from"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"nothing can be {verb} {key}: it is not a list")
    parts = [it for it in (current if current is not None else definition.default or "").split(",") if it]
    for part in value.split(","):
        if operation == APPEND and part not in parts:
            parts.append(part)
        elif operation == SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _definition(resource_type: int, key: str) -> KeyDefinition | None:
    if resource_type == TOPIC_RESOURCE:
        return definitions("topic").get(key)
    if resource_type == BROKER_RESOURCE:
        return definitions("broker").get(key) or definitions("dynamic").get(key)
    if resource_type == GROUP_RESOURCE:
        return definitions("group").get(key)
    if resource_type == CLIENT_METRICS_RESOURCE:
        return definitions("client-metrics").get(key)
    return None


def _alter(state: ControllerState, resource: ConfigResource, changes: Changes) -> Steps[list[Message]]:
    """The records of one resource's changes. Raises KafkaError if one is not allowed."""
    current = state.image.config(*resource)
    for key, value in changes.items():
        if value is not None and len(value) > LONGEST_VALUE:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the value of {key} has more than {LONGEST_VALUE} characters")
    altered = {key: value for key, value in (current | changes).items() if value is not None}
    if len(altered) > max(MOST_OVERRIDES, len(current)):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"a resource may have {MOST_OVERRIDES} configs; it would have {len(altered)}",
        )
    if resource[0] == TOPIC_RESOURCE:
        check_topic_configs(state, altered, current)
    elif resource[0] == BROKER_RESOURCE:
        yield from _check_broker(state, resource[1], changes)
    elif resource[0] == GROUP_RESOURCE:
        _check_group(state, altered)
    else:
        _check_client_metrics(altered)
    # A broker reloads files (certificates, for example) when a key is set to the value that it has.
    effective = {
        key: value for key, value in changes.items() if resource[0] == BROKER_RESOURCE or current.get(key) != value
    }
    if effective:
        shown = list(islice(_shown(resource, effective), SHOWN_CHANGES))
        more = f" and {len(effective) - len(shown)} more" if len(effective) > len(shown) else ""
        name = _resource_name(resource)
        state.notes.note(
            DecisionKind.LIFECYCLE,
            name,
            f"configs of {name} are changed",
            cause=f"a client asked for {', '.join(shown)}{more}{_warnings(resource, effective)}",
        )
    records: list[Message] = []
    for key, value in effective.items():
        records += config_records(resource, {key: value})
        if state.pace.is_full():
            yield None
    if resource[0] == TOPIC_RESOURCE and _tiers_compacted(state, current, altered):
        records += yield from _new_leader_epochs(state, resource[1])
    return records


def _tiers_compacted(state: ControllerState, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """True if a topic that exists becomes tiered, and is compacted."""
    if is_true(before.get(TIERED)) or not is_true(after.get(TIERED)):
        return False
    return TopicConfig.resolve(after, broker_layers(state.image, state.defaults).merged()).compacts


def _new_leader_epochs(state: ControllerState, topic_name: str) -> Steps[list[Message]]:
    """The leaders stay, and lead in a new epoch each. A replica that does not know the new configs does not know this
    epoch either, so it gets no record of it: the tombstones that it removes by the old configs are all older."""
    topic = state.image.topics.by_name[topic_name]
    records: list[Message] = []
    for partition_id, partition in topic.partitions.items():
        if partition.leader != NO_LEADER:
            records.append(
                PartitionChangeRecord(topic_id=topic.id, partition_id=partition_id, leader=partition.leader)
            )
        if state.pace.is_full():
            yield None
    return records


def _check_client_metrics(config: Mapping[str, str]) -> None:
    """Brokers check the patterns themselves."""
    known = definitions("client-metrics")
    for key, text in config.items():
        if key not in known:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"client metrics have the configs {', '.join(known)}; got {key}"
            )
        try:
            value = known[key].parse(text)
        except SettingsError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if isinstance(value, list) and len(set(value)) != len(value):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"a list names each value once; got {key}={text}")
    interval = int(config.get("interval.ms", "100"))
    if not 100 <= interval <= 3_600_000:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"interval.ms must be between 100 and 3600000; got {interval}")
    for part in filter(None, (part.strip() for part in config.get("match", "").split(","))):
        name, equals, pattern = part.partition("=")
        if name.strip() not in CLIENT_METRICS_MATCHES or not equals or not pattern.strip() or "=" in pattern:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"illegal client matching pattern: {part}")


def check_topic_configs(
    state: ControllerState, overrides: Mapping[str, str], before: Mapping[str, str] | None = None
) -> None:
    """Raises KafkaError INVALID_CONFIG unless a topic may have these overrides instead of those it had `before`."""
    try:
        validate_topic_configs(overrides, broker_layers(state.image, state.defaults).merged(), before)
    except SettingsError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_group(state: ControllerState, overrides: Mapping[str, str]) -> None:
    try:
        validate_group_configs(overrides, broker_layers(state.image, state.defaults).merged())
    except SettingsError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_broker(state: ControllerState, name: str, changes: Changes) -> Steps[None]:
    """Raises KafkaError unless running nodes accept these changes."""
    image = state.image
    if MIN_INSYNC_REPLICAS in changes and image.features.elr_enabled:
        if name:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_INSYNC_REPLICAS} cannot be set for one broker while eligible leader replicas are enabled",
            )
        if changes[MIN_INSYNC_REPLICAS] is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"the cluster's {MIN_INSYNC_REPLICAS} cannot be removed while eligible leader replicas are enabled",
            )
    if CORDONED_LOG_DIRS in changes and image.features.metadata_version < CORDONED_DIRECTORIES_SINCE:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires "
            "metadata.version >= 4.3-IV0",
        )
    for key, value in changes.items():
        if value is not None:
            try:
                validate_broker_config(key, value, for_all=not name)
            except SettingsError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        if state.pace.is_full():
            yield None


def _resource_name(resource: ConfigResource) -> str:
    kinds = {
        TOPIC_RESOURCE: "topic",
        BROKER_RESOURCE: "broker",
        GROUP_RESOURCE: "group",
        CLIENT_METRICS_RESOURCE: "client metrics",
    }
    if resource == (BROKER_RESOURCE, ""):
        return "all brokers"
    return f"{kinds[resource[0]]} {resource[1]}"


def _shown(resource: ConfigResource, changes: Changes) -> Iterable[str]:
    for key, value in changes.items():
        definition = _definition(resource[0], key)
        hidden = resource[0] == BROKER_RESOURCE and (definition is None or definition.sensitive)
        yield f"{cut(key)}={'[hidden]' if hidden and value is not None else cut(str(value))}"


def _warnings(resource: ConfigResource, changes: Changes) -> str:
    """Warnings of keys that no broker has; for the first few keys only, as each needs a search of similar names."""
    if resource[0] != BROKER_RESOURCE:
        return ""
    keys = [key for key, value in islice(changes.items(), WARNED_KEYS) if value is not None]
    return "".join(f"; {warning}" for key in keys if (warning := unknown_broker_config(key)))


def _with_cleared_elrs(state: ControllerState, records: list[Message]) -> Steps[list[Message]]:
    """Eligibility depends on min.insync.replicas, so a change of that clears all ELRs
    (KIP-966)."""
    if not state.image.features.elr_enabled:
        return records
    cleared: list[Message] = []
    for record in records:
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS:
            resource = (record.resource_type, record.resource_name)
            now = "has its default again" if record.value is None else f"is {record.value} now"
            cause = f"{MIN_INSYNC_REPLICAS} of {_resource_name(resource)} {now}, and eligibility depends on it"
            if record.resource_type == TOPIC_RESOURCE:
                cleared += yield from clear_of_topic(state, record.resource_name, cause)
            else:
                cleared += yield from clear_of_all(state, cause)
    return [*cleared, *records]
