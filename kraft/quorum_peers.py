"""Connections to the other replicas of the metadata log: addresses, channels, and whether they are
alive.

Each peer has two channels, since answers keep their order on a connection: one for fetches, which may wait
long for news, and one for elections, which may not. Knows nothing of roles; the bytes are the channel's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.raft.messages import Fetch, FetchSnapshot, Request
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel
from barnabas.runtime.liveness import process_is_gone
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

PROBE_TIMEOUT_MS = 200
"""Timeout of a probe; one that takes longer is no evidence of anything."""

ConnectionNews = Callable[[int, bool], None]
"""(peer, True if a new connection was refused, False if an established one ended)"""


class QuorumPeers:
    """Mutable; owned by one replica, in whose nursery the channels live."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        addresses: Mapping[int, NodeAddress],
        client_id: str,
        on_news: ConnectionNews,
        security: ChannelSecurity | None = None,
    ) -> None:
        self._security = security
        self._world = world
        self._nursery = nursery
        self._configured = dict(addresses)
        """Bootstrap servers, and the voters of the configuration or of the log."""
        self._learned: dict[int, NodeAddress] = {}
        self._client_id = client_id
        self._on_news = on_news
        self._channels: dict[tuple[int, bool], Channel] = {}

    def address(self, peer_id: int) -> NodeAddress | None:
        return self._configured.get(peer_id) or self._learned.get(peer_id)

    def learn(self, addresses: Mapping[int, NodeAddress]) -> None:
        """Take over addresses from a peer. Those of the voter set take precedence."""
        for peer_id, address in addresses.items():
            if peer_id not in self._configured and self._learned.get(peer_id) != address:
                self._learned[peer_id] = address
                self._close(peer_id)

    def voters_are(self, addresses: Mapping[int, NodeAddress]) -> None:
        """These are the voters now. One that left keeps its address, as one that a peer named: it may still lead."""
        for peer_id in [peer_id for peer_id in self._configured if peer_id >= 0 and peer_id not in addresses]:
            self._learned[peer_id] = self._configured.pop(peer_id)
        for peer_id, address in addresses.items():
            if self.address(peer_id) != address:
                self._close(peer_id)
            self._configured[peer_id] = address

    def _close(self, peer_id: int) -> None:
        for fetches in (True, False):
            channel = self._channels.pop((peer_id, fetches), None)
            if channel is not None:
                channel.close()

    async def call(self, peer_id: int, request: Request, message: Message, timeout_ms: int) -> Any:
        """Send and wait for the response. Raises ChannelError."""
        return await self._channel_for(peer_id, request).call(message, timeout_ms=timeout_ms)

    def ask(
        self, peer_id: int, request: Request, message: Message, timeout_ms: int, answered: Callable[[Any], object]
    ) -> bool:
        """Send at once, as `Channel.send_now`; False, and nothing is sent, if there is no connection yet."""
        channel = self._channel_for(peer_id, request)
        if not channel.ready:
            return False
        channel.send_now(message, answered, timeout_ms=timeout_ms)
        return True

    async def is_gone(self, peer_id: int) -> bool:
        """Dial the peer: True if its host refuses the connection; anything else is no evidence."""
        address = self.address(peer_id)
        if address is None:
            return False
        return await process_is_gone(self._world, address.host, address.port, PROBE_TIMEOUT_MS)

    def _channel_for(self, peer_id: int, request: Request) -> Channel:
        return self._channel(peer_id, isinstance(request, Fetch | FetchSnapshot))

    def _channel(self, peer_id: int, fetches: bool) -> Channel:
        channel = self._channels.get((peer_id, fetches))
        if channel is None:
            address = self.address(peer_id)
            assert address is not None, f"no address of {peer_id} is known"
            channel = Channel(
                self._world,
                self._nursery,
                address.host,
                address.port,
                client_id=self._client_id,
                security=self._security,
            )
            channel.on_closed = lambda refused: self._on_news(peer_id, refused)
            self._channels[peer_id, fetches] = channel
        return channel
