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
from barnabas.runtime.link import NotSent
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

LOOK_SECONDS = 10.0
STARTING_SECONDS = 3.0
"""A cluster that refuses connections for less may have been started in the same moment."""
RETRY_SECONDS = 0.1


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def ask_target(world: World, servers: Sequence[tuple[str, int]], security: ChannelSecurity | None) -> Any:
    """The Metadata of all topics from the first server that answers; None if that gives none: a controller, or a broker
    that wants a login first. Raises `ClusterError` if no server answers."""
    patient_until = trio.current_time() + STARTING_SECONDS
    while True:
        try:
            return await _ask_once(world, servers, security)
        except _NobodyAnswers as error:
            if not error.all_refused or trio.current_time() > patient_until:
                raise
        await trio.sleep(RETRY_SECONDS)


class _NobodyAnswers(ClusterError):
    def __init__(self, reasons: Sequence[str], *, all_refused: bool) -> None:
        super().__init__(f"the cluster does not answer: {'; '.join(reasons)}")
        self.all_refused = all_refused


async def _ask_once(world: World, servers: Sequence[tuple[str, int]], security: ChannelSecurity | None) -> Any:
    reasons, all_refused = [], True
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
                all_refused = all_refused and isinstance(error, NotSent) and error.refused
                name, reason = address_text(host, port), " ".join(str(error).split())
                reasons.append(reason if reason.startswith(name) else f"{name}: {reason}")
                continue
            finally:
                channel.close()
            nursery.cancel_scope.cancel()
            return answer
        nursery.cancel_scope.cancel()
    raise _NobodyAnswers(reasons, all_refused=all_refused)
