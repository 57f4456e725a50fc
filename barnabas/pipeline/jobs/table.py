"""A topic into a table of `barnabas lake`, by Spark: many executors write files, the driver commits them.

It takes turns with `barnabas lake run`: both claim the table, commit in the same way, and continue from the summary of
the table's snapshot. A job is one commit. Files of tasks that failed or ran twice are orphans.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.lake.rows import key_value_rows
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import Bootstrap
from barnabas.pipeline.columns import Window
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.jobs.topics import Bounds, TopicIdentity, bounds, find, require_same
from barnabas.pipeline.planner import OffsetRange, ranges_between, split
from barnabas.pipeline.range_reader import Reading, read_range
from barnabas.pipeline.spark_errors import in_one_line
from barnabas.protocol.primitives import uuid_from_string

MODE = "key_value"


@dataclass(frozen=True)
class TableJob:
    """The topic and the table."""

    bootstrap: Bootstrap
    topic: str
    table: str
    catalog: str
    """A value of `barnabas lake --catalog`."""
    warehouse: str = ""
    catalog_properties: Mapping[str, str] = field(default_factory=dict)
    records_per_task: int = 1_000_000


@dataclass(frozen=True)
class _Part:
    """Work of one task."""

    bootstrap: Bootstrap
    topic_id: str
    range: OffsetRange
    epoch: int
    io: Any
    metadata: Any
    """pyiceberg's, of the table."""


def fill(session: Any, job: TableJob) -> Mapping[str, Any]:
    """Add the records that are committed now to the table; returns the account. PipelineError."""
    import trio

    from barnabas.lake.catalogs import CatalogAddress, open_catalog, open_table
    from barnabas.lake.committer import Committer
    from barnabas.lake.config import TableSettings
    from barnabas.lake.errors import LakeError
    from barnabas.lake.iceberg import data_file
    from barnabas.lake.modes import mode_of
    from barnabas.lake.pieces import Batch
    from barnabas.runtime.real import real_world

    mode = mode_of(TableSettings.model_validate({"topic": job.topic, "mode": MODE}), "")
    world = real_world()
    with BlockingCluster(job.bootstrap) as cluster:
        identity = find(cluster, job.topic)
        known = bounds(cluster, identity)
        try:
            catalog = open_catalog(CatalogAddress(job.catalog, job.warehouse, job.catalog_properties))
            table = open_table(catalog, job.table, mode.schema, world.run_blocking)
            mode.convert(table.name, table.schema)
            committer = Committer(table, world)
            starts = {partition: each.start for partition, each in known.items()}
            progress = trio.run(committer.claim, job.topic, identity.topic_id, starts)
            ranges = _ranges(identity, known, progress.offsets)
            parts = [
                _Part(job.bootstrap, identity.topic_id, each, progress.epoch, table.file_io, table.metadata)
                for each in split(ranges, session.sparkContext.defaultParallelism, job.records_per_task)
            ]
            with in_one_line():
                written = session.sparkContext.parallelize(parts, max(1, len(parts))).map(_write).collect()
            require_same(cluster, identity)
            files = [data_file(entry) for entries in written for entry in entries]
            offsets = {each.partition.partition: each.until_offset for each in ranges}
            if offsets:
                # The epoch of the last record is not known here: what was known is forgotten.
                batch = Batch(offsets, leader_epochs=dict.fromkeys(offsets))
                progress = trio.run(committer.commit, batch, files)
        except LakeError as error:
            raise PipelineError(str(error)) from None
    return {
        "topic": job.topic,
        "table": job.table,
        "records": sum(file.records for file in files),
        "files": len(files),
        "epoch": progress.epoch,
        "offsets": {str(partition): offset for partition, offset in sorted(progress.offsets.items())},
    }


def _ranges(identity: TopicIdentity, known: Mapping[int, Bounds], offsets: Mapping[int, int]) -> list[OffsetRange]:
    starts, ends = {}, {}
    for partition, each in known.items():
        name = TopicPartition(identity.topic, partition)
        starts[name] = offsets.get(partition, 0)
        ends[name] = max(each.end, starts[name])
        if starts[name] < each.start:
            raise PipelineError(
                f"{name}: the records from offset {starts[name]} to {each.start - 1} were deleted before the table had"
                " them; `barnabas lake run --skip-lost` continues after them"
            )
        if each.end < starts[name]:
            raise PipelineError(f"{name} ends at offset {each.end}, but the table has offsets up to {starts[name]}")
    return ranges_between(starts, ends)


def _write(part: _Part) -> list[Any]:
    """Read a range and write it into files, in a task."""
    from barnabas.lake.iceberg_writing import write_rows

    reading = Reading(
        part.range.partition,
        Window(part.range.from_offset, part.range.until_offset),
        uuid_from_string(part.topic_id),
        Isolation.READ_COMMITTED,
        include_headers=True,
    )
    to_rows = partial(key_value_rows, part.range.partition.partition)
    with BlockingCluster(part.bootstrap) as cluster:
        rows = [to_rows(columns) for columns in read_range(cluster, reading)]
    # Each attempt of a task has names of its own.
    prefix = f"barnabas-{part.epoch:06d}-{uuid.uuid4().hex}"
    return write_rows(part.io, part.metadata, rows, prefix) if rows else []
