"""A blocking cluster client with scripted brokers: one response, or one failure, for each call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.client.coordinator_lookup import CoordinatorType
from barnabas.pipeline.addresses import Address
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.schema import Message, decode, encode

Answer = Message | Exception | Callable[[Any], Message]


class ScriptedCluster(BlockingCluster):
    """Records requests. Responses are encoded and decoded in the requested version."""

    def __init__(self, *answers: Answer, retry_timeout_ms: int = 5_000) -> None:
        super().__init__("127.0.0.1:1", retry_timeout_ms=retry_timeout_ms)
        self.answers: deque[Answer] = deque(answers)
        self.asked: list[Any] = []
        self.versions: list[int | None] = []

    def call(self, node_id: int | None, request: Message, *, version: int | None = None) -> Any:
        spec = API_SPECS[ApiKey(request.API_KEY)]
        spoken = spec.max_version if version is None else version
        self.asked.append(decode(spec.request_type(), encode(request, spoken), spoken))
        self.versions.append(version)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, Message):
            answer = answer(request)
        return decode(spec.response_type(), encode(answer, spoken), spoken)

    def _find_coordinator(self, key: str, kind: CoordinatorType | int) -> tuple[int, Address]:
        return 1, Address("127.0.0.1", 1)
