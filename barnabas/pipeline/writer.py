"""`df.write.format("barnabas")` and `df.writeStream.format("barnabas")`: the sink as a Python data source of Spark.

    by_target_partition(df, "127.0.0.1:9092", "flights").write.format("barnabas").mode("append")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "flights").save()

A batch write is one transaction, and so is each micro-batch. Spark distributes the rows to tasks here, so two tasks may
have rows of one partition. This is detected after all have written; then nothing is committed, and the write fails.
`by_target_partition` makes a frame whose tasks have separate partitions. `foreachBatch` with `sink.py` does all that by
itself, retries a batch, and a replaced driver disturbs nobody: prefer it for streams.

Spark creates a writer in one Python process and commits it in another. The transaction begins when the writer is
pickled for its tasks: for a stream, Spark creates a second writer for the commit, which must not begin a transaction.
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
from barnabas.pipeline.cluster_access import SECURITY_OPTIONS, Bootstrap, ClusterAccess
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
from barnabas.protocol.errors import KafkaError

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
"""Options of the format, and their names in SinkOptions."""

BESIDES = ("kafka.bootstrap.servers", "bootstrap", "topic", "queryId")
OF_SPARK = ("checkpointLocation", "queryName")
"""Options of Spark itself, which it passes to the writer of a stream."""


@dataclass(slots=True)
class WrittenByTask(WriterCommitMessage):
    """The message of a task to the driver."""

    reports: list[PartitionReport]
    producer: ProducerId | None


class Writing:
    """The common part of both writers. Pickling one begins its transaction."""

    def __init__(self, settings: SinkSettings, used: Sequence[str]) -> None:
        self.settings = settings
        self.used = list(used)
        """The columns to write."""
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
        """Begin the transaction, once."""
        settings = self.settings
        if settings.transactional_id is None or self.producer is not None:
            return
        assert self.targets is not None, "a transaction is of one topic"
        with open_cluster(settings.producing) as cluster:
            transaction = Transaction(cluster, settings.transactional_id, settings.transaction_timeout_ms)
            self.producer = transaction.begin()
            transaction.add(self.targets)

    # In a task

    def write_rows(self, batches: Iterator[Any]) -> WrittenByTask:
        """Returns when all rows are replicated, or with the reason of the failure."""
        settings, attempt = self.settings, current_task_attempt()
        rows: Iterator[Any] = (self._prepared(batch) for batch in batches)
        try:
            if self.targets is not None:
                reports = self._task(self.targets, rows, attempt)
            else:
                reports = []
                for batch in rows:
                    reports += self._task(self._targets_of(batch), iter([batch]), attempt)
        except (PipelineError, KafkaError) as error:
            if settings.delivery == AT_LEAST_ONCE:
                raise
            reports = [failure_report(attempt, error)]
        return WrittenByTask(reports, self.producer)

    def _task(self, targets: Targets, rows: Iterator[Any], attempt: TaskAttempt) -> list[PartitionReport]:
        settings = self.settings
        anywhere = KEY not in self.used and PARTITION not in self.used and settings.topic is not None
        if not anywhere:
            rows = Router(targets, settings.topic)(rows)
        shift = 0 if anywhere else None
        task = ProduceTask(settings.producing, targets, settings.transactional_id, self.producer, shift)
        return task.write(rows, attempt)

    def _targets_of(self, batch: Any) -> Targets:
        """The partitions of the topics in the batch."""
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

    # On the driver

    def end(self, messages: Sequence[Any], batch_id: int | None) -> None:
        """Commit the rows of the tasks, as batch `batch_id` of the query, or (None) as a single write. After a
        PipelineError the transaction is aborted."""
        reports = [report for message in messages if message is not None for report in message.reports]
        if self.settings.delivery == AT_LEAST_ONCE:
            check_failures(reports)
            return
        with open_cluster(self.settings.producing) as cluster:
            transaction = self._resumed(cluster, messages)
            try:
                require_trusted(reports)
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

    def abort_all(self, messages: Sequence[Any]) -> None:
        """Abort, so that readers do not have to wait."""
        if self.settings.delivery == AT_LEAST_ONCE:
            return
        with open_cluster(self.settings.producing) as cluster:
            self._abort(self._resumed(cluster, messages))

    @property
    def _checkpoint(self) -> str:
        """Stands in for the id of the query, which Spark does not pass to writers."""
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
        """The transaction of the tasks; a new one if there were no tasks."""
        settings = self.settings
        assert settings.transactional_id is not None
        transaction = Transaction(cluster, settings.transactional_id, settings.transaction_timeout_ms)
        producers = [message.producer for message in messages if message is not None and message.producer is not None]
        producer = self.producer or (producers[0] if producers else None)
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
            # The timeout or the next transaction of this id aborts it.
            return


def require_trusted(reports: Sequence[PartitionReport]) -> None:
    """PipelineError if the batch must not be committed."""
    try:
        check_reports(reports)
    except Untrusted as error:
        raise PipelineError(
            f"{error}; nothing was committed. Run it again; if tasks share partitions, separate them with"
            " by_target_partition(frame, bootstrap, topic)"
        ) from None


class BatchWriter(Writing, DataSourceArrowWriter):
    """Writes one frame."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with errors_in_one_line():
            return self.write_rows(iterator)

    def commit(self, messages: list[Any]) -> None:
        with errors_in_one_line():
            self.end(messages, None)

    def abort(self, messages: list[Any]) -> None:
        with errors_in_one_line():
            self.abort_all(messages)


class StreamWriter(Writing, DataSourceStreamArrowWriter):
    """Writes a stream. Spark creates one for each micro-batch, and another for its commit."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with errors_in_one_line():
            return self.write_rows(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        with errors_in_one_line():
            self.end(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        with errors_in_one_line():
            self.abort_all(messages)


def batch_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> Any:
    """The writer of `df.write.format("barnabas")`. WrongUse for an invalid option."""
    if overwrite:
        raise WrongUse('a topic cannot be overwritten; use mode("append")')
    name = options.get("queryId") or f"write-{uuid.uuid4().hex}"
    return BatchWriter(*_settings_of(schema, options, name))


def stream_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> Any:
    """The writer of `df.writeStream.format("barnabas")`; `queryId` identifies the query for ever."""
    name = options.get("queryId")
    if not name and options.get("delivery") != AT_LEAST_ONCE:
        raise WrongUse("option queryId is missing; it names the stream's ledger and must not change between restarts")
    return StreamWriter(*_settings_of(schema, options, name or "at-least-once"))


def _settings_of(schema: Any, options: Mapping[str, str], name: str) -> tuple[SinkSettings, list[str]]:
    _refuse_unknown(options)
    bootstrap = options.get("kafka.bootstrap.servers") or options.get("bootstrap")
    if not bootstrap:
        raise WrongUse("option kafka.bootstrap.servers is missing; it must be HOST:PORT,…, e.g. 127.0.0.1:9092")
    given: dict[str, Any] = {}
    for option, ours in OPTIONS.items():
        value = options.get(option)
        if value is not None:
            given[ours] = _parsed(option, value, SinkOptions.__annotations__[ours])
    topic = options.get("topic")
    settings = sink_settings(ClusterAccess.of_options(bootstrap, options), topic, name, **given)
    if topic is None and settings.delivery != AT_LEAST_ONCE:
        raise WrongUse(
            "option topic is missing; for rows of several topics use foreachBatch, or delivery=at-least-once"
        )
    return settings, check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, topic)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*OPTIONS, *BESIDES, *SECURITY_OPTIONS, *OF_SPARK)}
    for name in options:
        if name.lower() not in known:
            close = get_close_matches(name.lower(), known, 1)
            hint = f"; did you mean {known[close[0]]}?" if close else ""
            raise WrongUse(f"the sink has no option {name}{hint}")


def _parsed(option: str, value: str, kind: Any) -> Any:
    kind = str(kind)
    if "int" in kind:
        try:
            return int(value)
        except ValueError:
            raise WrongUse(f"option {option} must be a whole number; got {value!r}") from None
    if "bool" in kind:
        if value.lower() not in ("true", "false"):
            raise WrongUse(f"option {option} must be true or false; got {value!r}")
        return value.lower() == "true"
    return value


def by_target_partition(frame: DataFrame, bootstrap: Bootstrap, topic: str) -> DataFrame:
    """The rows with their partitions, distributed so that no two tasks share a partition; other columns are left out.

    Partitions are chosen as in Kafka's producer: the row's own partition, or by key.
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
