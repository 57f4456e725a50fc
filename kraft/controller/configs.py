"""Changing dynamic configs of topics, brokers, groups and client metrics (KIP-133, KIP-339).

Each resource of a request succeeds or fails by itself, all its keys together. While eligible leader replicas
are enabled, min.insync.replicas is one value for all brokers: who is eligible depends on it (KIP-966).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kraft.controller.effective_configs import MIN_INSYNC_REPLICAS, broker_layers
from kraft.controller.eligibility import clear_of_all, clear_of_topic
from kraft.controller.state import ControllerResult, ControllerState, refuse_if_excessive
from kraft.metadata.features import CORDONED_DIRECTORIES_SINCE
from kraft.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import alter_configs as legacy
from protocol.messages import incremental_alter_configs as incremental
from protocol.messages.create_topics import CreatableTopic
from protocol.messages.metadata_log import ConfigRecord
from protocol.schema import Message
from settings.definitions import KeyDefinition, definitions
from settings.describe import validate_broker_config
from settings.errors import SettingsError
from settings.group import validate_group_configs
from settings.topic import validate_topic_configs

log = logging.getLogger("kraft.controller")

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""

LONGEST_VALUE = 32767
CORDONED_LOG_DIRS = "cordoned.log.dirs"

CLIENT_METRICS_KEYS = frozenset(("metrics", "interval.ms", "match"))
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
) -> ControllerResult[incremental.IncrementalAlterConfigsResponse]:
    """Change single keys of resources, leaving the others."""
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
            changes = {it.name: _operate(resource, it, current.get(it.name)) for it in wanted.configs}
            records += _alter(state, resource, changes)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    refuse_if_excessive(len(records))
    return ControllerResult(response, [] if request.validate_only else _with_cleared_elrs(state, records))


def alter_configs(
    state: ControllerState, request: legacy.AlterConfigsRequest, version: int
) -> ControllerResult[legacy.AlterConfigsResponse]:
    """Replace all overrides of resources: keys that are not named go back to their defaults."""
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
            records += _alter(state, resource, changes)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    refuse_if_excessive(len(records))
    return ControllerResult(response, [] if request.validate_only else _with_cleared_elrs(state, records))


def new_topic_configs(state: ControllerState, topic: CreatableTopic) -> dict[str, str]:
    """The overrides a new topic asks for. Raises KafkaError if one cannot be taken."""
    nulls = [it.name for it in topic.configs if it.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"no value is given for {', '.join(nulls)}")
    overrides = {it.name: it.value for it in topic.configs if it.value is not None}
    _check_topic(state, overrides)
    return overrides


def config_records(resource: ConfigResource, changes: Mapping[str, str | None]) -> list[Message]:
    """One record for each changed key."""
    resource_type, name = resource
    return [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in changes.items()
    ]


def elr_safety_records(state: ControllerState) -> list[Message]:
    """What enabling eligible leader replicas needs: one cluster-wide min.insync.replicas and no broker's
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
    """Raises KafkaError unless this is one existing thing that has configs."""
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
        raise KafkaError(ErrorCode.INVALID_REQUEST, "levels of loggers are altered on the broker itself and not kept")
    else:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unknown resource type {resource_type}")


def _check_node(state: ControllerState, name: str) -> None:
    if not name:
        return
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is no node id")
    node_id = int(name)
    if node_id not in state.image.cluster.brokers and node_id not in state.defaults.quorum_ids:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node_id}")


def _check_keys(keys: Sequence[str]) -> None:
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} more than once")


def _not_null(key: str, value: str | None) -> str:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no value is given for {key}")
    return value


def _operate(resource: ConfigResource, wanted: incremental.AlterableConfig, current: str | None) -> str | None:
    """The value that one operation gives a key."""
    operation, key = wanted.config_operation, wanted.name
    if operation == DELETE:
        return None
    if operation not in (SET, APPEND, SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown operation {operation} on {key}")
    value = _not_null(key, wanted.value)
    if operation == SET:
        return value
    definition = _definition(resource[0], key)
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
    return None


def _alter(state: ControllerState, resource: ConfigResource, changes: Changes) -> list[Message]:
    """The records of one resource's changes. Raises KafkaError if they cannot be made."""
    current = state.image.config(*resource)
    for key, value in changes.items():
        if value is not None and len(value) > LONGEST_VALUE:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the value of {key} has more than {LONGEST_VALUE} characters")
    altered = {key: value for key, value in (current | changes).items() if value is not None}
    if resource[0] == TOPIC_RESOURCE:
        _check_topic(state, altered)
    elif resource[0] == BROKER_RESOURCE:
        _check_broker(state, resource[1], changes)
    elif resource[0] == GROUP_RESOURCE:
        _check_group(state, altered)
    else:
        unknown = [key for key in altered if key not in CLIENT_METRICS_KEYS]
        if unknown:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown key {', '.join(unknown)}")
        _check_client_metrics(altered)
    # Brokers load things anew (certificates, say) when a key is set again to what it was.
    effective = {
        key: value for key, value in changes.items() if resource[0] == BROKER_RESOURCE or current.get(key) != value
    }
    if effective:
        log.info("configs of %s: %s", _told(resource), ", ".join(_shown(resource, effective)))
    return config_records(resource, effective)


def _check_client_metrics(config: Mapping[str, str]) -> None:
    """Patterns are the broker's business, which has the language of clients' patterns."""
    interval = config.get("interval.ms", "100").strip()
    if not interval.isdecimal() or not 100 <= int(interval) <= 3_600_000:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"interval.ms is {interval}, not between 100 and 3600000")
    for part in filter(None, (part.strip() for part in config.get("match", "").split(","))):
        name, equals, pattern = part.partition("=")
        if name.strip() not in CLIENT_METRICS_MATCHES or not equals or not pattern.strip() or "=" in pattern:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"illegal client matching pattern: {part}")


def _check_topic(state: ControllerState, overrides: Mapping[str, str]) -> None:
    try:
        validate_topic_configs(overrides, broker_layers(state.image, state.defaults).merged())
    except SettingsError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_group(state: ControllerState, overrides: Mapping[str, str]) -> None:
    try:
        validate_group_configs(overrides, broker_layers(state.image, state.defaults).merged())
    except SettingsError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_broker(state: ControllerState, name: str, changes: Changes) -> None:
    """Raises KafkaError unless running nodes take these changes."""
    image = state.image
    if MIN_INSYNC_REPLICAS in changes and image.features.elr_enabled:
        if name:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_INSYNC_REPLICAS} of one broker cannot differ while eligible leader replicas are on",
            )
        if changes[MIN_INSYNC_REPLICAS] is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"the cluster's {MIN_INSYNC_REPLICAS} cannot be removed while eligible leader replicas are enabled",
            )
    if CORDONED_LOG_DIRS in changes and image.features.metadata_version < CORDONED_DIRECTORIES_SINCE:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{CORDONED_LOG_DIRS} needs a later metadata.version")
    for key, value in changes.items():
        if value is not None:
            try:
                validate_broker_config(key, value, for_all=not name)
            except SettingsError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _told(resource: ConfigResource) -> str:
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
        yield f"{key}={'[hidden]' if hidden and value is not None else value}"


def _with_cleared_elrs(state: ControllerState, records: list[Message]) -> list[Message]:
    """Eligibility was judged by the old min.insync.replicas, so a change of it makes all of it void
    (KIP-966)."""
    if not state.image.features.elr_enabled:
        return records
    cleared: list[Message] = []
    for record in records:
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS:
            resource = (record.resource_type, record.resource_name)
            now = "has its default again" if record.value is None else f"is {record.value} now"
            cause = f"{MIN_INSYNC_REPLICAS} of {_told(resource)} {now}, and eligible was who was so by the old value"
            if record.resource_type == TOPIC_RESOURCE:
                cleared += clear_of_topic(state, record.resource_name, cause)
            else:
                cleared += clear_of_all(state, cause)
    return [*cleared, *records]
