"""Load of Parquet into a topic, exactly once: each transaction has complete files and the number of its batch.

With a checkpoint the load is a stream of files: after a restart it continues with the first file that is not committed,
and with `follow` it waits for more. Without a checkpoint everything is one transaction.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import Bootstrap
from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.files import files_for
from barnabas.pipeline.jobs.lake_rows import DAY_MS, JSON_OPTIONS
from barnabas.pipeline.jobs.rounds import claimed, new_claim
from barnabas.pipeline.jobs.streaming_query import finish
from barnabas.pipeline.jobs.topics import find_or_create, retention_ms
from barnabas.pipeline.sink import Sink, sink_settings
from barnabas.pipeline.spark_errors import in_one_line, refusal, spark_errors

WHOLE_ROW = "json"
AS_THEY_ARE = ("binary", "string")
INT_MAX = 2**31 - 1
MAX_MS = (2**63 - 1) // 1000
"""Spark stores microseconds."""
MAX_FILE_AGE = "36500d"
"""By default Spark forgets files that are a week older than the newest one."""


@dataclass(frozen=True)
class Columns:
    """The columns that become parts of a record."""

    key: str | None = None
    value: str = WHOLE_ROW
    """A column, or `json` for the whole row."""
    partition: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True)
class Load:
    bootstrap: Bootstrap
    source: str
    """A file, a directory or a glob pattern."""
    topic: str
    columns: Columns = Columns()
    partitions: int | None = None
    """Number of partitions if the topic must be created."""
    checkpoint: str | None = None
    files_per_transaction: int = 16
    follow: bool = False
    trigger: str | None = None
    compression: str = "none"


def load(session: Any, job: Load) -> Mapping[str, Any]:
    """Load all files, or follow until interrupted. PipelineError; WrongUse before anything is done."""
    if job.follow and job.checkpoint is None:
        raise WrongUse("--follow needs --checkpoint, which keeps the list of loaded files")
    # A full path: the JVM may have another working directory.
    source = files_for(session, job.source)[1]
    try:
        frame = session.read.parquet(source)
        records = as_records(frame, job.columns)
    except spark_errors() as error:
        raise _source_error(error, source) from None
    with BlockingCluster(job.bootstrap) as cluster:
        # By the default retention old records would be deleted at once.
        identity, made = find_or_create(cluster, job.topic, job.partitions, keep=job.columns.timestamp is not None)
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
        stream = as_records(reader.option("maxFileAge", MAX_FILE_AGE).parquet(_watched(session, source)), job.columns)
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
    """The path for a stream of files, which needs a directory: for a single file, a pattern that matches only it."""
    files, path = files_for(session, source)
    if not files.is_file(path):
        return source
    folder, name = path.rsplit("/", 1)
    return f"{folder}/[{name[0]}]{name[1:]}"


def _require_young(records: Any, job: Load, kept_ms: int) -> None:
    """PipelineError if the topic's retention would delete records at once."""
    from pyspark.sql import functions as F

    with in_one_line():
        oldest_ms = records.agg(F.min(F.unix_millis("timestamp"))).first()[0]
    if oldest_ms is not None and oldest_ms < time.time() * 1000 - kept_ms:
        raise PipelineError(
            f"the oldest {job.columns.timestamp} is {datetime.fromtimestamp(oldest_ms / 1000, UTC):%Y-%m-%d}, but"
            f" {job.topic} deletes records older than {kept_ms // 3_600_000} hours; change that with"
            f" `barnabas configs set topic {job.topic} retention.ms=-1`, or leave out --timestamp"
        )


def as_records(frame: Any, columns: Columns) -> Any:
    """Rows as records of a topic. WrongUse if a column is missing or has the wrong type."""
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
            raise WrongUse(f"--partition {columns.partition} must be a column of whole numbers; got {kind}")
        chosen.append(_partition(columns.partition).alias("partition"))
    if columns.timestamp is not None:
        kind = _found(types, "--timestamp", columns.timestamp)
        chosen.append(_timestamp(kind, columns.timestamp).alias("timestamp"))
    return frame.select(*chosen)


class CountingSink:
    """A sink that counts records and transactions, and keeps the original error of a failure, which Spark wraps."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.failure: Exception | None = None
        self.records = 0
        self.transactions = 0

    def __call__(self, frame: Any, batch_id: int) -> None:
        try:
            self._sink(frame, batch_id)
        except Exception as error:
            # Any exception: outside of this call it would only be text in an exception of Spark.
            self.failure = error
            raise
        written = self._sink.last
        if written is not None and not written.skipped:
            self.records += written.records
            self.transactions += 1

    def write(self, frame: Any, number: int) -> int:
        """Write a batch outside of a query; returns the number of records, 0 if it was already committed.
        PipelineError."""
        before = self.records
        try:
            self(frame, number)
        except _failures() as error:
            raise self.refusal(error) from None
        return self.records - before

    def refusal(self, error: Exception) -> PipelineError:
        return refusal(self.failure or error)


def sink_for(bootstrap: Bootstrap, topic: str, query_id: str, compression: str) -> CountingSink:
    """A sink with one transaction for each batch, written exactly once. WrongUse."""
    return CountingSink(Sink(sink_settings(bootstrap, topic, query_id, compression_type=compression)))


def _failures() -> tuple[type[Exception], ...]:
    """The exceptions that end a load."""
    return (PipelineError, *spark_errors())


def _settings(columns: Columns) -> dict[str, str | None]:
    return {
        "--key": columns.key,
        "--value": columns.value,
        "--partition": columns.partition,
        "--timestamp": columns.timestamp,
    }


def _found(types: Mapping[str, str], option: str, name: str) -> str:
    """The type of a column. WrongUse if it does not exist."""
    if name not in types:
        raise WrongUse(f"{option} must be one of the columns {', '.join(types)}; got {name}")
    return types[name]


def _quoted(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _bytes(kind: str, name: str) -> Any:
    """Bytes and text unchanged, structures as JSON, all other types as text."""
    from pyspark.sql import functions as F

    column = _quoted(name)
    if kind.startswith(("struct", "array", "map", "variant")):
        column = F.to_json(column, JSON_OPTIONS)
    return column.cast("binary") if kind in AS_THEY_ARE else column.cast("string").cast("binary")


def _partition(name: str) -> Any:
    """Fails for numbers that a cast to int would change."""
    from pyspark.sql import functions as F

    column = _quoted(name)
    line = F.concat(F.lit(f"--partition {name}: a row has "), column.cast("string"), F.lit(", which is no partition"))
    fits = column.isNull() | column.between(0, INT_MAX)
    return F.when(fits, column).otherwise(F.raise_error(line).cast("bigint")).cast("int")


def _timestamp(kind: str, name: str) -> Any:
    """Timestamps without a zone are UTC, whatever the session's time zone is."""
    from pyspark.sql import functions as F

    column = _quoted(name)
    if kind == "bigint":
        line = F.concat(F.lit(f"--timestamp {name}: a row has "), column.cast("string"), F.lit(", which is no time"))
        fits = column.isNull() | column.between(-MAX_MS, MAX_MS)
        return F.timestamp_millis(F.when(fits, column).otherwise(F.raise_error(line).cast("bigint")))
    if kind == "timestamp":
        return column
    if kind == "date":
        return F.timestamp_millis(F.unix_date(column).cast("bigint") * DAY_MS)
    if kind == "timestamp_ntz":
        return F.convert_timezone(F.lit("UTC"), F.current_timezone(), column).cast("timestamp")
    raise WrongUse(f"--timestamp {name} must be a timestamp, a date, or milliseconds since 1970; got {kind}")


def _source_error(error: Exception, source: str) -> PipelineError:
    line = refusal(error).line
    return PipelineError(line if source in line else f"{source}: {line}")
