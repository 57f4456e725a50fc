"""The cluster behind a proxy: its addresses as text, and a first look at it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.login import CLIENT_ID
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.runtime.channel import Channel, ChannelError, ConnectionFailed, UnsupportedVersion
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

LOOK_SECONDS = 10.0


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def ask_target(world: World, servers: Sequence[tuple[str, int]], security: ChannelSecurity | None) -> Any:
    """The Metadata of all topics from the first server that answers; None if that gives none: a controller, or a broker
    that wants a login first. Raises `ClusterError` if no server answers."""
    reasons = []
    async with trio.open_nursery() as nursery:
        for host, port in servers:
            channel = Channel(world, nursery, host, port, client_id=CLIENT_ID, security=security)
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            answer = None
            try:
                await channel.connect(timeout_ms=LOOK_SECONDS * 1000)
                with suppress(UnsupportedVersion, ConnectionFailed):
                    answer = await channel.call(request, timeout_ms=LOOK_SECONDS * 1000)
            except ChannelError as error:
                name, reason = address_text(host, port), " ".join(str(error).split())
                reasons.append(reason if reason.startswith(name) else f"{name}: {reason}")
                continue
            finally:
                channel.close()
            nursery.cancel_scope.cancel()
            return answer
        nursery.cancel_scope.cancel()
    raise ClusterError(f"the cluster does not answer: {'; '.join(reasons)}")
