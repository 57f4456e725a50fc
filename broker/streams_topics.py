"""Creates the internal topics of streams groups with the rights of the member whose heartbeat found them missing
(KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.broker.auto_topics import AutoTopics
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.runtime.background import Background
from barnabas.runtime.request import Request
from barnabas.runtime.world import Clock

MOST_REMEMBERED = 1000
"""Errors that are kept. Those that end first are forgotten first."""


class StreamsTopics:
    """Sends CreateTopics to the controller, at most one at a time for each topic. An error is kept for a while: members
    get it with their next heartbeats, and nothing is sent for that topic meanwhile."""

    def __init__(
        self, auto_topics: AutoTopics, background: Background, clock: Clock, request_timeout_ms: int
    ) -> None:
        self._auto_topics = auto_topics
        self._background = background
        self._clock = clock
        self._timeout_ms = request_timeout_ms
        self._under_way: set[str] = set()
        self._errors: dict[str, tuple[str, int]] = {}
        """Message, and the end of its validity in milliseconds, by topic."""

    def create(self, topics: Sequence[CreatableTopic], client: Request, remembered_ms: int) -> None:
        """Begin to create these topics for the client; returns at once. Errors are kept for `remembered_ms`."""
        fresh = [it for it in topics if it.name not in self._under_way and self._error(it.name) is None]
        if fresh:
            self._under_way.update(it.name for it in fresh)
            self._background.spawn(self._create, fresh, client, remembered_ms)

    def errors(self, names: Iterable[str]) -> dict[str, str]:
        """Messages of creations that have failed, by topic."""
        found = ((name, self._error(name)) for name in names)
        return {name: message for name, message in found if message is not None}

    def _error(self, name: str) -> str | None:
        message, until_ms = self._errors.get(name, ("", 0))
        return message if self._clock.now_ms() < until_ms else None

    async def _create(self, topics: list[CreatableTopic], client: Request, remembered_ms: int) -> None:
        request = CreateTopicsRequest(topics=topics, timeout_ms=self._timeout_ms)
        failed: dict[str, str] = {}
        try:
            response = await self._auto_topics.create_for(client, request)
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    failed[topic.name] = topic.error_message or ErrorCode(topic.error_code).name
        except (KafkaError, MalformedMessage) as error:
            failed = dict.fromkeys((it.name for it in topics), str(error))
        finally:
            self._under_way.difference_update(it.name for it in topics)
        until_ms = self._clock.now_ms() + remembered_ms
        for name, message in failed.items():
            self._errors.pop(name, None)
            self._errors[name] = (message, until_ms)
        while len(self._errors) > MOST_REMEMBERED:
            del self._errors[next(iter(self._errors))]
