"""ApiVersions (18): what this broker serves, and the features that the cluster has finalised (KIP-35, 511, 584)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft import descriptions
from protocol.messages.api_versions import ApiVersion
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices


def api_versions(broker: BrokerServices, call: Call, advertised: list[ApiVersion]) -> None:
    call.answer(descriptions.api_versions(broker.metadata.image, call.message, call.version, advertised))
