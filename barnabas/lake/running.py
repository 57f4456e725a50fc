"""Runs `barnabas lake`: one task for each topic, over one client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio
from pyiceberg.catalog import Catalog

from barnabas.client.admin.settings import AdminSettings
from barnabas.client.cluster import Cluster
from barnabas.client.offset_lookup import EARLIEST, LATEST
from barnabas.client.session import open_cluster
from barnabas.cluster.errors import WrongArgument
from barnabas.lake.catalogs import open_catalog, open_table
from barnabas.lake.config import LakeConfig, TableSettings
from barnabas.lake.errors import LakeError
from barnabas.lake.modes import Mode, mode_of
from barnabas.lake.progress import Progress
from barnabas.lake.topic_lake import Account, TopicLake, TopicSource
from barnabas.lake.topic_lookup import find_topic, first_offsets
from barnabas.lake.topic_reader import TopicReader, TopicToRead

TOPIC_KNOWN_MS = 5_000
"""A topic that was just created is known to all brokers by then."""
Claimed = Callable[[str, Progress], None]
"""Called with the name of a table that this process writes now, and what the table has."""


async def run_lake(
    config: LakeConfig, clients: Mapping[str, Any], *, available_now: bool, claimed: Claimed
) -> dict[str, Account]:
    """Write all tables until cancelled; with `available_now`, up to the ends that the topics have at the start.

    The first table that cannot be written ends all. Raises `LakeError`, KafkaError, `WrongArgument`. Returns accounts
    by table.
    """
    identifiers = [table.identifier for table in config.tables]
    for identifier in identifiers:
        if identifiers.count(identifier) > 1:
            raise WrongArgument(f"two topics would write table {identifier}: give one of them another name")
    modes = [mode_of(table, config.schema_registry) for table in config.tables]
    accounts: dict[str, Account] = {}
    catalog = await trio.to_thread.run_sync(open_catalog, config.catalog)
    async with open_cluster(AdminSettings.of(clients)) as cluster, trio.open_nursery() as nursery:
        for settings, mode in zip(config.tables, modes, strict=True):
            lake = await _lake_of(config, settings, mode, catalog, cluster, available_now)
            accounts[settings.identifier] = lake.account
            nursery.start_soon(lake.run, partial(claimed, settings.identifier))
    return accounts


async def _lake_of(
    config: LakeConfig, settings: TableSettings, mode: Mode, catalog: Catalog, cluster: Cluster, available_now: bool
) -> TopicLake:
    timeout_ms = min(cluster.settings.request_timeout_ms, TOPIC_KNOWN_MS)
    topic_id, partitions = await find_topic(cluster, settings.topic, timeout_ms)
    first = await first_offsets(cluster, settings.topic, partitions, EARLIEST)
    last = await first_offsets(cluster, settings.topic, partitions, LATEST)
    world = cluster.world
    table = await world.run_blocking(
        partial(open_table, catalog, settings.identifier, mode.schema, world.run_blocking, settings.partition_by)
    )
    convert = mode.convert(table.name, table.schema)
    reading = TopicToRead(settings.topic, topic_id, convert, config.skip_lost or settings.skip_lost)
    source = TopicSource(
        settings.topic,
        topic_id,
        last if settings.start == "latest" else first,
        last if available_now else None,
        lambda progress: TopicReader(cluster, reading, progress.offsets, progress.leader_epochs),
    )
    return TopicLake(table, source, settings.habits(config.habits), world)


__all__ = ["Claimed", "LakeError", "run_lake"]
