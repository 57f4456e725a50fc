"""An independent check of a cluster after faults, over the files of all its brokers (`partition_audit.py` judges).

It also looks for every acknowledged record. Acks are rows of `topic`, `partition`, `offset` and optionally `value`
(text), as Parquet or JSON lines, or the directory of a fault injection run, whose history has them. Each partition is
judged by one task; acks are joined with records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.arrow_functions import apply_to_groups, map_in_arrow
from barnabas.pipeline.batch_rows import SCHEMA
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.jobs.segments import frame_of
from barnabas.pipeline.log_files import log_end_offset
from barnabas.pipeline.partition_audit import LOST, Account, Finding, PartitionFacts, ReplicaFacts, columns_of, judge
from barnabas.pipeline.segment_plan import SegmentOptions, SegmentPlan, plan_of

CHANGED = "changed"
HISTORY = "history.jsonl"
"""The history of a fault injection run: one line for each invocation and completion."""
PARTITIONS_PER_TOPIC = 2
"""Histories number partitions by key: 0 and 1 are the partitions of topic t0, 2 and 3 those of t1."""
_RESULT = "topic string, partition int, account string"
_ACKS = "topic string, partition int, offset long, value string"
_MAX_FINDINGS = 100
_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Acks:
    """Counts of acknowledged records by what was found of them."""

    acknowledged: int = 0
    """All acknowledged records."""
    expired: int = 0
    """Below the log start offset, so that they cannot be checked."""
    compacted: int = 0
    """At offsets from which compaction may have removed them."""
    found: int = 0
    lost: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Audit:

    accounts: tuple[Account, ...]
    acks: Acks | None
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        return not self.findings and not any(account.kinds for account in self.accounts)

    def to_json(self) -> dict[str, Any]:
        rows = []
        for account in self.accounts:
            row = asdict(account)
            del row["findings"]
            rows.append(row)
        kinds: dict[str, int] = {}
        for account in self.accounts:
            for kind, count in account.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + count
        if self.acks is not None:
            of_acks = {"lost acks": self.acks.lost, "changed acks": self.acks.changed}
            kinds |= {kind: count for kind, count in of_acks.items() if count}
        return {
            "sound": self.is_sound,
            "partitions": rows,
            "acks": None if self.acks is None else asdict(self.acks),
            "found": kinds,
            "findings": [str(finding) for finding in self.findings],
        }


def audit(session: Any, options: SegmentOptions, acks: str | None = None) -> Audit:
    """Audit all partitions in the directories. PipelineError."""
    options = replace(options, batches=True, skip_gone=True)
    facts = facts_of(plan_of(options))
    for _ in range(_MAX_ATTEMPTS):
        batches = frame_of(session, options)
        rows = apply_to_groups(batches, ("topic", "partition"), _judge_with(facts), _RESULT).collect()
        if not options.bootstrap:
            break
        now = facts_of(plan_of(options))
        if all(now[key].start_offset == each.start_offset for key, each in facts.items() if key in now):
            break
        # Retention has deleted segments before they were read: that is no loss.
        facts = now
    else:
        raise PipelineError("segments are deleted faster than they can be read; stop the cluster before the audit")
    judged = {(row.topic, row.partition): _account(json.loads(row.account)) for row in rows}
    accounts = tuple(
        judged.get(key) or judge(facts[key], columns_of(pa.Table.from_batches([], SCHEMA))) for key in sorted(facts)
    )
    findings = [finding for account in accounts for finding in account.findings]
    counted = None
    if acks is not None:
        counted, missing = check_acks(session, options, facts, read_acks(session, acks))
        findings += missing
    return Audit(accounts, counted, tuple(findings))


def facts_of(plan: SegmentPlan) -> dict[tuple[str, int], PartitionFacts]:
    replicas: dict[tuple[str, int], list[ReplicaFacts]] = {}
    for replica in plan.replicas:
        key = (replica.topic, replica.partition)
        end = min(log_end_offset(Path(replica.directory)), plan.ranges[key].high_watermark)
        if any(other.node_id == replica.node_id for other in replicas.get(key, ())):
            raise PipelineError(f"two directories have {replica.name}; give only one of them")
        replicas.setdefault(key, []).append(
            ReplicaFacts(replica.node_id, replica.log_start_offset, end, replica.cleaned_offset)
        )
    return {key: PartitionFacts(*key, plan.ranges[key].high_watermark, tuple(each)) for key, each in replicas.items()}


def _judge_with(facts: Mapping[tuple[str, int], PartitionFacts]) -> Any:
    def judged(table: Any) -> Any:
        key = (table.column("topic")[0].as_py(), table.column("partition")[0].as_py())
        account = json.dumps(asdict(judge(facts[key], columns_of(table))))
        return pa.table({"topic": [key[0]], "partition": pa.array([key[1]], pa.int32()), "account": [account]})

    return judged


def _account(fields: dict[str, Any]) -> Account:
    fields["findings"] = [Finding(**finding) for finding in fields["findings"]]
    fields["behind"] = {int(node): end for node, end in fields["behind"].items()}
    return Account(**fields)


# Acks


def read_acks(session: Any, path: str) -> Any:
    """A frame of topic, partition, offset, value (text or null). PipelineError if the columns are missing."""
    from pyspark.sql import functions as F

    place = Path(path)
    if (place / HISTORY).exists():
        return _acks_of_run(session, place)
    frame = session.read.json(path) if path.endswith((".json", ".jsonl")) else session.read.parquet(path)
    if missing := {"topic", "partition", "offset"} - set(frame.columns):
        raise PipelineError(f"{path} needs the columns topic, partition, offset; got no {', '.join(sorted(missing))}")
    value = F.col("value").cast("string") if "value" in frame.columns else F.lit(None).cast("string")
    return frame.select(
        F.col("topic"),
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("long").alias("offset"),
        value.alias("value"),
    ).where("offset >= 0")


def _acks_of_run(session: Any, place: Path) -> Any:
    """The sends of the operations that ended with `ok`."""
    prefix = _prefix_of(place)

    def acks_in(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = [row for line in batch.column(0).to_pylist() for row in acks_in_line(line, prefix)]
            columns = list(zip(*rows, strict=True)) or [()] * 4
            kinds = (pa.string(), pa.int32(), pa.int64(), pa.string())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, ["topic", "partition", "offset", "value"])

    return map_in_arrow(session.read.text(str((place / HISTORY).resolve())), acks_in, _ACKS)


def acks_in_line(text: str, prefix: str) -> Iterator[tuple[str, int, int, str]]:
    """(topic, partition, offset, value) of each acknowledged send in one line of a history."""
    try:
        line = json.loads(text)
    except ValueError:
        return  # the last line is torn if the run was killed
    if line.get("type") != "ok" or line.get("f") not in ("send", "txn"):
        return
    for micro in line.get("value") or ():
        if micro[0] == "send" and isinstance(micro[2], list) and micro[2][0] is not None:
            key, (offset, value) = micro[1], micro[2]
            yield f"{prefix}t{key // PARTITIONS_PER_TOPIC}", key % PARTITIONS_PER_TOPIC, offset, str(value)


def _prefix_of(place: Path) -> str:
    """The prefix of the run's topic names, which it has on a shared cluster."""
    path = place / "run.json"
    try:
        of_run = json.loads(path.read_text())
        return str(of_run["options"]["more"].get("prefix", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise PipelineError(f"{path} was not written by a run; give the directory of a fault injection run") from None


def check_acks(
    session: Any, options: SegmentOptions, facts: Mapping[tuple[str, int], PartitionFacts], acks: Any
) -> tuple[Acks, list[Finding]]:
    """Check that consumers get each acknowledged record, with its value."""
    from pyspark.sql import functions as F

    known = session.createDataFrame(
        [
            (key[0], key[1], each.start_offset, max(replica.cleaned_offset for replica in each.replicas))
            for key, each in sorted(facts.items())
        ],
        "topic string, partition int, first long, cleaned long",
    )
    read = replace(options, batches=False, isolation=Isolation.READ_COMMITTED)
    records = frame_of(session, read).selectExpr(
        "topic", "partition", "offset", "CAST(value AS STRING) AS there", "true AS is_there"
    )
    place = ["topic", "partition"]
    joined = acks.join(F.broadcast(known), place, "left").join(records, [*place, "offset"], "left")
    verdict = (
        F.when(F.col("offset") < F.col("first"), "expired")
        .when(F.col("is_there") & (F.col("value").isNull() | (F.col("value") == F.col("there"))), "found")
        .when(F.col("is_there"), CHANGED)
        .when(F.col("offset") < F.col("cleaned"), "compacted")
        .otherwise(LOST)
    )
    judged = joined.withColumn("verdict", verdict).cache()
    try:
        counts = {row.verdict: row["count"] for row in judged.groupBy("verdict").count().collect()}
        bad = (
            judged.where(F.col("verdict").isin(LOST, CHANGED)).orderBy(*place, "offset").limit(_MAX_FINDINGS).collect()
        )
    finally:
        judged.unpersist()
    counted = Acks(
        sum(counts.values()),
        *(counts.get(name, 0) for name in ("expired", "compacted", "found", LOST, CHANGED)),
    )
    return counted, [_finding(row) for row in bad]


def _finding(row: Any) -> Finding:
    what = "the record" if row.value is None else f"the record {row.value[:50]!r}"
    if row.verdict == CHANGED:
        why = f"{what} was acknowledged at this offset, which holds {(row.there or '')[:50]!r}"
    else:
        why = f"{what} was acknowledged at this offset, but consumers do not get it"
    return Finding(row.verdict, row.topic, row.partition, row.offset, why)


def table(accounts: Sequence[Account]) -> list[tuple[Any, ...]]:
    """Rows of the text output."""
    return [
        (
            account.topic,
            account.partition,
            account.start_offset,
            account.end_offset,
            account.records,
            account.aborted,
            account.markers,
            account.compacted,
            account.lost,
            account.digest,
            ", ".join(f"{count} {kind}" for kind, count in account.kinds.items()) or "-",
        )
        for account in accounts
    ]
