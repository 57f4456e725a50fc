"""`barnabas pipeline generate`: reproducible test data as Parquet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.connection import AsJson
from barnabas.cli.option_group import grouped
from barnabas.cli.pipeline_session import errors_in_one_line, show_account
from barnabas.cluster.errors import WrongArgument


@dataclass(frozen=True)
class DataOptions:
    records: Annotated[int, typer.Option("--records", "-n", min=1, help="Number of records.")] = 100_000
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed; the same seed gives the same data.")] = 0
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="orders (rows of a shop) or records (key and value).")
    ] = "orders"
    keys: Annotated[int, typer.Option("--keys", min=1, metavar="N", help="Number of distinct keys.")] = 1_000
    size: Annotated[
        int, typer.Option("--size", min=0, metavar="BYTES", help="With --kind records: size of each value.")
    ] = 100


@grouped
def command(
    to: Annotated[Path, typer.Argument(metavar="DIR", help="Output directory; must be empty or not exist.")],
    files: Annotated[int, typer.Option("--files", min=1, metavar="N", help="Number of Parquet files.")] = 1,
    *,
    data: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Generate test data by seed: orders of customers, or plain records. Needs no Spark."""
    if data.kind not in ("orders", "records"):
        raise WrongArgument(f"--kind must be orders or records; got {data.kind}")
    with errors_in_one_line():
        _require("pyarrow")
        from barnabas.pipeline.generator import Recipe, write_parquet

        if to.exists() and any(to.iterdir()):
            raise WrongArgument(f"{to} is not empty; give an empty or a new directory")
        recipe = Recipe(
            kind=data.kind,  # type: ignore[arg-type]  # checked above
            records=data.records,
            seed=data.seed,
            keys=data.keys,
            value_bytes=data.size,
        )
        began = time.monotonic()
        written = write_parquet(recipe, to, files)
    size_bytes = sum(path.stat().st_size for path in written)
    account = {"to": str(to), "records": data.records, "files": len(written), "bytes": size_bytes}
    show_account({**account, "seconds": round(time.monotonic() - began, 2)}, as_json)


def _require(module: str) -> None:
    from barnabas.pipeline.errors import INSTALL_HINT, PipelineError

    if find_spec(module) is None:
        raise PipelineError(f"{module} is not installed; {INSTALL_HINT}")
