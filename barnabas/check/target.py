"""The cluster of a run: one of its own, or somebody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from barnabas import Admin, Consumer, NewTopic, TopicPartition, errors
from barnabas.check.errors import CannotRun
from barnabas.check.options import CheckOptions
from barnabas.check.own_cluster import OwnCluster
from barnabas.protocol.errors import KafkaError


@dataclass(frozen=True, slots=True)
class Target:
    """How the checker reaches the cluster, and what it may break there."""

    client: Mapping[str, Any]
    """Settings of the checker's own clients, in snake_case. Nothing is between them and the cluster."""
    cluster: OwnCluster | None
    """None: it is somebody else's, and no broker may be struck."""

    @property
    def servers(self) -> str:
        servers = self.client["bootstrap_servers"]
        return servers if isinstance(servers, str) else ",".join(servers)


@asynccontextmanager
async def target_of(options: CheckOptions, out: Path) -> AsyncIterator[Target]:
    """The cluster as long as the block. Raises `ClusterError`."""
    cluster = OwnCluster(out)
    try:
        if options.client is not None:
            yield Target(options.client, None)
        else:
            await trio.to_thread.run_sync(cluster.up)
            yield Target({"bootstrap_servers": cluster.local.bootstrap_servers}, cluster)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(cluster.close)


@asynccontextmanager
async def topics_of(admin: Admin, target: Target, options: CheckOptions, names: Sequence[str]) -> AsyncIterator[None]:
    """New topics as long as the block; in somebody else's cluster they and the group are deleted at its end. Raises
    `CannotRun` if one of them has records."""
    created = []
    for name in names:
        try:
            await admin.create_topics([NewTopic(name, options.load.partitions)])
            created.append(name)
        except errors.TopicExistsException:
            await _refuse_records(target, name)
    try:
        yield
    finally:
        if target.cluster is None:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _DELETE_S):
                try:
                    await admin.delete_topics(created)
                    await admin.delete_groups([options.names.group], raise_errors=False)
                except KafkaError:
                    pass  # the run is over, whatever stays there


_DELETE_S = 10.0


async def _refuse_records(target: Target, name: str) -> None:
    async with Consumer(**target.client) as consumer:
        places = [TopicPartition(name, it.partition) for it in await consumer.partitions_for(name)]
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    if begins != ends:
        raise CannotRun(f"topic {name} has records; the check needs new topics: --input and --output name others")
