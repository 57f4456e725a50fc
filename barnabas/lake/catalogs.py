"""Opens an Iceberg catalogue, and makes tables in it.

The address chooses the kind: http(s) is a REST catalogue, a URL of SQLAlchemy (`sqlite:///lake.db`) is a SQL
catalogue, and a word is the name of a catalogue in pyiceberg's own configuration (`.pyiceberg.yaml`, PYICEBERG_…).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform

from barnabas.cluster.errors import WrongArgument
from barnabas.lake.catalog_errors import in_one_line, translated
from barnabas.lake.errors import LakeError
from barnabas.lake.iceberg import IcebergTable
from barnabas.runtime.world import RunBlocking

NAME = "barnabas"
"""Name of a SQL catalogue: several may be in one database."""
DAY = "metadata_day"
BY_DAY, NOT_AT_ALL = "day", "none"

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of a table at its creation. Others may change them later."""


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """Where the catalogue is."""

    uri: str
    warehouse: str = ""
    """Directory or URL below which new tables are; in a REST catalogue the name of one of its warehouses, and it may
    have only one."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of pyiceberg's catalogue: `s3.endpoint`, `token`, …"""


def open_catalog(address: CatalogAddress) -> Catalog:
    """`WrongArgument` for an address that cannot be, `LakeError` if the catalogue does not answer."""
    properties = dict(address.properties)
    if address.warehouse:
        properties["warehouse"] = address.warehouse if _is_rest(address.uri) else _as_url(address.warehouse)
    return translated(f"at {address.uri}", partial(_open, address.uri, properties))


def _open(uri: str, properties: dict[str, str]) -> Catalog:
    if _is_rest(uri):
        return RestCatalog(NAME, uri=uri, **properties)
    if "://" not in uri:
        try:
            return load_catalog(uri, **properties)
        except ValueError as error:
            raise WrongArgument(
                f"--catalog {uri}: neither a URL, such as sqlite:///lake.db or https://host/, nor a catalogue in"
                f" pyiceberg's configuration: {in_one_line(error)}"
            ) from None
    try:
        return SqlCatalog(NAME, uri=uri, **properties)
    except ImportError as error:
        raise WrongArgument(f"--catalog {uri}: install the package {error.name} for this database") from None


def _is_rest(uri: str) -> bool:
    return re.match(r"https?://", uri) is not None


def _as_url(warehouse: str) -> str:
    return warehouse if "://" in warehouse else Path(warehouse).absolute().as_uri()


def open_table(
    catalog: Catalog, identifier: str, schema: Any, run_blocking: RunBlocking, partition_by: str = BY_DAY
) -> IcebergTable:
    """The table; it is created with the pyarrow `schema` if there is none, partitioned by day, or not at all (`none`).
    Blocks.

    `LakeError` if the catalogue does not answer, or refuses.
    """
    table = translated(identifier, partial(_load_or_create, catalog, identifier, schema, partition_by))
    return IcebergTable(catalog, table, run_blocking)


def existing_table(catalog: Catalog, identifier: str, run_blocking: RunBlocking) -> IcebergTable:
    """Open a table that must be there. Raises what `open_table` does."""
    return IcebergTable(catalog, translated(identifier, partial(_load, catalog, identifier)), run_blocking)


def _load(catalog: Catalog, identifier: str) -> Table:
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        raise LakeError(f"there is no table {identifier} in the catalogue") from None


def _load_or_create(catalog: Catalog, identifier: str, schema: Any, partition_by: str) -> Table:
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        pass
    if isinstance(catalog, SqlCatalog) and "warehouse" not in catalog.properties:
        raise WrongArgument(f"table {identifier} is new: a SQL catalogue needs --warehouse, a directory or a URL")
    catalog.create_namespace_if_not_exists(Catalog.namespace_from(identifier))
    own = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))
    source = own.find_field("metadata.timestamp").field_id
    day = PartitionField(source_id=source, field_id=1000, transform=DayTransform(), name=DAY)
    spec = PartitionSpec(day) if partition_by == BY_DAY else PartitionSpec()
    try:
        return catalog.create_table(identifier, own, partition_spec=spec, properties=TABLE_PROPERTIES)
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)
