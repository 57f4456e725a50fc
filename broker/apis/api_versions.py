"""ApiVersions (18): what this broker serves, and the features that the cluster has finalised (KIP-35, 511, 584)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kraft.metadata.features import SUPPORTED_FEATURES
from protocol.errors import ErrorCode
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_VERSION_WITH_MINIMUM_ZERO = 4


def api_versions(broker: BrokerServices, call: Call, advertised: list[ApiVersion]) -> None:
    request: ApiVersionsRequest = call.message
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        call.answer(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    image = broker.metadata.image
    response = ApiVersionsResponse(api_keys=advertised)
    for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items()):
        if lowest > 0 or call.version >= _FIRST_VERSION_WITH_MINIMUM_ZERO:
            response.supported_features.append(
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            )
    finalized = {"metadata.version": image.features.metadata_version, **image.features.finalized}
    response.finalized_features_epoch = image.offset
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in sorted(finalized.items())
        if level > 0
    ]
    call.answer(response)
