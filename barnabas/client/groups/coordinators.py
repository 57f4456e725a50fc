"""The coordinator of one group or one transactional id: looked up when needed, and again when it has moved.

All APIs share the errors of a moved coordinator (`STALE_COORDINATOR`), but have them in different fields, so callers
check responses and call `forget`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.metadata import Node
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.schema import Message
from runtime.channel import ChannelError, NotSent

STALE_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Errors after which the coordinator has to be looked up again."""


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class CoordinatorLink:
    """Calls to the coordinator of one key, over its own connection. May be used by many tasks at once."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType, key: str) -> None:
        self.key = key
        self._cluster = cluster
        self._kind = kind
        self.answered_by: int | None = None
        """The node that answered the last call."""
        self._node_id: int | None = None
        self._line = f"{kind.name} {key}"
        self._finding = trio.Lock()

    def forget(self) -> None:
        """Look it up again at the next call."""
        self._node_id = None

    async def find(self) -> int:
        """The coordinator's node id; retries until there is one, so the caller bounds the time.

        KafkaError if there will never be one (the key is invalid, or not authorized).
        """
        async with self._finding:
            backoff = self._cluster.backoff()
            while self._node_id is None:
                self._node_id = await self._ask()
                if self._node_id is None:
                    await trio.sleep(backoff.next_ms() / 1000)
            return self._node_id

    async def call(self, request: Message, timeout_ms: int = 0, *, at_most: int | None = None) -> Any:
        """Call the coordinator, after a lookup if necessary. Raises as `Cluster.call`; it is looked up again before the
        next call then.
        """
        timeout_ms = timeout_ms or self._cluster.settings.request_timeout_ms
        node_id: int | None = None
        with trio.move_on_after(timeout_ms / 1000):
            node_id = await self.find()
        if node_id is None:
            raise NotSent(f"no coordinator of {self.key} was found within {timeout_ms} ms")
        try:
            answer = await self._cluster.call(node_id, request, timeout_ms, at_most=at_most, line=self._line)
        except ChannelError:
            self.forget()
            raise
        self.answered_by = node_id
        return answer

    async def _ask(self) -> int | None:
        request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self.key])
        try:
            response: FindCoordinatorResponse = await self._cluster.call_any(request)
        except (NoBrokerAvailable, ChannelError):
            return None
        for found in response.coordinators:
            code = error_code(found.error_code)
            if found.key != self.key:
                continue
            if code is ErrorCode.NONE:
                self._cluster.learn_nodes([Node(found.node_id, found.host, found.port)])
                return found.node_id
            if not code.retriable:
                raise KafkaError(code, found.error_message or f"the coordinator of {self.key}")
        return None
