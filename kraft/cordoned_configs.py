"""Core: changes of `cordoned.log.dirs` that a client sends to a controller itself (KIP-1066).

A broker checks the paths before it forwards such a change. A controller knows ids of directories alone, so without a
broker it only takes directories off the list.
"""

from __future__ import annotations

from barnabas.kraft.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CORDONED_LOG_DIRS = "cordoned.log.dirs"
_SET, _APPEND = 0, 2
REFUSAL = (
    f"When updating {CORDONED_LOG_DIRS} via controllers,  the new value must be a subset of the current "
    "configuration value."
)


def refused_cordons(
    image: MetadataImage, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | None:
    """The response to a request that cordons further directories; None if it does not."""
    if len(request.resources) != 1 or not _adds(image, request.resources[0]):
        return None
    resource = request.resources[0]
    refused = AlterConfigsResourceResponse(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=ErrorCode.INVALID_CONFIG,
        error_message=REFUSAL,
    )
    return IncrementalAlterConfigsResponse(responses=[refused])


def _adds(image: MetadataImage, resource: AlterConfigsResource) -> bool:
    if resource.resource_type != BROKER_RESOURCE:
        return False
    current = _entries(image.config(BROKER_RESOURCE, resource.resource_name).get(CORDONED_LOG_DIRS, ""))
    return any(
        config.name == CORDONED_LOG_DIRS
        and config.config_operation in (_SET, _APPEND)
        and not _entries(config.value or "") <= current
        for config in resource.configs
    )


def _entries(text: str) -> frozenset[str]:
    return frozenset(each.strip() for each in text.split(",") if each.strip())
