"""Real tables in a SQL catalogue, as tests write and read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog

from barnabas.cli.main import run
from barnabas.lake.catalogs import CatalogAddress, open_catalog


@dataclass
class Lake:
    """One catalogue and warehouse, and the commands on it."""

    folder: Path
    bootstrap: str
    capsys: pytest.CaptureFixture[str]
    elsewhere: CatalogAddress | None = None
    """Another catalogue and warehouse than those below `folder`."""

    @property
    def address(self) -> CatalogAddress:
        own = CatalogAddress(f"sqlite:///{self.folder}/lake.db", str(self.folder / "lake"))
        return self.elsewhere or own

    @property
    def uri(self) -> str:
        return self.address.uri

    @property
    def options(self) -> list[str]:
        address = self.address
        warehouse = ["--warehouse", address.warehouse] if address.warehouse else []
        properties = [word for item in address.properties.items() for word in ("--catalog-property", "=".join(item))]
        return ["--catalog", address.uri, *warehouse, *properties, "--bootstrap-server", self.bootstrap]

    def catalog(self) -> Catalog:
        return open_catalog(self.address)

    def table(self, topic: str) -> Any:
        return self.catalog().load_table(identifier(topic))

    def __call__(self, command: str, *words: str) -> Any:
        """The JSON document of a successful command."""
        code, output, errors = self._typed(command, *words, "--json")
        assert code == 0, errors
        return json.loads(output)

    def refused(self, command: str, *words: str) -> tuple[int, str]:
        """(exit code, the line on standard error) of a command that fails."""
        code, _, errors = self._typed(command, *words)
        lines = [line for line in errors.splitlines() if line]
        assert code != 0
        return code, lines[-1]

    def _typed(self, command: str, *words: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = run(["lake", command, *words, *self.options])
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err

    def up_to_now(self, *topics: str) -> Any:
        """Write topics up to their ends."""
        return self("run", *topics, "--available-now")

    def places(self, topic: str) -> list[tuple[int, int]]:
        """(partition, offset) of all rows, in order, read by DuckDB from the files that the table has."""
        paths = [task.file.file_path.removeprefix("file://") for task in self.table(topic).scan().plan_files()]
        if not paths:
            return []
        query = "select metadata.partition, metadata.offset from read_parquet($paths) order by 1, 2"
        return duckdb.execute(query, {"paths": paths}).fetchall()


def identifier(topic: str) -> str:
    """The table of a topic, without a name of its own."""
    return "topics." + "".join(each if each.isalnum() else "_" for each in topic)
