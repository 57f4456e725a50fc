"""A client from its opening to its end: the tasks it needs run in a nursery of its own, and none outlives the block.

`async with` opens and closes. A block that raises several errors at once raises the first that is not a cancellation:
who uses a client does not see its tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from barnabas.client.cluster import Cluster, ClusterSettings
from barnabas.client.settings import ClientSettings
from runtime.real import real_world
from runtime.world import World


@asynccontextmanager
async def open_cluster(settings: ClientSettings, world: World | None = None) -> AsyncIterator[Cluster]:
    """One client's view of a cluster for the length of the block; nothing is dialled yet. None is the real world."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(
            world or real_world(),
            nursery,
            settings.addresses,
            client_id=settings.client_id,
            settings=ClusterSettings(
                request_timeout_ms=settings.request_timeout_ms,
                retry_backoff_ms=settings.retry_backoff_ms,
                retry_backoff_max_ms=settings.retry_backoff_max_ms,
                socket_connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
                allow_auto_create_topics=settings.allow_auto_create_topics,
            ),
        )
        try:
            yield cluster
        finally:
            cluster.close()
            nursery.cancel_scope.cancel()
