"""Opening and closing a client: its tasks run in its own nursery, and none outlives the `async with` block.

A block that raises several errors at once raises the first one that is not a cancellation, so that users do not see the
client's tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.cluster_settings import ClusterSettings
from barnabas.client.settings import ClientSettings
from barnabas.runtime.network import canonical_names
from barnabas.runtime.real import real_world
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

CANONICAL = "resolve_canonical_bootstrap_servers_only"


@asynccontextmanager
async def open_cluster(
    settings: ClientSettings,
    world: World | None = None,
    *,
    metadata_max_idle_ms: int | None = None,
) -> AsyncIterator[Cluster]:
    """One client's view of a cluster for the length of the block; nothing is dialled yet. None means the real world.
    ConfigException for a security setting whose file cannot be used.

    `metadata_max_idle_ms`: topics that were not used for this long are no longer refreshed; None: all topics are.
    """
    addresses = settings.addresses
    world_or_real = world or real_world()
    if settings.client_dns_lookup == CANONICAL and world is None:
        addresses = [(name, port) for host, port in addresses for name in await canonical_names(host)]
    thrown: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(
                world_or_real,
                nursery,
                addresses,
                client_id=settings.client_id,
                settings=cluster_settings_of(settings, metadata_max_idle_ms),
                security=_security(settings, world_or_real, nursery),
            )
            try:
                yield cluster
            except BaseException as error:
                thrown = error
                raise
            finally:
                cluster.close()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if thrown is not None and not isinstance(thrown, trio.Cancelled):
            raise thrown from thrown.__cause__
        failure = first_failure(group)
        if failure is None:
            raise
        raise failure from failure.__cause__


def _security(settings: ClientSettings, world: World, nursery: trio.Nursery) -> ChannelSecurity | None:
    if not settings.encrypts and not settings.authenticates:
        return None
    # Clients without TLS and SASL do not load their modules.
    from barnabas.client.security import channel_security

    return channel_security(settings, world, nursery)


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The first error of the group that is not a cancellation; None if there is none."""
    for error in group.exceptions:
        found = first_failure(error) if isinstance(error, BaseExceptionGroup) else error
        if found is not None and not isinstance(found, trio.Cancelled):
            return found
    return None


def cluster_settings_of(settings: ClientSettings, metadata_max_idle_ms: int | None = None) -> ClusterSettings:
    return ClusterSettings(
        request_timeout_ms=settings.request_timeout_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        reconnect_backoff_ms=settings.reconnect_backoff_ms,
        reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
        socket_connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=settings.connections_max_idle_ms,
        metadata_max_age_ms=settings.metadata_max_age_ms,
        metadata_max_idle_ms=metadata_max_idle_ms,
        metadata_recovery_strategy=settings.metadata_recovery_strategy,
        metadata_recovery_rebootstrap_trigger_ms=settings.metadata_recovery_rebootstrap_trigger_ms,
        allow_auto_create_topics=settings.allow_auto_create_topics,
    )
