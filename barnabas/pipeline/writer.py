"""`df.write.format("barnabas")` and `df.writeStream.format("barnabas")`: the sink as Spark's Python data source has it.

    by_target_partition(df, "127.0.0.1:9092", "flights").write.format("barnabas").mode("append")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "flights").save()

A batch write is one transaction, and so is each micro-batch. Here Spark decides which task has which rows, so two tasks
may hold rows of one partition; that is found out when all have written, nothing is committed, and a line says so.
`by_target_partition` makes a frame whose tasks each have partitions of their own. `foreachBatch` with `sink.py` does
all that by itself, tries a batch again, and a driver that was overtaken disturbs nobody: prefer it for streams.

Spark makes a writer in one process of Python and ends it in another one. What makes the transaction begin is that the
writer is packed for its tasks: of a stream a second one is made for the commit, and must not begin another.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.client.transaction_requests import ProducerId
from barnabas.pipeline.arrow_functions import map_in_arrow
from barnabas.pipeline.errors import BlockingError, PipelineError, TransactionError, Untrusted, WrongUse
from barnabas.pipeline.ledger import Ledger, LedgerEntry, Verdict, decide, digest_of, entries_at, group_of
from barnabas.pipeline.producing import ProduceTask, open_cluster
from barnabas.pipeline.routing import KEY, PARTITION, TARGET, TIMESTAMP, TOPIC, VALUE, Router, Targets
from barnabas.pipeline.sink import (
    AT_LEAST_ONCE,
    SinkOptions,
    SinkSettings,
    check_columns,
    check_failures,
    check_reports,
    in_columns,
    partitions_of,
    routed_schema,
    sink_settings,
)
from barnabas.pipeline.task_reports import PartitionReport, TaskAttempt, current_task_attempt, failure_report
from barnabas.pipeline.transaction import Transaction
from barnabas.pipeline.worker_errors import errors_in_one_line
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS: Mapping[str, str] = {
    "delivery": "delivery",
    "kafka.transaction.timeout.ms": "transaction_timeout_ms",
    "kafka.compression.type": "compression_type",
    "kafka.batch.size": "batch_bytes",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.delivery.timeout.ms": "retry_timeout_ms",
    "beginLate": "begin_late",
}
"""Options of Spark, and what the sink calls them."""

BESIDES = ("kafka.bootstrap.servers", "bootstrap", "topic", "queryId")
OF_SPARK = ("checkpointLocation", "queryName")
"""What Spark hands over of a stream, and is none of ours."""


@dataclass(slots=True)
class WrittenByTask(WriterCommitMessage):
    """What a task tells the driver."""

    reports: list[PartitionReport]
    producer: ProducerId | None


class Writing:
    """What both writers do. Packing one for its tasks begins its transaction."""

    def __init__(self, settings: SinkSettings, used: Sequence[str]) -> None:
        self.settings = settings
        self.used = list(used)
        """The columns that are written."""
        self.targets: Targets | None = None
        self.producer: ProducerId | None = None
        with open_cluster(settings.producing) as cluster:
            if settings.topic is not None:
                self.targets = Targets(partitions_of(cluster, [settings.topic]))

    def __getstate__(self) -> dict[str, Any]:
        with errors_in_one_line():
            self.begin()
        return self.__dict__

    def begin(self) -> None:
        """Once."""
        settings = self.settings
        if settings.transactional_id is None or self.producer is not None:
            return
        assert self.targets is not None, "a transaction is of one topic"
        with open_cluster(settings.producing) as cluster:
            transaction = Transaction(cluster, settings.transactional_id, settings.transaction_timeout_ms)
            self.producer = transaction.begin()
            transaction.add(self.targets)

    # ---- in a task

    def write_rows(self, batches: Iterator[Any]) -> WrittenByTask:
        """Everything is on the replicas, or the reports say why not."""
        settings, place = self.settings, current_task_attempt()
        rows: Iterator[Any] = (self._prepared(batch) for batch in batches)
        try:
            if self.targets is not None:
                reports = self._task(self.targets, rows, place)
            else:
                reports = []
                for batch in rows:
                    reports += self._task(self._targets_of(batch), iter([batch]), place)
        except (PipelineError, KafkaError) as error:
            if settings.delivery == AT_LEAST_ONCE:
                raise
            reports = [failure_report(place, error)]
        return WrittenByTask(reports, self.producer)

    def _task(self, targets: Targets, rows: Iterator[Any], place: TaskAttempt) -> list[PartitionReport]:
        settings = self.settings
        anywhere = KEY not in self.used and PARTITION not in self.used and settings.topic is not None
        if not anywhere:
            rows = Router(targets, settings.topic)(rows)
        turn = 0 if anywhere else None
        task = ProduceTask(settings.producing, targets, settings.transactional_id, self.producer, turn)
        return task.write(rows, place)

    def _targets_of(self, batch: Any) -> Targets:
        """The partitions of the topics that its rows name."""
        names = pc.unique(batch.column(batch.schema.names.index(TOPIC))).to_pylist()
        with open_cluster(self.settings.producing) as cluster:
            return Targets(partitions_of(cluster, sorted(name for name in names if name is not None)))

    def _prepared(self, batch: Any) -> Any:
        columns = []
        for name in self.used:
            column = batch.column(batch.schema.names.index(name))
            if name in (KEY, VALUE):
                column = column.cast(pa.binary())
            elif name == TIMESTAMP:
                column = pc.divide(column.cast(pa.int64()), 1000)
            elif name == TOPIC:
                column = column.cast(pa.string())
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, self.used)

    # ---- on the driver

    def end(self, messages: Sequence[Any], batch_id: int | None) -> None:
        """Commit what tasks wrote, as batch `batch_id`; None: of no query. PipelineError: it is aborted."""
        reports = [report for message in messages if message is not None for report in message.reports]
        if self.settings.delivery == AT_LEAST_ONCE:
            check_failures(reports)
            return
        with open_cluster(self.settings.producing) as cluster:
            transaction = self._resumed(cluster, messages)
            try:
                trust(reports)
                if batch_id is not None and self._is_written(cluster, transaction, batch_id):
                    transaction.abort()
                    return
            except BaseException:
                self._abort(transaction)
                raise
            entry = LedgerEntry(
                batch_id or 0,
                self._checkpoint,
                records=sum(report.records for report in reports),
                digest=digest_of((each.topic, each.partition, each.first_offset, each.last_offset) for each in reports),
            )
            assert self.settings.topic is not None
            transaction.commit(group_of(self.settings.query_id), entries_at([self.settings.topic], entry))

    def give_up(self, messages: Sequence[Any]) -> None:
        """Abort, so that readers need not wait."""
        if self.settings.delivery == AT_LEAST_ONCE:
            return
        with open_cluster(self.settings.producing) as cluster:
            self._abort(self._resumed(cluster, messages))

    @property
    def _checkpoint(self) -> str:
        """The id that Spark keeps in its checkpoint is not told here: the name has to stand for it."""
        return f"format {self.settings.query_id}"

    def _is_written(self, cluster: Any, transaction: Transaction, batch_id: int) -> bool:
        settings = self.settings
        assert settings.topic is not None
        ledger = Ledger(cluster, settings.query_id, settings.topic)
        last = ledger.last_before(transaction, [settings.topic], LedgerEntry(batch_id, self._checkpoint))
        may_begin_late = settings.begin_late
        verdict = decide(last, batch_id, self._checkpoint, query=settings.query_id, may_begin_late=may_begin_late)
        return verdict is Verdict.SKIP

    def _resumed(self, cluster: Any, messages: Sequence[Any]) -> Transaction:
        """The transaction that the tasks wrote in; a new one if there were none."""
        settings = self.settings
        assert settings.transactional_id is not None
        transaction = Transaction(cluster, settings.transactional_id, settings.transaction_timeout_ms)
        told = [message.producer for message in messages if message is not None and message.producer is not None]
        producer = self.producer or (told[0] if told else None)
        if producer is None:
            transaction.begin()
        else:
            transaction.resume(producer)
        return transaction

    @staticmethod
    def _abort(transaction: Transaction) -> None:
        try:
            transaction.abort()
        except (TransactionError, BlockingError, KafkaError):
            # It ends by its timeout, or with the next transaction of this name.
            return


def trust(reports: Sequence[PartitionReport]) -> None:
    """PipelineError if this may not be committed."""
    try:
        check_reports(reports)
    except Untrusted as error:
        raise PipelineError(
            f"{error}; nothing is written: run it again, and if tasks have rows of the same partitions, give each its"
            " own by by_target_partition(frame, bootstrap, topic)"
        ) from None


class BatchWriter(Writing, DataSourceArrowWriter):
    """Of one frame."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with errors_in_one_line():
            return self.write_rows(iterator)

    def commit(self, messages: list[Any]) -> None:
        with errors_in_one_line():
            self.end(messages, None)

    def abort(self, messages: list[Any]) -> None:
        with errors_in_one_line():
            self.give_up(messages)


class StreamWriter(Writing, DataSourceStreamArrowWriter):
    """Of a query; Spark makes one for each micro-batch, and one more for its end."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with errors_in_one_line():
            return self.write_rows(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        with errors_in_one_line():
            self.end(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        with errors_in_one_line():
            self.give_up(messages)


def batch_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> Any:
    """What Spark's `df.write.format("barnabas")` asks for. WrongUse, in one line, for what cannot be."""
    if overwrite:
        raise WrongUse('a topic is not overwritten: say mode("append")')
    name = options.get("queryId") or f"write-{uuid.uuid4().hex}"
    return BatchWriter(*_asked(schema, options, name))


def stream_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> Any:
    """What `df.writeStream.format("barnabas")` asks for; `queryId` names the query for ever."""
    name = options.get("queryId")
    if not name and options.get("delivery") != AT_LEAST_ONCE:
        raise WrongUse("a stream needs the option queryId, which names its ledger; it must not change with restarts")
    return StreamWriter(*_asked(schema, options, name or "at-least-once"))


def _asked(schema: Any, options: Mapping[str, str], name: str) -> tuple[SinkSettings, list[str]]:
    _refuse_unknown(options)
    bootstrap = options.get("kafka.bootstrap.servers") or options.get("bootstrap")
    if not bootstrap:
        raise WrongUse("kafka.bootstrap.servers is missing: give HOST:PORT of a broker, as in 127.0.0.1:9092")
    given: dict[str, Any] = {}
    for option, ours in OPTIONS.items():
        value = options.get(option)
        if value is not None:
            given[ours] = _read(option, value, SinkOptions.__annotations__[ours])
    topic = options.get("topic")
    settings = sink_settings(bootstrap, topic, name, **given)
    if topic is None and settings.delivery != AT_LEAST_ONCE:
        raise WrongUse(
            "exactly once needs the option topic; rows of many topics: foreachBatch, or delivery=at-least-once"
        )
    return settings, check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, topic)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*OPTIONS, *BESIDES, *OF_SPARK)}
    for name in options:
        if name.lower() not in known:
            close = get_close_matches(name.lower(), known, 1)
            raise WrongUse(f"option {name}: the sink has no such option{f'; {known[close[0]]}?' if close else ''}")


def _read(option: str, value: str, kind: Any) -> Any:
    kind = str(kind)
    if "int" in kind:
        try:
            return int(value)
        except ValueError:
            raise WrongUse(f"{option} {value!r}: it is a whole number") from None
    if "bool" in kind:
        if value.lower() not in ("true", "false"):
            raise WrongUse(f"{option} {value!r}: it is true or false")
        return value.lower() == "true"
    return value


def by_target_partition(frame: DataFrame, bootstrap: str, topic: str) -> DataFrame:
    """The same rows, each with its partition, and no two tasks with rows of one partition; other columns are left out.

    Rows go where Kafka's producer would send them: to their own partition, or by their key.
    """
    from pyspark.sql import functions

    settings = sink_settings(bootstrap, topic, "by-target-partition")
    with open_cluster(settings.producing) as cluster:
        targets = Targets(partitions_of(cluster, [topic]))
    rows = in_columns(frame, topic)
    routed = map_in_arrow(rows, Router(targets, topic), routed_schema(rows))
    tasks = min(len(targets), 2 * max(1, frame.sparkSession.sparkContext.defaultParallelism))
    placed = routed.repartitionById(tasks, TARGET).withColumnRenamed(TARGET, PARTITION)
    if TIMESTAMP in placed.columns:
        placed = placed.withColumn(TIMESTAMP, functions.timestamp_millis(TIMESTAMP))
    return placed
