"""Rows to Parquet files of an Iceberg table, which are not in the table yet. Blocks; imports no event loop, since
Spark's executors write such files, too.

pyiceberg's own writer makes empty lists of null ones, so files are written by pyarrow, and described by pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    _determine_partitions,
    _get_parquet_writer_kwargs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record

from barnabas.lake.arrow_columns import in_columns
from barnabas.lake.column_types import RESERVED

TIMESTAMP = f"{RESERVED}.timestamp"
DAY_US = 86_400_000_000
FILE_BYTES = 512 * 1024 * 1024
"""Memory of the rows of one file; as Parquet they are several times smaller."""
ROW_GROUP_ROWS = 262_144


def write_rows(io: FileIO, metadata: TableMetadata, rows: Sequence[Any], prefix: str) -> list[DataFile]:
    """Write pyarrow Tables, whose columns the table has: one file or more for each of its partitions. Names of files
    begin with `prefix`. Returns pyiceberg's descriptions."""
    schema = schema_to_pyarrow(metadata.schema(), include_field_ids=True)
    whole = pa.concat_tables([in_columns(each, schema) for each in rows])
    parts = [(key, part) for key, each in _partitions(metadata, whole) for part in _cut(each)]
    return [
        _write_file(io, metadata, f"{prefix}-{number:05d}.parquet", key, part)
        for number, (key, part) in enumerate(parts)
    ]


def _partitions(metadata: TableMetadata, rows: Any) -> list[tuple[PartitionKey | None, Any]]:
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        return [(None, rows)]
    [first, *more] = spec.fields
    if more or not isinstance(first.transform, DayTransform) or schema.find_column_name(first.source_id) != TIMESTAMP:
        # A partitioning of somebody else; needs the package pyiceberg-core.
        found = _determine_partitions(spec=spec, schema=schema, arrow_table=rows)
        return [(each.partition_key, each.arrow_table_partition) for each in found]
    days = days_of(pc.struct_field(rows[RESERVED].combine_chunks(), "timestamp"))
    return [
        (
            PartitionKey([PartitionFieldValue(first, day)], spec, schema),
            rows if len(days.unique()) == 1 else rows.filter(days.is_null() if day is None else pc.equal(days, day)),
        )
        for day in days.unique().to_pylist()
    ]


def days_of(timestamps: Any) -> Any:
    """Days since 1970 of a pyarrow array of timestamps, as Iceberg's transform `day` has them; null stays null."""
    micros = timestamps.cast(pa.int64())
    days = micros.fill_null(0).to_numpy(zero_copy_only=False) // DAY_US
    return pa.array(days, pa.int32(), mask=timestamps.is_null().to_numpy(zero_copy_only=False))


def _cut(rows: Any) -> Iterator[Any]:
    count = max(1, len(rows) * FILE_BYTES // max(rows.nbytes, FILE_BYTES))
    for begin in range(0, len(rows), count):
        yield rows.slice(begin, count)


def _write_file(io: FileIO, metadata: TableMetadata, name: str, key: PartitionKey | None, rows: Any) -> DataFile:
    locations = load_location_provider(metadata.location, metadata.properties)
    path = locations.new_data_location(name, key)
    output = io.new_output(path)
    written: list[Any] = []
    with output.create(overwrite=True) as stream:
        pq.write_table(
            rows,
            stream,
            row_group_size=ROW_GROUP_ROWS,
            store_decimal_as_integer=True,
            metadata_collector=written,
            **_get_parquet_writer_kwargs(metadata.properties),
        )
    statistics = data_file_statistics_from_parquet_metadata(
        written[0],
        compute_statistics_plan(metadata.schema(), metadata.properties),
        parquet_path_to_id_mapping(metadata.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition if key is not None else Record(),
        file_size_in_bytes=len(output),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
