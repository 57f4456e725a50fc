"""A table in an Iceberg catalogue, by pyiceberg. Its calls block, so each runs in a worker thread.

pyiceberg would repeat a commit that failed on top of whatever the table has become, which is how a process that was
replaced doubles records. So a commit here is one attempt, and names the snapshot that it expects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertTableUUID

from barnabas.lake.arrow_columns import in_columns
from barnabas.lake.catalog_errors import translated
from barnabas.lake.column_types import plain
from barnabas.lake.commits import SnapshotView, TableView, latest_progress
from barnabas.lake.errors import CommitConflict, LakeError, TableChanged
from barnabas.lake.iceberg_files import dead_letter_places, dead_letters_path, found_files, referenced_paths
from barnabas.lake.iceberg_writing import write_rows
from barnabas.lake.progress import PREFIX, Progress
from barnabas.lake.table import Change, Crowd, DataFile
from barnabas.lake.upkeep import CompactionRules, FileSize, crowded, expirable, orphans
from barnabas.runtime.world import RunBlocking

T = TypeVar("T")


class FilesSeen(NamedTuple):
    """One snapshot of a table: what it has, the files with it, and the names of its columns."""

    progress: Progress
    paths: tuple[str, ...]
    columns: tuple[str, ...]


class IcebergTable:
    """One table; `LakeTable` says what the calls do."""

    def __init__(self, catalog: Catalog, table: Table, run_blocking: RunBlocking) -> None:
        self._catalog = catalog
        self._table = table
        self._run_blocking = run_blocking

    @property
    def name(self) -> str:
        return ".".join(self._table.name())

    @property
    def schema(self) -> Any:
        """The columns as a pyarrow schema, in plain types."""
        return pa.schema([pa.field(each.name, plain(each.type)) for each in self._table.schema().as_arrow()])

    @property
    def file_io(self) -> Any:
        """pyiceberg's access to the files, for writers elsewhere."""
        return self._table.io

    @property
    def metadata(self) -> Any:
        """pyiceberg's metadata of the table, for writers elsewhere."""
        return self._table.metadata

    def files_and_progress(self) -> FilesSeen:
        """Paths of the data files of the current snapshot, and what they have. Blocks. `LakeError`."""
        return translated(self.name, self._files_and_progress)

    async def load(self) -> TableView:
        return await self._call(self._load)

    async def write(self, rows: Sequence[Any], prefix: str) -> list[DataFile]:
        return await self._call(partial(self._write, rows, prefix))

    async def write_dead_letters(self, rows: Sequence[Any], name: str) -> str:
        return await self._call(partial(self._write_dead_letters, rows, name))

    async def commit(self, expected: int | None, change: Change) -> TableView:
        return await self._call(partial(self._commit, expected, change))

    async def crowd(self, rules: CompactionRules) -> Crowd | None:
        return await self._call(partial(self._crowd, rules))

    async def rewrite(self, crowd: Crowd, prefix: str) -> list[DataFile]:
        return await self._call(partial(self._rewrite, crowd, prefix))

    async def sweep(self, epoch: int, min_age_ms: int) -> int:
        return await self._call(partial(self._sweep, epoch, min_age_ms))

    async def expire(self, max_age_ms: int) -> int:
        return await self._call(partial(self._expire, max_age_ms))

    def places(self) -> Any:
        """Partition and offset of all rows of the current snapshot, as a pyarrow Table. Blocks."""
        return translated(self.name, self._places)

    def dead_letter_places(self) -> Any:
        """Partition and offset of all dead letters. Blocks."""
        return translated(self.name, partial(dead_letter_places, self._table))

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._run_blocking(partial(translated, self.name, work))

    # ---- in a worker thread

    def _load(self) -> TableView:
        self._refresh()
        return self._view()

    def _refresh(self) -> None:
        found = self._catalog.load_table(self._table.name())
        if found.metadata.table_uuid != self._table.metadata.table_uuid:
            raise TableChanged(f"{self.name} was dropped and created again; start again to fill the new one")
        self._table = found

    def _view(self) -> TableView:
        by_id = {each.snapshot_id: each for each in self._table.metadata.snapshots}
        snapshots = []
        snapshot = self._table.current_snapshot()
        is_cut = False
        while snapshot is not None:
            properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
            own = {name: value for name, value in properties.items() if name.startswith(PREFIX)}
            snapshots.append(SnapshotView(snapshot.snapshot_id, own))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else by_id.get(parent)
            is_cut = parent is not None and snapshot is None
        return TableView(self.name, tuple(snapshots), is_cut)

    def _write(self, rows: Sequence[Any], prefix: str) -> list[DataFile]:
        for schema in dict.fromkeys(each.schema for each in rows):
            self._take_in(schema)
        return [data_file(entry) for entry in write_rows(self._table.io, self._table.metadata, rows, prefix)]

    def _take_in(self, schema: Any) -> None:
        """Add columns that the table does not have yet."""
        with self._table.update_schema() as update:
            update.union_by_name(schema)

    def _write_dead_letters(self, rows: Sequence[Any], name: str) -> str:
        path = f"{dead_letters_path(self._table)}/{name}.parquet"
        with self._table.io.new_output(path).create(overwrite=True) as stream:
            pq.write_table(pa.concat_tables(rows), stream)
        return path

    def _commit(self, expected: int | None, change: Change) -> TableView:
        current = self._table.current_snapshot()
        if (None if current is None else current.snapshot_id) != expected:
            raise CommitConflict(f"{self.name} has another snapshot than {expected}")
        transaction = Transaction(self._table)
        update = transaction.update_snapshot(snapshot_properties=dict(change.properties))
        producer: Any = update.overwrite() if change.remove else update.merge_append()
        with producer:
            for file in change.remove:
                producer.delete_data_file(file.entry)
            for file in change.add:
                producer.append_data_file(file.entry)
        requirements = (*transaction._requirements, AssertTableUUID(uuid=self._table.metadata.table_uuid))
        self._table._do_commit(updates=transaction._updates, requirements=requirements)
        return self._view()

    def _files_and_progress(self) -> FilesSeen:
        progress = latest_progress(self._view())
        if progress is None:
            raise LakeError(f"{self.name} has no snapshot: nothing was written yet")
        tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise LakeError(f"{self.name} has deleted rows, which its files alone do not show")
        paths = tuple(task.file.file_path for task in tasks)
        return FilesSeen(progress, paths, tuple(field.name for field in self.schema))

    def _places(self) -> Any:
        rows = self._table.scan(selected_fields=("metadata.partition", "metadata.offset")).to_arrow()
        return pa.table({name: pc.struct_field(rows["metadata"], name) for name in ("partition", "offset")})

    def _crowd(self, rules: CompactionRules) -> Crowd | None:
        current = self._table.current_snapshot()
        if current is None:
            return None
        files = [
            FileSize(data_file(task.file), str(task.file.partition))
            for task in self._table.scan().plan_files()
            # A file with deleted rows is left to those who delete rows.
            if not task.delete_files and task.file.spec_id == self._table.spec().spec_id
        ]
        chosen = crowded(files, rules)
        return Crowd(current.snapshot_id, [each for each in chosen if isinstance(each, DataFile)]) if chosen else None

    def _rewrite(self, crowd: Crowd, prefix: str) -> list[DataFile]:
        rows = pa.concat_tables([self._rows_of(each.path) for each in crowd.files])
        order = pc.sort_indices(
            pa.table({name: pc.struct_field(rows["metadata"], name) for name in ("partition", "offset")}),
            sort_keys=[("partition", "ascending"), ("offset", "ascending")],
        )
        return self._write([rows.take(order)], prefix)

    def _rows_of(self, path: str) -> Any:
        """The rows of a file, in the columns that the table has now."""
        with self._table.io.new_input(path).open() as stream:
            rows = pq.read_table(pa.BufferReader(stream.read()))
        return in_columns(rows, schema_to_pyarrow(self._table.schema(), include_field_ids=True))

    def _sweep(self, epoch: int, min_age_ms: int) -> int:
        found = found_files(self._table)
        # Read after the list: what is committed meanwhile is not deleted.
        self._refresh()
        before_ms = int(time.time() * 1000) - min_age_ms
        gone = orphans(found, referenced_paths(self._table), epoch, before_ms)
        for path in gone:
            self._table.io.delete(path)
        return len(gone)

    def _expire(self, max_age_ms: int) -> int:
        self._refresh()
        before = int(time.time() * 1000) - max_age_ms
        old = expirable(self._view(), {each.snapshot_id: each.timestamp_ms for each in self._table.snapshots()}, before)
        if old:
            self._table.maintenance.expire_snapshots().by_ids(old).commit()
            self._refresh()
        return len(old)


def data_file(entry: Any) -> DataFile:
    """A file as pyiceberg describes it."""
    return DataFile(entry.file_path, entry.record_count, entry.file_size_in_bytes, entry)
