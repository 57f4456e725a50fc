"""Parquet to a topic, exactly once: each transaction has whole files, and says in itself which ones are done.

With a checkpoint it is a stream of files: who starts it again goes on behind the last file that was committed, and with
`follow` it waits for more. Without one, all of it is one transaction: everything is there at its end, or nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.files import files_for
from barnabas.pipeline.jobs.lake_rows import DAY_MS, JSON_OPTIONS
from barnabas.pipeline.jobs.rounds import claimed, new_claim
from barnabas.pipeline.jobs.streaming_query import finish
from barnabas.pipeline.jobs.topics import find_or_make, retention_ms
from barnabas.pipeline.sink import Sink, sink_settings
from barnabas.pipeline.spark_errors import in_one_line, refusal, spark_errors

WHOLE_ROW = "json"
AS_THEY_ARE = ("binary", "string")
INT_MAX = 2**31 - 1
MAX_MS = (2**63 - 1) // 1000
"""Spark counts in microseconds."""
FOR_EVER = "36500d"
"""Spark forgets files that are a week older than the newest one, unless it is told not to."""


@dataclass(frozen=True)
class Columns:
    """Which columns become what of a record."""

    key: str | None = None
    value: str = WHOLE_ROW
    """A column, or `json`: the whole row."""
    partition: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True)
class Load:
    bootstrap: str
    source: str
    """A file, a folder, or a pattern."""
    topic: str
    columns: Columns = Columns()
    partitions: int | None = None
    """Of a topic that has to be made."""
    checkpoint: str | None = None
    files_per_transaction: int = 16
    follow: bool = False
    trigger: str | None = None
    compression: str = "none"


def load(session: Any, job: Load) -> Mapping[str, Any]:
    """Loads all there is, or follows until it is interrupted. PipelineError; WrongUse before anything is done."""
    if job.follow and job.checkpoint is None:
        raise WrongUse("--follow needs a --checkpoint: there is kept which files are done")
    # In full: the JVM may have been started in another folder.
    source = files_for(session, job.source)[1]
    try:
        frame = session.read.parquet(source)
        records = as_records(frame, job.columns)
    except spark_errors() as error:
        raise _of_source(error, source) from None
    with BlockingCluster(job.bootstrap) as cluster:
        # Records of the past would be deleted for their age as soon as they are there.
        identity, made = find_or_make(cluster, job.topic, job.partitions, keep=job.columns.timestamp is not None)
        kept_ms = retention_ms(cluster, job.topic) if job.columns.timestamp is not None else None
    if kept_ms is not None:
        _require_young(records, job, kept_ms)
    account = {"topic": job.topic, "topic made": made, "partitions": len(identity.partitions), "from": job.source}
    if job.checkpoint is None:
        sink = sink_for(job.bootstrap, job.topic, f"load-{uuid.uuid4().hex}", job.compression)
        return {**account, "records": sink.write(records, 0), "transactions": 1}
    files, folder = files_for(session, job.checkpoint)
    wanted = new_claim("load", identity, source, _settings(job.columns))
    with claimed(files, folder, wanted) as claim:
        sink = sink_for(job.bootstrap, job.topic, claim.query_id, job.compression)
        reader = session.readStream.schema(frame.schema).option("maxFilesPerTrigger", str(job.files_per_transaction))
        stream = as_records(reader.option("maxFileAge", FOR_EVER).parquet(_watched(session, source)), job.columns)
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", folder)
        writer = writer.queryName(f"load {job.topic}")
        if not job.follow:
            writer = writer.trigger(availableNow=True)
        elif job.trigger:
            writer = writer.trigger(processingTime=job.trigger)
        try:
            finish(writer.start)
        except _failures() as error:
            raise sink.refusal(error) from None
    return {**account, "records": sink.records, "transactions": sink.transactions}


def _watched(session: Any, source: str) -> str:
    """What a stream of files is given: for a single file a pattern that fits it alone, since it wants folders."""
    files, path = files_for(session, source)
    if not files.is_file(path):
        return source
    folder, name = path.rsplit("/", 1)
    return f"{folder}/[{name[0]}]{name[1:]}"


def _require_young(records: Any, job: Load, kept_ms: int) -> None:
    """PipelineError if the topic would delete records for their age as soon as they are there."""
    from pyspark.sql import functions as F

    with in_one_line():
        oldest_ms = records.agg(F.min(F.unix_millis("timestamp"))).first()[0]
    if oldest_ms is not None and oldest_ms < time.time() * 1000 - kept_ms:
        raise PipelineError(
            f"the oldest {job.columns.timestamp} is {datetime.fromtimestamp(oldest_ms / 1000, UTC):%Y-%m-%d}, and"
            f" {job.topic} deletes what is older than {kept_ms // 3_600_000} hours: keep it with"
            f" `barnabas configs set topic {job.topic} retention.ms=-1`, or leave out --timestamp"
        )


def as_records(frame: Any, columns: Columns) -> Any:
    """Rows as records of a topic. WrongUse for columns that are not there or do not fit."""
    from pyspark.sql import functions as F

    types = dict(frame.dtypes)
    chosen = []
    if columns.key is not None:
        chosen.append(_bytes(_found(types, "--key", columns.key), columns.key).alias("key"))
    if columns.value == WHOLE_ROW:
        whole = F.struct(*(_quoted(name) for name in frame.columns))
        chosen.append(F.to_json(whole, JSON_OPTIONS).cast("binary").alias("value"))
    else:
        chosen.append(_bytes(_found(types, "--value", columns.value), columns.value).alias("value"))
    if columns.partition is not None:
        kind = _found(types, "--partition", columns.partition)
        if kind not in ("int", "bigint", "smallint", "tinyint"):
            raise WrongUse(f"--partition {columns.partition}: is {kind}, and has to be a whole number")
        chosen.append(_partition(columns.partition).alias("partition"))
    if columns.timestamp is not None:
        kind = _found(types, "--timestamp", columns.timestamp)
        chosen.append(_timestamp(kind, columns.timestamp).alias("timestamp"))
    return frame.select(*chosen)


class Remembering:
    """A sink that remembers why it failed, which Spark tells in a roundabout way, and counts."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.failure: Exception | None = None
        self.records = 0
        self.transactions = 0

    def __call__(self, frame: Any, batch_id: int) -> None:
        try:
            self._sink(frame, batch_id)
        except Exception as error:
            # Whatever it is: here it is still itself, and not a text within Spark's.
            self.failure = error
            raise
        written = self._sink.last
        if written is not None and not written.skipped:
            self.records += written.records
            self.transactions += 1

    def write(self, frame: Any, number: int) -> int:
        """A batch outside of a query; gives how many records it has, 0 if it was there already. PipelineError."""
        before = self.records
        try:
            self(frame, number)
        except _failures() as error:
            raise self.refusal(error) from None
        return self.records - before

    def refusal(self, error: Exception) -> PipelineError:
        return refusal(self.failure or error)


def sink_for(bootstrap: str, topic: str, query_id: str, compression: str) -> Remembering:
    """One transaction for each batch, which is written once, however often it is asked for. WrongUse."""
    return Remembering(Sink(sink_settings(bootstrap, topic, query_id, compression_type=compression)))


def _failures() -> tuple[type[Exception], ...]:
    """What ends a load: our refusals, and whatever Spark makes of them."""
    return (PipelineError, *spark_errors())


def _settings(columns: Columns) -> dict[str, str | None]:
    return {
        "--key": columns.key,
        "--value": columns.value,
        "--partition": columns.partition,
        "--timestamp": columns.timestamp,
    }


def _found(types: Mapping[str, str], option: str, name: str) -> str:
    """The type of a column."""
    if name not in types:
        raise WrongUse(f"{option} {name}: there is no such column; there are {', '.join(types)}")
    return types[name]


def _quoted(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _bytes(kind: str, name: str) -> Any:
    """Bytes and text as they are, structures as JSON, all else as its text."""
    from pyspark.sql import functions as F

    column = _quoted(name)
    if kind.startswith(("struct", "array", "map", "variant")):
        column = F.to_json(column, JSON_OPTIONS)
    return column.cast("binary") if kind in AS_THEY_ARE else column.cast("string").cast("binary")


def _partition(name: str) -> Any:
    """Without a number that Spark would cut to another one."""
    from pyspark.sql import functions as F

    column = _quoted(name)
    told = F.concat(F.lit(f"--partition {name}: a row has "), column.cast("string"), F.lit(", which is no partition"))
    fits = column.isNull() | column.between(0, INT_MAX)
    return F.when(fits, column).otherwise(F.raise_error(told).cast("bigint")).cast("int")


def _timestamp(kind: str, name: str) -> Any:
    """What says no zone is taken as UTC, whatever the session's is."""
    from pyspark.sql import functions as F

    column = _quoted(name)
    if kind == "bigint":
        told = F.concat(F.lit(f"--timestamp {name}: a row has "), column.cast("string"), F.lit(", which is no time"))
        fits = column.isNull() | column.between(-MAX_MS, MAX_MS)
        return F.timestamp_millis(F.when(fits, column).otherwise(F.raise_error(told).cast("bigint")))
    if kind == "timestamp":
        return column
    if kind == "date":
        return F.timestamp_millis(F.unix_date(column).cast("bigint") * DAY_MS)
    if kind == "timestamp_ntz":
        return F.convert_timezone(F.lit("UTC"), F.current_timezone(), column).cast("timestamp")
    raise WrongUse(f"--timestamp {name}: is {kind}, and has to be a timestamp, a date, or milliseconds since 1970")


def _of_source(error: Exception, source: str) -> PipelineError:
    line = refusal(error).line
    return PipelineError(line if source in line else f"{source}: {line}")
