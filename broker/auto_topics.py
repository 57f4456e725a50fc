"""Topics that are made because somebody asked for them (auto.create.topics.enable, MB-09)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.forwarding import ANONYMOUS, address_bytes
from protocol.api_keys import API_SPECS, ApiKey
from protocol.errors import KafkaError
from protocol.headers import RequestHeader
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.envelope import EnvelopeRequest
from protocol.schema import encode

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)

CREATE_TIMEOUT_MS = 30_000


class AutoTopics:
    """Asks the controller for missing topics, once for each while the answer is outstanding."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._under_way: dict[str, None] = {}

    def create(self, names: Sequence[str]) -> None:
        """Begin to create the topics; returns at once. The client's next Metadata request finds them."""
        if not self._broker.settings.auto_create_topics_enable:
            return
        fresh = [name for name in dict.fromkeys(names) if name not in self._under_way]
        if not fresh:
            return
        self._under_way.update(dict.fromkeys(fresh))
        self._broker.nursery.start_soon(self._create, fresh)

    async def _create(self, names: list[str]) -> None:
        spec = API_SPECS[ApiKey.CREATE_TOPICS]
        version = spec.max_version
        # -1 takes num.partitions and default.replication.factor (KIP-464): this broker's own settings decide.
        settings = self._broker.settings
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=settings.num_partitions,
                    replication_factor=settings.default_replication_factor,
                )
                for name in names
            ],
            timeout_ms=CREATE_TIMEOUT_MS,
        )
        header = RequestHeader(
            request_api_key=ApiKey.CREATE_TOPICS, request_api_version=version, client_id="auto-create"
        )
        data = encode(header, spec.request_header_version(version)) + encode(request, version)
        envelope = EnvelopeRequest(
            request_data=data, request_principal=ANONYMOUS, client_host_address=address_bytes("127.0.0.1")
        )
        try:
            await self._broker.controller.call(envelope, timeout_ms=CREATE_TIMEOUT_MS)
        except KafkaError as error:
            log.warning("topics %s could not be created: %s", ", ".join(names), error)
        finally:
            for name in names:
                self._under_way.pop(name, None)
