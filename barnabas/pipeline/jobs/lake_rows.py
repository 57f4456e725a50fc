"""Spark expressions for the rows of a lake.

A lake is partitioned by `topic`, `partition` and `date` (UTC date of the record's timestamp); its files have key,
value, headers, offset, timestamp and timestamp type. Nothing depends on the session's time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.pipeline.cluster_access import Bootstrap, access_of
from barnabas.pipeline.errors import WrongUse
from barnabas.pipeline.jobs.topics import TopicIdentity

FOLDERS = ("topic", "partition", "date")
BAD = "_does_not_match"
JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX", "timeZone": "UTC"}

DAY_MS = 86_400_000


def read_ranges(
    session: Any,
    bootstrap: Bootstrap,
    identity: TopicIdentity,
    spans: Mapping[int, tuple[int, int]],
    size: int | None = None,
) -> Any:
    """Committed records of one topic, one range of each partition, at most `size` offsets per task."""
    from json import dumps

    reader = _reader(session.read, bootstrap).option("assign", dumps({identity.topic: sorted(spans)}))
    for option, side in (("startingOffsets", 0), ("endingOffsets", 1)):
        offsets = {str(each): spans[each][side] for each in sorted(spans)}
        reader = reader.option(option, dumps({identity.topic: offsets}))
    if size is not None:
        reader = reader.option("maxRecordsPerPartition", str(size))
    return reader.load()


def in_time(since_ms: int | None, until_ms: int | None) -> Any:
    """The condition since_ms <= timestamp < until_ms."""
    from pyspark.sql import functions as F

    holds = F.lit(True)
    if since_ms is not None:
        holds &= F.col("timestamp") >= F.timestamp_millis(F.lit(since_ms))
    if until_ms is not None:
        holds &= F.col("timestamp") < F.timestamp_millis(F.lit(until_ms))
    return holds


def read_stream(session: Any, bootstrap: Bootstrap, topic: str, options: Mapping[str, str]) -> Any:
    """A stream of the committed records of a topic, from its beginning."""
    reader = _reader(session.readStream, bootstrap).option("subscribe", topic).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def for_lake(frame: Any, value_schema: str | None = None) -> Any:
    """Rows of a topic as rows of a lake; with a schema (`year INT, origin STRING`), values are parsed as JSON."""
    from pyspark.sql import functions as F

    day = F.floor(F.unix_millis("timestamp") / DAY_MS).cast("int")
    value = F.col("value") if value_schema is None else _decoded(value_schema)
    return frame.select(
        "topic",
        "partition",
        F.date_from_unix_date(day).alias("date"),
        "offset",
        "timestamp",
        "timestampType",
        "key",
        value.alias("value"),
        "headers",
    )


def check_schema(session: Any, value_schema: str | None) -> None:
    """WrongUse for an invalid schema."""
    if value_schema is None:
        return
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        found = session._jvm.org.apache.spark.sql.types.StructType.fromDDL(value_schema)
        names = list(found.fieldNames())
    except (PySparkException, Py4JJavaError):
        raise WrongUse(f"--value-schema must be like 'year INT, origin STRING'; got {value_schema!r}") from None
    if not names or BAD in names:
        raise WrongUse(f"--value-schema must be like 'year INT, origin STRING'; got {value_schema!r}")


def _decoded(schema: str) -> Any:
    """The fields of a JSON value. A value that does not match the schema fails the job, with its offset."""
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    options = {**JSON_OPTIONS, "columnNameOfCorruptRecord": BAD}
    parsed = F.from_json(text, f"{schema}, {BAD} STRING", options)
    where = F.concat(F.col("topic"), F.lit("-"), F.col("partition"), F.lit("@"), F.col("offset"))
    line = F.concat(F.lit("the value of "), where, F.lit(" does not match --value-schema: "), F.substring(text, 1, 80))
    fits = F.col("value").isNull() | parsed.getField(BAD).isNull()
    return F.when(fits, parsed.dropFields(BAD)).otherwise(F.raise_error(line))


def _reader(reader: Any, bootstrap: Bootstrap) -> Any:
    return (
        reader.format("barnabas")
        .options(**access_of(bootstrap).options)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
    )
