"""DescribeConfigs (32), ListConfigResources (74), and the loggers' part of IncrementalAlterConfigs (44).

All values come from this broker's metadata image and its own file. Changes of topic and broker configs are forwarded to
the controller; only log levels belong to the broker's process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.broker.apis.metadata import topic_name_is_legal
from barnabas.broker.cordoned_directories import CORDONED_LOG_DIRS, refusal
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.kraft.authorizer.checks import resource_of_configs
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.kraft.controller.configs import LONGEST_VALUE, operate
from barnabas.kraft.descriptions import config_result
from barnabas.kraft.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from barnabas.kraft.node_security import SaslRefusal, is_of_mechanisms
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, STEP_ITEMS, Meter
from barnabas.runtime.request_times import request_log
from barnabas.runtime.server import Steps
from barnabas.settings.describe import (
    BrokerLayers,
    ConfigEntry,
    ConfigSource,
    describe_broker_configs,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group_configs,
    describe_topic_configs,
)

ENTRIES_IN_A_STEP = 400
"""Configs that one step describes. A broker has some hundreds, and those that a client has given it."""

LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
"""Kafka's names of log levels."""

_TO_PYTHON = {"FATAL": "CRITICAL", "WARN": "WARNING", "TRACE": "DEBUG"}
_TO_KAFKA = {"CRITICAL": "FATAL", "WARNING": "WARN"}
_STRING_TYPE = 2
_SET, _DELETE, _APPEND = 0, 1, 2
_ALTER_CONFIGS = AclOperation.ALTER_CONFIGS


@dataclass(frozen=True, slots=True)
class ConfigPorts:
    node_id: int
    static: Mapping[str, str]
    """Keys and values of the broker's own file."""
    metadata: MetadataCache
    forward: Callable[[Call], None]
    log_dirs: tuple[str, ...]
    sasl_refusal: SaslRefusal

    def layers(self) -> BrokerLayers:
        """The raw values in force on this broker, by source."""
        configs = self.metadata.image.configs
        return BrokerLayers(
            static=self.static,
            cluster_default=configs.get((BROKER_RESOURCE, ""), {}),
            per_broker=configs.get((BROKER_RESOURCE, str(self.node_id)), {}),
        )


def describe_configs(ports: ConfigPorts, call: Call) -> Steps:
    request: DescribeConfigsRequest = call.message
    response = DescribeConfigsResponse()
    meter = Meter(call)
    refused: list[DescribeConfigsResult] = []
    """Resources whose configs the client may not see come behind the others."""
    # A resource named twice is answered once: the response is much longer than the request.
    for resource in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            _check_right(call, resource)
            if meter.is_full:
                raise KafkaError(ANSWER_TOO_LARGE, "the answer would be too large; ask for fewer resources at a time")
            entries = _entries(ports, resource)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
            meter.answer_grows(1, len(error.message or ""))
            ends = meter.step_ends()
        else:
            wanted = frozenset(resource.configuration_keys or ())
            for number, entry in enumerate(entries, 1):
                if not wanted or entry.name in wanted:
                    described = config_result(entry, request.include_synonyms)
                    result.configs.append(described)
                    meter.answer_grows(1 + len(described.synonyms), len(described.value or ""))
                if number % ENTRIES_IN_A_STEP == 0:
                    yield None
            meter.answer_grows(1)
            ends = meter.step_ends(STEP_ITEMS)
        (refused if result.error_code in _REFUSALS else response.results).append(result)
        if ends:
            yield None
    response.results += refused
    call.answer(response)


_REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def _check_right(call: Call, resource: DescribeConfigsResource) -> None:
    """Raises KafkaError if the client may not see the configs of the resource."""
    checked = resource_of_configs(resource.resource_type, resource.resource_name)
    if checked is not None and not call.may(AclOperation.DESCRIBE_CONFIGS, *checked):
        raise refusal_on(checked[0])


def _entries(ports: ConfigPorts, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    image = ports.metadata.image
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC_RESOURCE:
        if not topic_name_is_legal(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
        if name not in image.topics.by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return describe_topic_configs(image.configs.get((kind, name), {}), ports.layers())
    if kind == BROKER_RESOURCE:
        if not name:
            return describe_cluster_defaults(ports.layers())
        _check_own_id(ports, name)
        return describe_broker_configs(ports.layers())
    if kind == BROKER_LOGGER_RESOURCE:
        _check_own_id(ports, name)
        return [_logger_entry(logger) for logger in _loggers()]
    if kind in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource has no name")
        if kind == GROUP_RESOURCE:
            return describe_group_configs(image.configs.get((kind, name), {}), ports.layers())
        return describe_client_metrics(image.configs.get((kind, name), {}))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"unsupported resource type {kind}")


def _check_own_id(ports: ConfigPorts, name: str) -> None:
    """A broker can describe only its own file and its own loggers."""
    own_id = ports.node_id
    if name != str(own_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is broker {own_id}; send the request to broker {name!r}"
        )


def _loggers() -> list[logging.Logger]:
    """The root logger and every logger of our packages, by name."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.startswith(_ROOMS))
    return [logging.root, *(logging.getLogger(name) for name in names), request_log]


_ROOMS = ("barnabas.broker", "barnabas.kraft", "barnabas.runtime", "barnabas.storage", "kraft.")


def _logger_entry(logger: logging.Logger) -> ConfigEntry:
    level = logging.getLevelName(logger.getEffectiveLevel())
    return ConfigEntry(
        logger.name,
        _TO_KAFKA.get(level, level),
        ConfigSource.DYNAMIC_BROKER_LOGGER,
        False,
        False,
        _STRING_TYPE,
        (),
    )


def list_config_resources(ports: ConfigPorts, call: Call) -> Steps:
    """Every resource that may have configs; v0 lists client metrics only (KIP-1142)."""
    request: ListConfigResourcesRequest = call.message
    if not call.may_on_cluster(AclOperation.DESCRIBE_CONFIGS):
        call.answer(ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    image = ports.metadata.image
    types = list(dict.fromkeys(request.resource_types)) if call.version > 0 else [CLIENT_METRICS_RESOURCE]
    brokers = [str(broker_id) for broker_id in sorted(image.cluster.brokers)]
    names = {
        TOPIC_RESOURCE: sorted(image.topics.by_name),
        BROKER_RESOURCE: brokers,
        BROKER_LOGGER_RESOURCE: brokers,
        CLIENT_METRICS_RESOURCE: sorted(n for kind, n in image.configs if kind == CLIENT_METRICS_RESOURCE),
        GROUP_RESOURCE: sorted(n for kind, n in image.configs if kind == GROUP_RESOURCE),
    }
    response = ListConfigResourcesResponse()
    meter = Meter(call)
    for kind in types or names:
        if kind not in names:
            response.error_code = ErrorCode.UNSUPPORTED_VERSION
            response.config_resources = []
            break
        for name in names[kind]:
            response.config_resources.append(ConfigResource(resource_name=name, resource_type=kind))
            meter.answer_grows(1, len(name))
            if meter.step_ends():
                yield None
    call.answer(response)


def incremental_alter_configs(ports: ConfigPorts, call: Call) -> Steps:
    """Sets log levels here and forwards everything else to the controller. Tools never mix the two."""
    request: IncrementalAlterConfigsRequest = call.message
    response = IncrementalAlterConfigsResponse()
    if not request.resources or any(r.resource_type != BROKER_LOGGER_RESOURCE for r in request.resources):
        reason = (yield from _own_refusal(ports, call, request.resources[0])) if len(request.resources) == 1 else None
        if reason is None:
            ports.forward(call)
        else:
            response.responses.append(_invalid(request.resources[0], reason))
            call.answer(response)
        return
    meter = Meter(call)
    is_allowed = call.may_on_cluster(_ALTER_CONFIGS)
    for resource in request.resources:
        result = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            if not is_allowed:
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            _check_own_id(ports, resource.resource_name)
            levels = _checked_levels(resource)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        else:
            if not request.validate_only:
                for name, level in levels.items():
                    logging.getLogger(name).setLevel(level)
        response.responses.append(result)
        meter.answer_grows(1, len(result.error_message or ""))
        if meter.step_ends(STEP_ITEMS):
            yield None
    call.answer(response)


def _own_refusal(
    ports: ConfigPorts, call: Call, resource: AlterConfigsResource
) -> Generator[None, Any, str | None]:
    """The reason why this broker refuses a change of its own configs; None if it does not. Only the broker knows its
    paths and its listeners."""
    if resource.resource_type != BROKER_RESOURCE or resource.resource_name != str(ports.node_id):
        return None
    refused = _refused_cordons(ports, resource)
    if refused is not None:
        return refused
    if not any(is_of_mechanisms(it.name) for it in resource.configs) or not call.may_on_cluster(_ALTER_CONFIGS):
        return None
    current = ports.layers().per_broker
    try:
        changes = {it.name: operate(BROKER_RESOURCE, it, current.get(it.name)) for it in resource.configs}
    except KafkaError:
        return None  # the controller refuses it
    if any(len(text or "") > LONGEST_VALUE for text in changes.values()):
        return None  # the controller refuses it, at no cost
    return (yield from ports.sasl_refusal({k: text for k, text in {**current, **changes}.items() if text is not None}))


def _invalid(resource: AlterConfigsResource, reason: str) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=reason,
    )


def _refused_cordons(ports: ConfigPorts, resource: AlterConfigsResource) -> str | None:
    """The reason why `cordoned.log.dirs` cannot have its new value."""
    for config in resource.configs:
        if config.name == CORDONED_LOG_DIRS and config.config_operation in (_SET, _APPEND) and config.value:
            problem = refusal([each.strip() for each in config.value.split(",")], ports.log_dirs)
            if problem is not None:
                return f"Invalid value {config.value} for configuration {CORDONED_LOG_DIRS}: {problem}"
    return None


def _checked_levels(resource: AlterConfigsResource) -> dict[str, int]:
    known = {logger.name for logger in _loggers()}
    levels: dict[str, int] = {}
    for config in resource.configs:
        if config.name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"logger {config.name} does not exist")
        if config.config_operation == _DELETE and config.name != logging.root.name:
            levels[config.name] = logging.NOTSET
        elif config.config_operation == _SET and config.value in LEVELS:
            levels[config.name] = logging.getLevelNamesMapping()[_TO_PYTHON.get(config.value, config.value)]
        elif config.config_operation == _SET:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"a log level must be one of {', '.join(LEVELS)}; got {config.value!r}"
            )
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a log level can only be set, or deleted unless it is the root logger's"
            )
    return levels
