"""What executors do when histories are checked: each gets the operations of some keys, and runs the checkers on them.

Of workloads that send and poll by key a history is split; what belongs to no key (faults, crashes) is in every part.
Histories of others are each one part.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.pipeline.grouping import apply_to_pairs

OPERATIONS, MICRO = "history.parquet", "mops.parquet"
LINES_PER_PART = 250_000
"""A part of a history is in the memory of one Python worker, with about 1 KB for each line."""
CARRYING = ("send", "poll", "txn")
_RESULT = "run_id string, shard int, checker string, verdict string"
_LINE = (
    "run_id string, i long, process string, type string, f string, t_ns long, wall_ms long, client string, node string,"
    " error string, error_text string, invocation long, value string, note string"
)
_MICRO_NUMBERS = ("i", "step", "key", "offset", "value")


class Known(NamedTuple):
    """What every part is told."""

    told: Mapping[str, Mapping[str, Any]]
    """By run: its `run.json`."""
    views: Mapping[str, Any]
    """By run: `histories.views.Views`."""


@dataclass(slots=True)
class Checked:
    """What came of all parts."""

    parts: int
    """That a history is split into."""
    lines: Mapping[str, int]
    """By run."""
    verdicts: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By run and checker: of each part, as JSON."""


def check_parts(session: Any, stores: Mapping[str, Path], known: Known, parts: int | None) -> Checked:
    """Of the directories of runs, by their names. The checkers have to be importable here and on executors."""
    read = session.read.schema(_LINE).parquet(*(str(store.resolve() / OPERATIONS) for store in stores.values()))
    operations = read.withColumn("run_id", _run_id())
    counted = {row.run_id: row["count"] for row in operations.groupBy("run_id").count().collect()}
    lines = {run_id: counted.get(run_id, 0) for run_id in stores}
    split = [run_id for run_id in stores if _is_split(known.told[run_id])]
    parallel = session.sparkContext.defaultParallelism
    parts = parts or max(parallel, -(-sum(lines[run_id] for run_id in split) // LINES_PER_PART))
    micro = _read_micro(session, stores.values(), split, parts)
    placed = _placed(session, operations, micro, split, parts)
    step = _checker(session.sparkContext.broadcast((known, parts)))
    rows = apply_to_pairs(placed, micro, ("run_id", "shard"), step, _RESULT).collect()
    checked = Checked(parts, lines, {run_id: {} for run_id in stores})
    for row in sorted(rows, key=lambda row: row.shard):
        checked.verdicts[row.run_id].setdefault(row.checker, []).append(row.verdict)
    _add_empty(checked, {(row.run_id, row.shard) for row in rows}, known)
    return checked


def _is_split(run: Mapping[str, Any]) -> bool:
    return run["workload"] in importlib.import_module("checkers.split").WORKLOADS


def _run_id() -> Any:
    """The name of the directory that a row's file is in: whoever copies a run gives it another than its rows know."""
    from pyspark.sql import functions as F

    name = F.regexp_extract(F.col("_metadata.file_path"), "([^/]+)/[^/]+$", 1)
    # A plus sign is one, and no blank as in forms.
    return F.url_decode(F.replace(name, F.lit("+"), F.lit("%2B")))


def _read_micro(session: Any, stores: Any, split: Sequence[str], parts: int) -> Any:
    """A row for each record that was sent or polled, and the part that it is in."""
    from pyspark.sql import functions as F

    read = session.read.parquet(*(str(store.resolve() / MICRO) for store in stores))
    # Runs that were written before readers told of epochs have none.
    epoch = F.col("leader_epoch") if "leader_epoch" in read.columns else F.lit(None)
    shard = F.when(F.col("run_id").isin(*split), F.pmod("key", F.lit(parts))).otherwise(F.lit(0))
    return read.select(
        *("i", "step", "kind", "key", "offset", "value", epoch.cast("int").alias("leader_epoch")),
        *(_run_id().alias("run_id"), F.col("_metadata.row_index").alias("row")),
    ).withColumn("shard", shard.cast("int"))


def _placed(session: Any, operations: Any, micro: Any, split: Sequence[str], parts: int) -> Any:
    """Lines with the parts that they are in, and whether they are `proven`."""
    from pyspark.sql import functions as F

    is_split = F.col("run_id").isin(*split)
    whole = operations.where(~is_split).select("*", F.lit(0).alias("shard"), F.lit(False).alias("proven"))
    if not split:
        return whole
    operations, micro = operations.where(is_split), micro.where(is_split)
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
    return carrying.unionByName(everywhere).unionByName(whole)


def _proven(operations: Any, micro: Any) -> Any:
    """Operations of which nobody knows, and of which a value was read by an operation that went well."""
    from pyspark.sql import functions as F

    types = operations.select("run_id", "i", "type")
    typed = micro.join(types, ["run_id", "i"])
    sent = typed.where("kind = 'send' AND type IN ('info', 'invoke')").select("run_id", "i", "key", "value")
    read = typed.where("kind = 'poll' AND type = 'ok'").select("run_id", "key", "value")
    proven = sent.join(read, ["run_id", "key", "value"], "left_semi").select("run_id", "i").distinct()
    return proven.withColumn("proven", F.lit(True))


def _checker(broadcast: Any) -> Any:
    def check(key: Any, left: Any, right: Any) -> Any:
        import pyarrow as pa

        known, parts = broadcast.value
        run_id, shard = key[0].as_py(), key[1].as_py()
        micro = right.sort_by("row").select([*_MICRO_NUMBERS, "kind", "leader_epoch"])
        verdicts = _verdicts((run_id, shard), left.drop_columns(["run_id", "shard"]), micro, (known, parts))
        return pa.table(
            {
                "run_id": [run_id] * len(verdicts),
                "shard": pa.array([shard] * len(verdicts), pa.int32()),
                "checker": list(verdicts),
                "verdict": list(verdicts.values()),
            }
        )

    return check


def _verdicts(place: tuple[str, int], lines: Any, micro: Any, knowledge: tuple[Known, int]) -> dict[str, str]:
    """By checker, as JSON: of the part of a run, or of the whole run if it is not split."""
    # It comes with the zip.
    split = importlib.import_module("checkers.split")
    (run_id, shard), (known, parts) = place, knowledge
    run, views = known.told[run_id], known.views[run_id]
    if _is_split(run):
        said = split.check_part(lines, micro, run, split.part_of_views(views, shard, parts))
    else:
        said = split.check_run(lines, micro, run, views)
    return {name: split.to_json(verdict) for name, verdict in said.items()}


def _add_empty(checked: Checked, done: set[tuple[str, int]], known: Known) -> None:
    """Parts without a line may have views."""
    import pyarrow as pa

    kinds = {"long": pa.int64(), "string": pa.string()}
    fields = [each.split() for each in _LINE.split(",")]
    lines = pa.schema([*((name, kinds[kind]) for name, kind in fields), ("proven", pa.bool_())]).empty_table()
    micro = pa.schema([*((name, pa.int64()) for name in _MICRO_NUMBERS), ("kind", pa.string())]).empty_table()
    for run_id, verdicts in checked.verdicts.items():
        shards = range(checked.parts if _is_split(known.told[run_id]) else 1)
        for shard in (shard for shard in shards if (run_id, shard) not in done):
            for name, verdict in _verdicts((run_id, shard), lines, micro, (known, checked.parts)).items():
                verdicts.setdefault(name, []).append(verdict)
