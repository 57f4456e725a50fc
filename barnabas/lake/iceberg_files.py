"""Files of an Iceberg table: those in the store, and those that snapshots have. Blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from barnabas.lake.dead_letters import SCHEMA
from barnabas.lake.upkeep import FoundFile


def found_files(table: Table) -> list[FoundFile]:
    """All files below the table's directory for data."""
    return _files_below(table, table.location_provider().data_path)


def dead_letters_path(table: Table) -> str:
    """Directory of the table's dead letters."""
    return f"{table.location().rstrip('/')}/dead-letters"


def dead_letter_places(table: Table) -> Any:
    """Partition and offset of all dead letters, as a pyarrow Table."""
    wanted = SCHEMA.empty_table().select(["partition", "offset"])
    found = [wanted]
    for file in _files_below(table, dead_letters_path(table)):
        with table.io.new_input(file.path).open() as stream:
            found.append(pq.read_table(pa.BufferReader(stream.read()), columns=["partition", "offset"]))
    return pa.concat_tables(found)


def _files_below(table: Table, place: str) -> list[FoundFile]:
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        return []
    scheme, netloc, path = PyArrowFileIO.parse_location(place, io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    prefix = place.removesuffix(path)
    return [
        FoundFile(prefix + each.path, int(each.mtime_ns // 1_000_000))
        for each in system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
        if each.type is FileType.File and each.mtime_ns is not None
    ]


def referenced_paths(table: Table) -> set[str]:
    """Paths of the data files of all snapshots."""
    return {entry.data_file.file_path for entry in _entries(table)}


def _entries(table: Table) -> Iterator[Any]:
    seen: set[str] = set()
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)
