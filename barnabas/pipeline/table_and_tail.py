"""A table of `barnabas lake` and the records of its topic that it does not have yet, as one DataFrame.

    from barnabas.pipeline.table_and_tail import table_and_tail

    orders = table_and_tail(spark, "topics.orders", "127.0.0.1:9092", catalog="sqlite:///lake.db")
    orders.groupBy("metadata.partition").count().show()

Both sides go by one snapshot of the table: its files have the records below its offsets, and the brokers give those
from its offsets on. So each record is there once, however often it is committed to the table meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from barnabas.pipeline.cluster_access import Bootstrap, access_of
from barnabas.pipeline.errors import PipelineError

COLUMNS = ("metadata", "key", "value")
SCHEMA = (
    "metadata struct<partition: int, offset: bigint, timestamp: timestamp,"
    " headers: array<struct<key: string, value: binary>>>, key binary, value binary"
)


def table_and_tail(
    session: Any,
    table: str,
    bootstrap: Bootstrap,
    *,
    catalog: str,
    warehouse: str = "",
    catalog_properties: Mapping[str, str] | None = None,
) -> Any:
    """A DataFrame with the columns of a table in key_value mode. It reads the table as it is now, and the topic up to
    its end at each action.

    PipelineError if the table is in another mode, was not written by `barnabas lake`, or has rows that were deleted.
    """
    from barnabas.lake.catalogs import CatalogAddress, existing_table, open_catalog
    from barnabas.lake.errors import LakeError
    from barnabas.runtime.real import real_world

    address = CatalogAddress(catalog, warehouse, catalog_properties or {})
    try:
        seen = existing_table(open_catalog(address), table, real_world().run_blocking).files_and_progress()
    except LakeError as error:
        raise PipelineError(str(error)) from None
    if seen.columns != COLUMNS:
        raise PipelineError(f"table {table} is not in key_value mode: its columns are {', '.join(seen.columns)}")
    old = session.createDataFrame([], SCHEMA)
    if seen.paths:
        old = session.read.schema(SCHEMA).parquet(*seen.paths)
    offsets = {str(partition): offset for partition, offset in sorted(seen.progress.offsets.items())}
    return old.unionByName(_tail(session, seen.progress.topic, offsets, bootstrap))


def _tail(session: Any, topic: str, offsets: Mapping[str, int], bootstrap: Bootstrap) -> Any:
    from pyspark.sql import functions as F

    frame = (
        session.read.format("barnabas")
        .options(**access_of(bootstrap).options)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: offsets}))
        .load()
    )
    place = F.struct("partition", "offset", "timestamp", "headers")
    return frame.select(place.alias("metadata"), "key", "value")
