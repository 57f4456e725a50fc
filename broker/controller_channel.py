"""The broker's channel to the active controller: finds it, sends requests, and retries when another one took over.

Only requests that are safe to repeat may be sent here (compare-and-set, or idempotent), so that a lost connection is
retried until the deadline, as Kafka's NodeToControllerChannelManager does.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import trio

from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.quorum_endpoints import QuorumEndpointsSource
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.channel import Channel, ChannelError, UnsupportedVersion
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

RETRY_BACKOFF_MS = 50


class ControllerCalls(Protocol):
    """Requests to the active controller. `ControllerChannel` fits."""

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """The response. Raises KafkaError(REQUEST_TIMED_OUT)."""


class ControllerChannel:
    """At most one connection at a time, to the active controller."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        quorum: QuorumEndpointsSource,
        client_id: str,
        security: ChannelSecurity | None = None,
    ) -> None:
        self._security = security
        self._world = world
        self._nursery = nursery
        self._quorum = quorum
        self._client_id = client_id
        self._leader_id: int | None = None
        self._leader_changed = trio.Event()
        self._channel: Channel | None = None
        self._channel_leader_id: int | None = None
        self._channel_address: NodeAddress | None = None

    def leader_is(self, leader_id: int | None) -> None:
        """Record that the quorum of the metadata log has another leader; None if none is known."""
        if leader_id == self._leader_id:
            return
        self._leader_id = leader_id
        if leader_id is not None and leader_id != self._channel_leader_id:
            # The old leader may be gone without closing the connection: do not wait for its response.
            self._close_channel()
        self._leader_changed.set()
        self._leader_changed = trio.Event()

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """Send `request` to the active controller. Raises KafkaError(REQUEST_TIMED_OUT)."""
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                response = await self._try_once(request, timeout_ms)
                if response is not None:
                    return response
        # The network may be broken in one direction only. Heartbeats that still arrive would keep this broker unfenced
        # although it receives nothing; a new connection cannot be opened over such a network.
        self._close_channel()
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no answer from the active controller in {timeout_ms} ms")

    async def _try_once(self, request: Any, timeout_ms: int) -> Any | None:
        changed = self._leader_changed
        known = self._quorum.quorum_endpoints()
        leader_id = known.leader_id
        if leader_id is None or known.leader is None:
            await changed.wait()
            return None
        channel = self._channel_to(leader_id, known.leader)
        try:
            response = await channel.call(request, timeout_ms=timeout_ms)
        except UnsupportedVersion as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        except ChannelError as error:
            log.info("request to controller %d failed: %s", leader_id, error)
        else:
            if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                return response
        # The controller is gone or no longer active: wait until another one is known, or retry.
        with trio.move_on_after(RETRY_BACKOFF_MS / 1000):
            await changed.wait()
        return None

    def _channel_to(self, leader_id: int, address: NodeAddress) -> Channel:
        if self._channel is None or (self._channel_leader_id, self._channel_address) != (leader_id, address):
            self._close_channel()
            self._channel = Channel(
                self._world,
                self._nursery,
                address.host,
                address.port,
                client_id=self._client_id,
                security=self._security,
            )
            self._channel_leader_id, self._channel_address = leader_id, address
        return self._channel

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
