"""Descriptions of a controller and the cluster, from the committed image alone.

ApiVersions (18), DescribeCluster (60, KIP-919) and DescribeConfigs (32). Pure functions: request in, response out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.kraft.controller.effective_configs import broker_layers
from barnabas.kraft.controller.state import ControllerDefaults
from barnabas.kraft.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas.runtime.at_once import Stepwise
from barnabas.settings.describe import (
    ConfigEntry,
    describe_broker_configs,
    describe_cluster_defaults,
    describe_topic_configs,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SINCE_MINIMUM_ZERO = 4
"""Older clients fail on a feature whose lowest level is 0, so their responses omit it (KAFKA-17492)."""

CONTROLLER_ENDPOINTS = 2
ENTRIES_IN_A_STEP = 400
"""Configs that one step describes."""


@dataclass(frozen=True, slots=True)
class Described:
    """Input of the descriptions."""

    image: MetadataImage
    defaults: ControllerDefaults
    leader_id: int
    """The active controller, -1 if none is known."""


def api_versions(
    image: MetadataImage, kraft_version: int, request: ApiVersionsRequest, version: int, served: list[ApiVersion]
) -> ApiVersionsResponse:
    """Supported requests, supported and finalised features (KIP-35, KIP-511, KIP-584)."""
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    levels = dict(image.features.levels)
    if kraft_version:
        levels[KRAFT_VERSION] = kraft_version
    return ApiVersionsResponse(
        api_keys=served,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items())
            if lowest > 0 or version >= _SINCE_MINIMUM_ZERO
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(levels.items())
        ],
    )


def describe_cluster(
    described: Described, request: DescribeClusterRequest, version: int, listener_name: str
) -> DescribeClusterResponse:
    """The registered controllers, with their endpoints on the listener of the request."""
    response = DescribeClusterResponse(
        cluster_id=described.defaults.cluster_id,
        controller_id=described.leader_id,
        endpoint_type=request.endpoint_type,
    )
    if request.endpoint_type != CONTROLLER_ENDPOINTS:
        known = request.endpoint_type == 1
        response.error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        response.error_message = "a controller describes controllers only (endpoint type 2)"
        if not known:
            response.error_message = f"unknown endpoint type {request.endpoint_type}"
        return response
    for controller_id, controller in sorted(described.image.cluster.controllers.items()):
        endpoint = controller.listeners.get(listener_name)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port)
            )
    return response


def describe_configs(described: Described, request: DescribeConfigsRequest) -> Stepwise[DescribeConfigsResponse]:
    """Effective configs of topics and of this controller."""
    seen = 0
    response = DescribeConfigsResponse()
    # A resource named twice is described once: an answer is much longer than its request.
    for resource in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.results.append(result)
        try:
            entries = _config_entries(described, resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        wanted = frozenset(resource.configuration_keys or ())
        for entry in entries:
            if not wanted or entry.name in wanted:
                result.configs.append(config_result(entry, request.include_synonyms))
            seen += 1
            if seen % ENTRIES_IN_A_STEP == 0:
                yield
    return response


def _config_entries(described: Described, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    image, defaults = described.image, described.defaults
    layers = broker_layers(image, defaults)
    if resource.resource_type == TOPIC_RESOURCE:
        if resource.resource_name not in image.topics.by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.resource_name}")
        return describe_topic_configs(image.config(TOPIC_RESOURCE, resource.resource_name), layers)
    if resource.resource_type == BROKER_RESOURCE:
        if not resource.resource_name:
            return describe_cluster_defaults(layers)
        if resource.resource_name == str(defaults.node_id):
            return describe_broker_configs(layers)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"node {defaults.node_id} describes itself only; got {resource.resource_name}"
        )
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"controllers do not describe resources of type {resource.resource_type}"
    )


def config_result(entry: ConfigEntry, include_synonyms: bool) -> DescribeConfigsResourceResult:
    """A config in the form of DescribeConfigs."""
    synonyms = entry.synonyms if include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type_number,
        documentation=None,
        synonyms=[DescribeConfigsSynonym(name=it.name, value=it.value, source=it.source) for it in synonyms],
    )
