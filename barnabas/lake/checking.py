"""`barnabas lake check` and `status`: reads a table, and the topic that it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import trio

from barnabas.client.cluster import Cluster
from barnabas.client.offset_lookup import EARLIEST, LATEST
from barnabas.lake.commits import latest_progress, recreated
from barnabas.lake.errors import LakeError, TopicChanged
from barnabas.lake.iceberg import IcebergTable
from barnabas.lake.pieces import Piece
from barnabas.lake.progress import Progress
from barnabas.lake.topic_lookup import find_topic, first_offsets
from barnabas.lake.topic_reader import TopicReader, TopicToRead
from barnabas.lake.verdict import Evidence, Offsets, Verdict, judge
from barnabas.pipeline.columns import Columns

WAITING_PIECES = 4


async def progress_of_table(table: IcebergTable) -> Progress:
    """`LakeError` if no snapshot says which offsets the table has."""
    progress = latest_progress(await table.load())
    if progress is None:
        raise LakeError(f"{table.name} has no snapshot: nothing was written yet")
    return progress


async def lag_of(cluster: Cluster, table: str, progress: Progress) -> int:
    """Offsets up to the last stable offset. `TopicChanged` if the topic is another one."""
    await _same_topic(cluster, table, progress)
    ends = await first_offsets(cluster, progress.topic, _partitions(cluster, progress), LATEST)
    return sum(max(0, end - progress.offsets.get(partition, 0)) for partition, end in ends.items())


async def check(cluster: Cluster, table: IcebergTable, *, is_compacted: bool) -> Verdict:
    """Compare the table with its topic. `LakeError`; KafkaError."""
    progress = await progress_of_table(table)
    await _same_topic(cluster, table.name, progress)
    starts = await first_offsets(cluster, progress.topic, _partitions(cluster, progress), EARLIEST)
    run_blocking = cluster.world.run_blocking
    rows, dead = await run_blocking(table.places), await run_blocking(table.dead_letter_places)
    log = await _log_of(cluster, progress, starts)
    return judge(Evidence(progress, by_partition(rows), by_partition(dead), log, starts, is_compacted))


async def _same_topic(cluster: Cluster, table: str, progress: Progress) -> None:
    topic_id, _ = await find_topic(cluster, progress.topic, cluster.settings.request_timeout_ms)
    if topic_id != progress.topic_id:
        raise TopicChanged(recreated(table, progress, topic_id))


def _partitions(cluster: Cluster, progress: Progress) -> list[int]:
    return [info.partition for info in cluster.metadata.partitions(progress.topic)]


async def _log_of(cluster: Cluster, progress: Progress, starts: Mapping[int, int]) -> dict[int, Offsets]:
    """Offsets of committed records between `starts` and the progress of the table."""
    found: dict[int, list[Offsets]] = {}
    behind = {partition for partition, end in progress.offsets.items() if starts.get(partition, 0) < end}
    reading = TopicToRead(progress.topic, progress.topic_id, _places)
    begins = {partition: max(starts.get(partition, 0), 0) for partition in progress.offsets}
    send, receive = trio.open_memory_channel[Piece](WAITING_PIECES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(TopicReader(cluster, reading, begins).run, send)
        while behind:
            piece = await receive.receive()
            if piece.rows is not None:
                found.setdefault(piece.partition, []).append(piece.rows["offset"].to_numpy())
            if piece.next_offset >= progress.offsets.get(piece.partition, 0):
                behind.discard(piece.partition)
        nursery.cancel_scope.cancel()
    return {partition: np.concatenate(each) for partition, each in found.items()}


def _places(partition: int, columns: Columns) -> tuple[Any, None]:
    return pa.table({"offset": pa.array(columns.offsets)}), None


def by_partition(places: Any) -> dict[int, Offsets]:
    """Offsets by partition of a pyarrow Table with `partition` and `offset`."""
    partitions = places["partition"].to_numpy()
    offsets = places["offset"].to_numpy()
    return {int(each): offsets[partitions == each] for each in np.unique(partitions)}
