"""Topics that are made because somebody asked for them (auto.create.topics.enable, MB-09), and those that
coordinators need.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from broker.forwarding import ANONYMOUS, address_bytes
from broker.internal_topics import internal_topic
from protocol.api_keys import API_SPECS, ApiKey
from protocol.errors import ErrorCode, KafkaError, MalformedMessage
from protocol.headers import RequestHeader, ResponseHeader
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.schema import decode, decode_prefix, encode

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)

CREATE_TIMEOUT_MS = 30_000
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 50, 2000
"""After a refusal the controller is not asked for that topic again for so long; each further refusal doubles it."""
MAX_REMEMBERED = 1000

MOST_UNDER_WAY = 64
"""Topics that are being created at a time. Who asks for more of them asks again for the others."""


class AutoTopics:
    """Asks the controller for missing topics, once for each while the answer is outstanding."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._under_way: dict[str, None] = {}
        self._refused: dict[str, tuple[int, int]] = {}
        """The last pause of topics that could not be created, and when it ends, in milliseconds."""

    def create(self, names: Sequence[str]) -> None:
        """Begin to create the topics, or some of very many; returns at once. The client's next Metadata request finds
        them, or asks for the others."""
        if self._broker.settings.auto_create_topics_enable:
            self._begin(names)

    def create_internal(self, name: str) -> None:
        """Begin to create a coordinator's topic, whatever auto.create.topics.enable says; returns at once."""
        fresh = list(self._not_refused([name]))
        if fresh:
            self._begin_now(fresh)

    def _begin(self, names: Sequence[str]) -> None:
        room = MOST_UNDER_WAY - len(self._under_way)
        fresh = list(islice(self._not_refused(names), max(room, 0)))
        if fresh:
            self._begin_now(fresh)

    def _not_refused(self, names: Sequence[str]) -> Iterator[str]:
        """Topics that are not being created, and that the controller may be asked for again."""
        now_ms = self._broker.world.monotonic.now_ms()
        for name in dict.fromkeys(names):
            if name not in self._under_way and self._refused.get(name, (0, now_ms))[1] <= now_ms:
                yield name

    def _begin_now(self, fresh: Sequence[str]) -> None:
        self._under_way.update(dict.fromkeys(fresh))
        self._broker.background.spawn(self._create, list(fresh))

    async def _create(self, names: list[str]) -> None:
        spec = API_SPECS[ApiKey.CREATE_TOPICS]
        version = spec.max_version
        request = CreateTopicsRequest(topics=[self._topic(name) for name in names], timeout_ms=CREATE_TIMEOUT_MS)
        header = RequestHeader(
            request_api_key=ApiKey.CREATE_TOPICS, request_api_version=version, client_id="auto-create"
        )
        data = encode(header, spec.request_header_version(version)) + encode(request, version)
        envelope = EnvelopeRequest(
            request_data=data, request_principal=ANONYMOUS, client_host_address=address_bytes("127.0.0.1")
        )
        try:
            answer: EnvelopeResponse = await self._broker.controller.call(envelope, timeout_ms=CREATE_TIMEOUT_MS)
            failed = _tell_failures(answer, version)
        except (KafkaError, MalformedMessage) as error:
            log.warning("topics %s could not be created: %s", ", ".join(names), error)
            failed = frozenset(names)
        finally:
            for name in names:
                self._under_way.pop(name, None)
        for name in names:
            if name in failed:
                self._pause(name)
            else:
                self._refused.pop(name, None)

    def _pause(self, name: str) -> None:
        """Clients ask again at once; neither the controller nor the log need to hear each of them."""
        pause_ms = min(2 * self._refused.pop(name, (FIRST_PAUSE_MS // 2, 0))[0], LONGEST_PAUSE_MS)
        self._refused[name] = (pause_ms, self._broker.world.monotonic.now_ms() + pause_ms)
        if len(self._refused) > MAX_REMEMBERED:
            del self._refused[next(iter(self._refused))]

    def _topic(self, name: str) -> CreatableTopic:
        """As this broker's file says; -1, the controller's own value, where it says nothing."""
        settings = self._broker.settings
        count = settings.num_partitions if "num.partitions" in settings.raw else -1
        factor = settings.default_replication_factor if "default.replication.factor" in settings.raw else -1
        return internal_topic(name, settings) or CreatableTopic(
            name=name, num_partitions=count, replication_factor=factor
        )


def _tell_failures(answer: EnvelopeResponse, version: int) -> frozenset[str]:
    """The topics that could not be created. Nobody waits for them, so the log is the one place that says why."""
    if answer.error_code or answer.response_data is None:
        raise KafkaError(ErrorCode(answer.error_code))
    header_version = API_SPECS[ApiKey.CREATE_TOPICS].response_header_version(version)
    data = memoryview(answer.response_data)
    _, position = decode_prefix(ResponseHeader, data, 0, header_version)
    failed = [
        topic
        for topic in decode(CreateTopicsResponse, data[position:], version).topics
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    ]
    for topic in failed:
        log.warning("topic %s could not be created: %s", topic.name, topic.error_message)
    return frozenset(topic.name for topic in failed)
