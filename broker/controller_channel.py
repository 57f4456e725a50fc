"""The broker's way to the active controller: finds it, asks it, asks again when another took over.

Requests that go through here may be repeated without harm (compare-and-set, or answered "already so" the second
time), so a lost connection is simply tried again until the deadline, as Kafka's own channel does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import trio

from protocol.errors import ErrorCode, KafkaError
from runtime.channel import Channel, ChannelError, UnsupportedVersion
from runtime.world import World

log = logging.getLogger(__name__)

RETRY_PAUSE_MS = 50


class ControllerChannel:
    """One connection to whichever controller is active."""

    def __init__(
        self, world: World, nursery: trio.Nursery, endpoints: Mapping[int, tuple[str, int]], client_id: str
    ) -> None:
        """`endpoints`: controller id to (host, port)."""
        self._world = world
        self._nursery = nursery
        self._endpoints = endpoints
        self._client_id = client_id
        self._leader_id: int | None = None
        self._leader_changed = trio.Event()
        self._channel: Channel | None = None
        self._channel_leader_id: int | None = None

    @property
    def leader_id(self) -> int | None:
        """The active controller as far as this broker knows."""
        return self._leader_id

    def leader_is(self, leader_id: int | None) -> None:
        """The metadata log's quorum has another leader (or, with None, none that is known)."""
        if leader_id == self._leader_id:
            return
        self._leader_id = leader_id
        if leader_id is not None and leader_id != self._channel_leader_id:
            # The old one may have gone without a word; nobody shall wait for its answer.
            self._close_channel()
        self._leader_changed.set()
        self._leader_changed = trio.Event()

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """Ask the active controller; gives its answer, or raises KafkaError(REQUEST_TIMED_OUT)."""
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                response = await self._try_once(request, timeout_ms)
                if response is not None:
                    return response
        # What is sent over a connection from which nothing comes may still arrive: heartbeats over it would keep a
        # broker in office that hears of nothing any more. A new one is not to be had over such a way.
        self._close_channel()
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no answer from the active controller in {timeout_ms} ms")

    async def _try_once(self, request: Any, timeout_ms: int) -> Any | None:
        asked = self._leader_id
        changed = self._leader_changed
        if asked is None or asked not in self._endpoints:
            await changed.wait()
            return None
        channel = self._channel_to(asked)
        try:
            response = await channel.call(request, timeout_ms=timeout_ms)
        except UnsupportedVersion as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        except ChannelError as error:
            log.info("request to controller %d failed: %s", asked, error)
        else:
            if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                return response
        # Either the controller is gone or no longer the active one: wait for news of the next, or try it again.
        with trio.move_on_after(RETRY_PAUSE_MS / 1000):
            await changed.wait()
        return None

    def _channel_to(self, leader_id: int) -> Channel:
        if self._channel is None or self._channel_leader_id != leader_id:
            self._close_channel()
            host, port = self._endpoints[leader_id]
            self._channel = Channel(self._world, self._nursery, host, port, client_id=self._client_id)
            self._channel_leader_id = leader_id
        return self._channel

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
