"""The checks of the fault injection suite on histories that no single process holds: split by key over executors.

Reads `history.parquet` and `mops.parquet` of runs. The checkers are not ours: their folders travel to the executors as
a zip. What each says of its keys is put together; what is no matter of single keys (cycles, commits, lag, what replicas
did) is checked here, on the driver, over columns without values.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import barnabas
from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.grouping import apply_to_pairs

RUN, VIEWS, OPERATIONS, MICRO = "run.json", "views.jsonl", "history.parquet", "mops.parquet"
SHIPPED = ("checkers", "histories", "operations.py")
LINES_PER_PART = 250_000
"""A part of a history is in the memory of one Python worker, with about 1 KB for each line."""
CARRYING = ("send", "poll", "txn")
_RESULT = "run_id string, shard int, checker string, verdict string"
_LINE = (
    "run_id string, i long, process string, type string, f string, t_ns long, wall_ms long, client string, node string,"
    " error string, error_text string, invocation long, value string, note string"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run."""

    run_id: str
    verdicts: Mapping[str, Any]
    """By checker: `checkers.verdict.Verdict`."""
    by_key: tuple[str, ...]
    """Those of them that were checked in parts."""
    parts: int
    lines: int

    @property
    def valid(self) -> str:
        """The worst: `false` before `unknown`."""
        said = {verdict.valid for verdict in self.verdicts.values()}
        return "false" if "false" in said else "unknown" if "unknown" in said else "true"

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run_id,
            "valid": self.valid,
            "lines": self.lines,
            "parts": self.parts,
            "by_key": list(self.by_key),
            "checkers": {
                name: json.loads(json.dumps(asdict(verdict), default=_plain)) for name, verdict in self.verdicts.items()
            },
        }


def checkers_folder(given: str | None = None) -> Path:
    """Where the checkers are. PipelineError."""
    folder = Path(given) if given else Path(barnabas.__file__).resolve().parents[1] / "jepsen-style"
    if not (folder / "checkers" / "split.py").exists():
        raise PipelineError(f"{folder} has no checkers; name the folder jepsen-style of a checkout with --checkers")
    return folder


def check(session: Any, stores: Sequence[str], folder: Path, parts: int | None = None) -> list[Judged]:
    """Of each run, in the order given. PipelineError; WrongUse if something is no run, or one that is not split."""
    runs = {Path(store).resolve().name: Path(store) for store in stores}
    if len(runs) < len(stores):
        raise WrongUse("two runs of the same name: check them one after the other")
    told = {run_id: _told(store) for run_id, store in runs.items()}
    with _importable(folder):
        split = importlib.import_module("checkers.split")
        columns = importlib.import_module("histories.columns")
        views_of = importlib.import_module("histories.views").Views.load
        for run_id, run in told.items():
            if run.get("workload") not in split.WORKLOADS:
                line = f"{run_id} is of workload {run.get('workload')}; only {' and '.join(split.WORKLOADS)} are split"
                raise WrongUse(f"{line}: check it with `python jepsen-style check`")
        views = {run_id: views_of(store / VIEWS) for run_id, store in runs.items()}
        with zipped(folder) as archive, _without_broadcast_joins(session):
            session.sparkContext.addPyFile(archive)
            found, lines, parts = _check_parts(session, runs, (told, views), parts)
        judged = []
        for run_id, store in runs.items():
            by_key = {
                name: split.together([split.from_json(verdict) for verdict in verdicts])
                for name, verdicts in found[run_id].items()
            }
            whole = split.check_whole(columns.read_whole(store, told[run_id], views[run_id]))
            verdicts = split.in_usual_order(told[run_id], {**by_key, **whole})
            judged.append(Judged(run_id, verdicts, tuple(by_key), parts, lines[run_id]))
    return judged


def _check_parts(
    session: Any, runs: Mapping[str, Path], known: tuple[Mapping[str, Any], Mapping[str, Any]], parts: int | None
) -> tuple[dict[str, dict[str, list[str]]], dict[str, int], int]:
    """(run to checker to the verdicts of its parts, run to its lines, how many parts)."""
    from pyspark.sql import functions as F

    operations = session.read.schema(_LINE).parquet(*(str(store / OPERATIONS) for store in runs.values()))
    lines = {row.run_id: row["count"] for row in operations.groupBy("run_id").count().collect()}
    parallel = session.sparkContext.defaultParallelism
    parts = parts or max(parallel, -(-sum(lines.values()) // LINES_PER_PART))
    read = session.read.parquet(*(str(store / MICRO) for store in runs.values()))
    # Runs that were written before readers told of epochs have none.
    epoch = F.col("leader_epoch") if "leader_epoch" in read.columns else F.lit(None)
    micro = read.select(
        *(F.col("run_id").cast("string"), F.pmod("key", F.lit(parts)).cast("int").alias("shard")),
        *("i", "step", "kind", "key", "offset", "value", epoch.cast("int").alias("leader_epoch")),
        F.col("_metadata.row_index").alias("row"),
    )
    operations = operations.join(_proven(operations, micro), ["run_id", "i"], "left").withColumn(
        "proven", F.coalesce("proven", F.lit(False))
    )
    shown = micro.select("run_id", "i", "shard").distinct()
    began = (
        shown.join(operations.where("invocation IS NOT NULL").select("run_id", "i", "invocation"), ["run_id", "i"])
        .select("run_id", F.col("invocation").alias("i"), "shard")
        .distinct()
    )
    carrying = operations.where(F.col("f").isin(*CARRYING)).join(shown.union(began).distinct(), ["run_id", "i"])
    everywhere = operations.where(~F.col("f").isin(*CARRYING)).crossJoin(
        session.range(parts).select(F.col("id").cast("int").alias("shard"))
    )
    placed = carrying.unionByName(everywhere)
    step = _checker(session.sparkContext.broadcast((*known, parts)))
    rows = apply_to_pairs(placed, micro, ("run_id", "shard"), step, _RESULT).collect()
    found: dict[str, dict[str, list[str]]] = {run_id: {} for run_id in runs}
    for row in sorted(rows, key=lambda row: row.shard):
        found[row.run_id].setdefault(row.checker, []).append(row.verdict)
    _add_empty(found, rows, known, parts)
    return found, {run_id: lines.get(run_id, 0) for run_id in runs}, parts


def _proven(operations: Any, micro: Any) -> Any:
    """Operations of which nobody knows, and of which a value was read by an operation that went well."""
    from pyspark.sql import functions as F

    types = operations.select("run_id", "i", "type")
    typed = micro.join(types, ["run_id", "i"])
    sent = typed.where("kind = 'send' AND type IN ('info', 'invoke')").select("run_id", "i", "key", "value")
    read = typed.where("kind = 'poll' AND type = 'ok'").select("run_id", "key", "value")
    proven = sent.join(read, ["run_id", "key", "value"], "left_semi").select("run_id", "i").distinct()
    return proven.withColumn("proven", F.lit(True))


def _checker(known: Any) -> Any:
    def check(key: Any, left: Any, right: Any) -> Any:
        import pyarrow as pa

        # It comes with the zip.
        split = importlib.import_module("checkers.split")
        run_id, shard = key[0].as_py(), key[1].as_py()
        told, views, parts = known.value
        micro = right.sort_by("row").select(["i", "step", "kind", "key", "offset", "value", "leader_epoch"])
        mine = split.part_of_views(views[run_id], shard, parts)
        verdicts = split.check_part(left.drop_columns(["run_id", "shard"]), micro, told[run_id], mine)
        return pa.table(
            {
                "run_id": [run_id] * len(verdicts),
                "shard": pa.array([shard] * len(verdicts), pa.int32()),
                "checker": list(verdicts),
                "verdict": [split.to_json(verdict) for verdict in verdicts.values()],
            }
        )

    return check


def _add_empty(
    found: dict[str, dict[str, list[str]]], rows: Sequence[Any], known: tuple[Any, Any], parts: int
) -> None:
    """Parts without a line may have views."""
    import pyarrow as pa

    split = importlib.import_module("checkers.split")
    told, views = known
    for run_id, verdicts in found.items():
        for shard in sorted(set(range(parts)) - {row.shard for row in rows if row.run_id == run_id}):
            kinds = {"long": pa.int64(), "string": pa.string()}
            fields = [each.split() for each in _LINE.split(",")]
            lines = pa.schema([*((name, kinds[kind]) for name, kind in fields), ("proven", pa.bool_())]).empty_table()
            numbers = [(name, pa.int64()) for name in ("i", "step", "key", "offset", "value")]
            micro = pa.schema([*numbers, ("kind", pa.string())]).empty_table()
            mine = split.part_of_views(views[run_id], shard, parts)
            for name, verdict in split.check_part(lines, micro, told[run_id], mine).items():
                verdicts.setdefault(name, []).append(split.to_json(verdict))


def _told(store: Path) -> dict[str, Any]:
    try:
        run = json.loads((store / RUN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WrongUse(f"{store} is no run: it has no {RUN} (runs are directories below store/)") from None
    except ValueError as error:
        raise PipelineError(f"{store / RUN} is no JSON: {error}") from None
    for name in (OPERATIONS, MICRO):
        if not (store / name).exists():
            raise WrongUse(f"{store} has no {name}: `python jepsen-style check {store}` writes it")
    return dict(run)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Its modules have plain names, as those of a program do."""
    path = str(folder)
    if path in sys.path:
        yield
        return
    sys.path.insert(0, path)
    try:
        yield
    finally:
        sys.path.remove(path)


@contextmanager
def _without_broadcast_joins(session: Any) -> Iterator[None]:
    """A history in Parquet is a hundredth of what it is in memory: by the size of its files Spark would take what has
    ten million lines for small enough to be in the memory of everybody.
    """
    key = "spark.sql.autoBroadcastJoinThreshold"
    before = session.conf.get(key)
    session.conf.set(key, "-1")
    try:
        yield
    finally:
        session.conf.set(key, before)


@contextmanager
def zipped(folder: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="barnabas-checkers-") as directory:
        path = Path(directory) / "barnabas_checkers.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in SHIPPED:
                for source in sorted([folder / name] if name.endswith(".py") else (folder / name).glob("*.py")):
                    archive.write(source, source.relative_to(folder))
        yield str(path)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else list(value)
