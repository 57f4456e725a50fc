"""The view "Topics": all topics with sizes, and one of them with its partitions and configs.

Lists are kept for some seconds, so that a filter that is being typed asks once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from barnabas.client.admin import (
    Admin,
    ConfigEntry,
    ConfigResource,
    LogDirDescription,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from barnabas.client.cluster import TopicPartition
from barnabas.page.access_tables import Filter, Row, page_of
from barnabas.page.asking import Asker

KEPT_SECONDS = 3.0
MOST_PARTITIONS = 200
INTERNAL, OFFLINE, UNDER_REPLICATED, HEALTHY = "internal", "offline", "under-replicated", "healthy"
MOVING = "moving"


@dataclass
class Topics:
    """The topics of one cluster, for all readers."""

    asker: Asker
    has_records: bool = False
    """The REST interface serves the records of topics."""

    def __post_init__(self) -> None:
        self._lock = trio.Lock()
        self._rows: Sequence[Row] = ()
        self._moving = 0
        self._problem = ""
        self._asked_at: float | None = None

    async def listing(self, wanted: Filter) -> dict[str, Any]:
        """One page of the topics. `wanted.principal` is searched in the name, `wanted.resource` in the state. `moving`
        is the number of partitions of all topics that move to other brokers."""
        async with self._lock:
            if self._asked_at is None or trio.current_time() - self._asked_at > KEPT_SECONDS:
                listed, self._problem = await self.asker.ask(_listed)
                self._rows = listed or ()
                self._moving = sum(row["moving"] for row in self._rows)
                self._asked_at = trio.current_time()
        page = await self.asker.in_thread(partial(page_of, self._rows, wanted))
        return page | {"problem": self._problem, "moving": self._moving}

    async def describe(self, topic: str) -> dict[str, Any]:
        """One topic, or the reason why it cannot be shown."""
        found, problem = await self.asker.ask(partial(_described, topic))
        if found is None:
            return {"topic": topic, "problem": problem}
        return found | {"problem": "", "has_records": self.has_records}


async def _listed(admin: Admin) -> list[Row]:
    names = list(await admin.list_topics(list_internal=True))
    described = (await admin.describe_topics(names)).succeeded if names else {}
    sizes = sizes_of((await admin.describe_log_dirs()).succeeded.values())
    moves = Counter(place.topic for place in await admin.list_partition_reassignments())
    return [topic_row(each, sizes, moves[each.name]) for each in described.values()]


def sizes_of(brokers: Iterable[Mapping[str, LogDirDescription]]) -> dict[TopicPartition, int]:
    """Bytes of all replicas of each partition."""
    sizes: dict[TopicPartition, int] = {}
    for directories in brokers:
        for directory in directories.values():
            for place, replica in directory.replicas.items():
                sizes[place] = sizes.get(place, 0) + replica.size_bytes
    return sizes


def topic_row(topic: TopicDescription, sizes: Mapping[TopicPartition, int], moving: int = 0) -> Row:
    """`moving` is the number of its partitions that move to other brokers."""
    state = HEALTHY
    if any(it.leader is None for it in topic.partitions):
        state = OFFLINE
    elif any(len(it.isr) < len(it.replicas) for it in topic.partitions):
        state = UNDER_REPLICATED
    return {
        "who": topic.name,
        "resource": f"{state} {INTERNAL if topic.is_internal else ''} {MOVING if moving else ''}",
        "name": "",
        "state": state,
        "is_internal": topic.is_internal,
        "moving": moving,
        "partitions": len(topic.partitions),
        "replicas": max((len(it.replicas) for it in topic.partitions), default=0),
        "size_bytes": sum(sizes.get(TopicPartition(topic.name, it.partition), 0) for it in topic.partitions),
    }


async def _described(name: str, admin: Admin) -> dict[str, Any]:
    topic = (await admin.describe_topics(name))[name]
    cluster = await admin.describe_cluster()
    shown = topic.partitions[:MOST_PARTITIONS]
    places = [TopicPartition(name, it.partition) for it in shown if it.leader is not None]
    starts = (await admin.list_offsets(dict.fromkeys(places, OffsetSpec.earliest()))).succeeded if places else {}
    ends = (await admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))).succeeded if places else {}
    sizes = sizes_of((await admin.describe_log_dirs()).succeeded.values())
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = (await admin.describe_configs([resource]))[resource]
    moves = await admin.list_partition_reassignments([TopicPartition(name, it.partition) for it in topic.partitions])
    partitions = []
    for it in shown:
        place = TopicPartition(name, it.partition)
        start, end, move = starts.get(place), ends.get(place), moves.get(place)
        partitions.append(
            {
                "partition": it.partition,
                "leader": it.leader,
                "isr": list(it.isr),
                "replicas": list(it.replicas),
                "joining": [] if move is None else list(move.adding_replicas),
                "leaving": [] if move is None else list(move.removing_replicas),
                "start": None if start is None else start.offset,
                "end": None if end is None else end.offset,
                "size_bytes": sizes.get(place),
            }
        )
    return {
        **topic_row(topic, sizes, len(moves)),
        "topic": name,
        "topic_id": topic.topic_id,
        "cluster_id": cluster.cluster_id,
        "rows": partitions,
        "rows_left_out": max(0, len(topic.partitions) - MOST_PARTITIONS),
        "configs": [_config(each) for each in configs.values()],
    }


def _config(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower().replace("_", " "),
        "is_default": entry.is_default,
        "is_sensitive": entry.is_sensitive,
    }
