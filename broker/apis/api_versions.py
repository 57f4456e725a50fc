"""ApiVersions (18): the APIs that this broker serves, and the finalised features of the cluster (KIP-35, 511, 584)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.kraft import descriptions
from barnabas.protocol.messages.api_versions import ApiVersion
from barnabas.runtime.dispatch import Call

if TYPE_CHECKING:
    from barnabas.broker.telemetry import ClientTelemetry


@dataclass(frozen=True, slots=True)
class ApiVersionsPorts:
    metadata: MetadataCache
    telemetry: ClientTelemetry | None
    """Learns the name and version of the client's software."""
    kraft_version: Callable[[], int] = lambda: 0
    """The level of `kraft.version` in the metadata log."""


def api_versions(ports: ApiVersionsPorts, advertised: list[ApiVersion], call: Call) -> None:
    if ports.telemetry is not None:
        message = call.message
        ports.telemetry.connected(
            call.request.connection_id, message.client_software_name, message.client_software_version
        )
    image, kraft_version = ports.metadata.image, ports.kraft_version()
    call.answer(descriptions.api_versions(image, kraft_version, call.message, call.version, advertised))
