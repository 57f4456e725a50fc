"""The coordinator of one group or one transactional id: looked up when needed, and again when it has moved.

All APIs share the errors of a moved coordinator (`STALE_COORDINATOR`), but have them in different fields, so callers
check responses and call `forget`.
"""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.coordinator_lookup import STALE_COORDINATOR, CoordinatorType, coordinator_in, lookup_request
from barnabas.client.metadata import Node
from barnabas.protocol.messages.find_coordinator import FindCoordinatorResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError, NotSent

__all__ = ["STALE_COORDINATOR", "CoordinatorLink", "CoordinatorType"]


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
        try:
            response: FindCoordinatorResponse = await self._cluster.call_any(lookup_request(self._kind, self.key))
        except (NoBrokerAvailable, ChannelError):
            return None
        found = coordinator_in(response, self.key)
        if not isinstance(found, Node):
            return None
        self._cluster.learn_nodes([found])
        return found.node_id
