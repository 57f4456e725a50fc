"""Creates missing topics: those that clients ask for (auto.create.topics.enable, MB-09), and internal topics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice

from barnabas.broker.controller_channel import ControllerCalls
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.internal_topics import internal_topic
from barnabas.kraft.principals import written_host, written_principal
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.schema import decode, decode_prefix, encode
from barnabas.runtime.background import Background
from barnabas.runtime.backoff import doubled_ms
from barnabas.runtime.request import Request
from barnabas.runtime.world import Clock

log = logging.getLogger(__name__)

CREATE_TIMEOUT_MS = 30_000
FIRST_BACKOFF_MS, MAX_BACKOFF_MS = 50, 2000
"""Backoff after a topic could not be created; each further failure doubles it."""
MAX_REMEMBERED = 1000

DEAD_LETTERS = "errors.deadletterqueue.group.enable"
"""The topic config of a dead-letter topic."""
MAX_UNDER_WAY = 64
"""Topics that are being created at a time. The others are created when clients ask for them again."""


class AutoTopics:
    """Sends CreateTopics to the controller, at most one at a time for each topic."""

    def __init__(
        self, controller: ControllerCalls, background: Background, clock: Clock, settings: CurrentSettings
    ) -> None:
        self._controller = controller
        self._background = background
        self._clock = clock
        self._settings = settings
        self._dead_letters: set[str] = set()
        """Names of dead-letter topics that were ever created here."""
        self._under_way: dict[str, None] = {}
        self._failed: dict[str, tuple[int, int]] = {}
        """Topics that could not be created: failures in a row, and the end of the backoff in milliseconds."""

    @property
    def is_enabled(self) -> bool:
        return self._settings().auto_create_topics_enable

    def create(self, names: Sequence[str], client: Request) -> None:
        """Begin to create topics for the client that asked for them, at most MAX_UNDER_WAY; returns at once. Its next
        Metadata request finds them, or asks for the rest."""
        if self.is_enabled:
            self._begin(names, client)

    def create_internal(self, name: str) -> None:
        """Begin to create an internal topic, also with auto.create.topics.enable=false; returns at once."""
        fresh = list(self._may_create([name]))
        if fresh:
            self._begin_now(fresh, None)

    def create_dead_letters(self, name: str) -> None:
        """Begin to create a dead-letter topic (KIP-1191); returns at once."""
        self._dead_letters.add(name)
        self.create_internal(name)

    def _begin(self, names: Sequence[str], client: Request) -> None:
        room = MAX_UNDER_WAY - len(self._under_way)
        fresh = list(islice(self._may_create(names), max(room, 0)))
        if fresh:
            self._begin_now(fresh, client)

    def _may_create(self, names: Sequence[str]) -> Iterator[str]:
        """Topics that are neither being created nor in backoff."""
        now_ms = self._clock.now_ms()
        for name in dict.fromkeys(names):
            if name not in self._under_way and self._failed.get(name, (0, now_ms))[1] <= now_ms:
                yield name

    def _begin_now(self, fresh: Sequence[str], client: Request | None) -> None:
        self._under_way.update(dict.fromkeys(fresh))
        self._background.spawn(self._create, list(fresh), client)

    async def _create(self, names: list[str], client: Request | None) -> None:
        """`client`: the request that asked for the topics; None for this broker itself."""
        request = CreateTopicsRequest(topics=[self._topic(name) for name in names], timeout_ms=CREATE_TIMEOUT_MS)
        try:
            if client is None:
                response: CreateTopicsResponse = await self._controller.call(request, timeout_ms=CREATE_TIMEOUT_MS)
            else:
                response = await self.create_for(client, request)
            failed = _log_failures(response)
        except (KafkaError, MalformedMessage) as error:
            log.warning("topics %s could not be created: %s", ", ".join(names), error)
            failed = frozenset(names)
        finally:
            for name in names:
                self._under_way.pop(name, None)
        for name in names:
            if name in failed:
                self._back_off(name)
            else:
                self._failed.pop(name, None)

    async def create_for(self, client: Request, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create topics with the rights of a client. Raises KafkaError or MalformedMessage."""
        spec = API_SPECS[ApiKey.CREATE_TOPICS]
        version = spec.max_version
        header = RequestHeader(
            request_api_key=ApiKey.CREATE_TOPICS,
            request_api_version=version,
            correlation_id=client.correlation_id,
            client_id=client.client_id,
        )
        envelope = EnvelopeRequest(
            request_data=encode(header, spec.request_header_version(version)) + encode(request, version),
            request_principal=written_principal(client.principal),
            client_host_address=written_host(client.peer_host),
        )
        answer: EnvelopeResponse = await self._controller.call(envelope, timeout_ms=CREATE_TIMEOUT_MS)
        if answer.error_code or answer.response_data is None:
            raise KafkaError(ErrorCode(answer.error_code))
        data = memoryview(answer.response_data)
        _, position = decode_prefix(ResponseHeader, data, 0, spec.response_header_version(version))
        return decode(CreateTopicsResponse, data[position:], version)

    def _back_off(self, name: str) -> None:
        """Clients retry at once; a backoff here spares the controller and the log."""
        failures = self._failed.pop(name, (0, 0))[0]
        until_ms = self._clock.now_ms() + doubled_ms(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, failures)
        self._failed[name] = (failures + 1, until_ms)
        if len(self._failed) > MAX_REMEMBERED:
            del self._failed[next(iter(self._failed))]

    def _topic(self, name: str) -> CreatableTopic:
        """Partitions and replication factor from this broker's file; -1, the controller's default, if not set."""
        settings = self._settings()
        count = settings.num_partitions if "num.partitions" in settings.raw else -1
        factor = settings.default_replication_factor if "default.replication.factor" in settings.raw else -1
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor)
        if name in self._dead_letters:
            topic.configs = [CreatableTopicConfig(name=DEAD_LETTERS, value="true")]
        return internal_topic(name, settings) or topic


def _log_failures(response: CreateTopicsResponse) -> frozenset[str]:
    """The topics that could not be created. No client waits for them, so only the log has the reason."""
    failed = [
        topic for topic in response.topics if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    ]
    for topic in failed:
        reason = topic.error_message or ErrorCode(topic.error_code).name
        log.warning("topic %s could not be created: %s", topic.name, reason)
    return frozenset(topic.name for topic in failed)
