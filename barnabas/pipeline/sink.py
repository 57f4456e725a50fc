"""The sink on the driver: writes each micro-batch of a query exactly once, in one transaction.

    rows.writeStream.foreachBatch(exactly_once_sink("127.0.0.1:9092", "flights", "load-flights")).start()

Spark repeats a batch if it does not know whether it was completed. So the number of the batch is committed together
with its rows (`ledger.py`), in one transaction (`transaction.py`); a batch whose number is in the ledger is skipped.
Tasks write with the driver's producer id (`producing.py`). Each partition is written by one task only, so rows are
shuffled by target, unless they have neither key nor partition.

A batch is aborted and written again in another epoch if an attempt cannot be trusted: a task or a stage was retried,
two tasks wrote to one partition, or the outcome of the transaction is unknown.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from barnabas.client.transaction_requests import ProducerId
from barnabas.pipeline.arrow_functions import map_in_arrow
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import Bootstrap
from barnabas.pipeline.errors import (
    BlockingError,
    Fenced,
    OutcomeUnknown,
    PipelineError,
    TookTooLong,
    TransactionError,
    Untrusted,
    WrongUse,
)
from barnabas.pipeline.ledger import Ledger, LedgerEntry, Verdict, decide, digest_of, entries_at, group_of
from barnabas.pipeline.partition_writer import BATCH_BYTES, REQUEST_TIMEOUT_MS, RETRY_TIMEOUT_MS, ProducingSettings
from barnabas.pipeline.producing import ProduceTask, open_cluster
from barnabas.pipeline.retry_policy import MISSING_TOPIC_MS
from barnabas.pipeline.routing import HEADERS, KEY, PARTITION, TARGET, TIMESTAMP, TOPIC, VALUE, Router, Targets
from barnabas.pipeline.spark_errors import refusal, spark_errors
from barnabas.pipeline.task_reports import REPORT_COLUMNS, PartitionReport
from barnabas.pipeline.transaction import Transaction
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.compression import Compression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

TRANSACTION_TIMEOUT_MS = 300_000
"""Must be at most transaction.max.timeout.ms of the brokers (default 900,000)."""
QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Local property of Spark with the id of the running query, which the checkpoint keeps."""
ATTEMPTS = 3


class SinkOptions(TypedDict, total=False):
    """All options have defaults."""

    delivery: str
    """`exactly-once`, or `at-least-once`: no transaction and no shuffle, but a retried task writes its rows again."""
    transaction_timeout_ms: int
    """transaction.timeout.ms: the maximum duration of a batch. If a driver never comes back, readers of committed
    records wait this long for its open transaction."""
    compression_type: str
    """none, gzip, snappy, lz4, zstd."""
    batch_bytes: int
    """Maximum size of a record batch, before compression."""
    request_timeout_ms: int
    retry_timeout_ms: int
    """Maximum time for which the cluster may be unavailable."""
    attempts: int
    """Maximum number of attempts to write a batch."""
    begin_late: bool
    """Accept that batches before this one are not in the ledger."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Validated options, see `SinkOptions`."""

    query_id: str
    topic: str | None
    producing: ProducingSettings
    delivery: str = EXACTLY_ONCE
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    attempts: int = ATTEMPTS
    begin_late: bool = False

    @property
    def transactional_id(self) -> str | None:
        return group_of(self.query_id) if self.delivery == EXACTLY_ONCE else None


class Written(NamedTuple):
    """The result of a batch."""

    batch_id: int
    records: int
    size_bytes: int
    skipped: bool
    """The batch was already committed."""
    seconds: float
    attempts: int


@dataclass(slots=True)
class Sink:
    """The function for `foreachBatch` of one query."""

    settings: SinkSettings
    last: Written | None = None
    """The result of the last batch."""
    _cluster: BlockingCluster | None = field(default=None, repr=False)
    _transaction: Transaction | None = field(default=None, repr=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch unless it is already committed. PipelineError."""
        began = time.monotonic()
        try:
            if self.settings.delivery == AT_LEAST_ONCE:
                written, attempts = self._write_at_least_once(frame, batch_id), 1
            else:
                written, attempts = self._write_exactly_once(frame, batch_id)
        except KafkaError as error:
            raise PipelineError(f"batch {batch_id} of {self.settings.query_id}: {error}") from None
        reports = written or []
        records, size_bytes = sum(report.records for report in reports), sum(report.size_bytes for report in reports)
        self.last = Written(batch_id, records, size_bytes, written is None, time.monotonic() - began, attempts)
        log.info("%s: %s", self.settings.query_id, self.last)

    def close(self) -> None:
        """Close the connections; the next batch opens them again."""
        if self._cluster is not None:
            self._cluster.close()

    # Exactly once

    def _write_exactly_once(self, frame: DataFrame, batch_id: int) -> tuple[list[PartitionReport] | None, int]:
        """(reports of the tasks, or None if the batch was already committed; number of attempts)."""
        settings = self.settings
        refuse_speculation(frame.sparkSession)
        checkpoint = checkpoint_of(frame) or f"batch {settings.query_id}"
        reason: PipelineError | None = None
        for attempt in range(1, settings.attempts + 1):
            try:
                return self._attempt(frame, batch_id, checkpoint), attempt
            except (Fenced, TookTooLong):
                raise
            except (Untrusted, OutcomeUnknown) as error:
                reason = error
                log.warning("batch %d of %s, attempt %d: %s", batch_id, settings.query_id, attempt, error)
        raise PipelineError(f"batch {batch_id} of {settings.query_id} failed in {settings.attempts} attempts: {reason}")

    def _attempt(self, frame: DataFrame, batch_id: int, checkpoint: str) -> list[PartitionReport] | None:
        """The order guarantees exactly once: fence, write, read, decide. See `Transaction.read_after_write`."""
        settings, transaction = self.settings, self._opened_transaction()
        targets = self._targets(frame)
        if not len(targets):
            return []
        producer = transaction.begin()
        try:
            if self._is_written(transaction, targets, batch_id, checkpoint):
                self._abort(transaction)
                return None
            transaction.add(targets)
            reports = self._produce(frame, targets, producer, batch_id)
            check_reports(reports)
            refuse_stage_retry(frame.sparkSession, reports)
        except Fenced:
            # Nothing is left to abort: fencing has aborted the transaction.
            raise
        except BaseException:
            # If the batch took too long, tasks only see that they are fenced.
            transaction.check_time()
            self._abort(transaction)
            raise
        topics = [settings.topic] if settings.topic is not None else sorted({report.topic for report in reports})
        entry = LedgerEntry(
            batch_id,
            checkpoint,
            frame.sparkSession.sparkContext.applicationId,
            sum(report.records for report in reports),
            digest_of((report.topic, report.partition, report.first_offset, report.last_offset) for report in reports),
        )
        if transaction.open_ms > settings.transaction_timeout_ms / 2:
            log.warning(
                "batch %d of %s took %d ms, more than half of transaction.timeout.ms (%d)",
                batch_id,
                settings.query_id,
                transaction.open_ms,
                settings.transaction_timeout_ms,
            )
        transaction.commit(group_of(settings.query_id), entries_at(topics, entry))
        return reports

    def _is_written(self, transaction: Transaction, targets: Targets, batch_id: int, checkpoint: str) -> bool:
        """Whether the ledger has the batch. LedgerError if ledger and checkpoint disagree."""
        settings = self.settings
        ledger = Ledger(self._opened(), settings.query_id, settings.topic)
        # Any topic can take the write that precedes the read.
        topics = list(targets.partitions)[:1]
        last = ledger.last_before(transaction, topics, LedgerEntry(batch_id, checkpoint))
        verdict = decide(last, batch_id, checkpoint, query=settings.query_id, may_begin_late=settings.begin_late)
        return verdict is Verdict.SKIP

    def _abort(self, transaction: Transaction) -> None:
        """Abort, so that readers do not have to wait. If that fails, the next transaction aborts this one."""
        try:
            transaction.abort()
        except (TransactionError, BlockingError, KafkaError) as error:
            log.warning("%s is left to the next batch or its timeout: %s", transaction.transactional_id, error)

    # Writing

    def _write_at_least_once(self, frame: DataFrame, batch_id: int) -> list[PartitionReport] | None:
        targets = self._targets(frame)
        reports = self._produce(frame, targets, None, batch_id) if len(targets) else []
        check_failures(reports)
        return reports

    def _produce(
        self, frame: DataFrame, targets: Targets, producer: ProducerId | None, batch_id: int
    ) -> list[PartitionReport]:
        """Write the rows with Spark. PipelineError with the error of a task or of Spark."""
        settings = self.settings
        owned = producer is not None
        rows = in_columns(frame, settings.topic)
        shift = None
        if KEY not in rows.columns and PARTITION not in rows.columns and settings.topic is not None:
            # Each task takes a partition for itself, so nothing is shuffled.
            shift = batch_id
            if owned:
                rows = rows.coalesce(len(targets))
        else:
            rows = map_in_arrow(rows, Router(targets, settings.topic), routed_schema(rows))
            if owned:
                tasks = min(len(targets), 2 * max(1, frame.sparkSession.sparkContext.defaultParallelism))
                rows = rows.repartitionById(tasks, TARGET)
        task = ProduceTask(settings.producing, targets, settings.transactional_id, producer, shift)
        try:
            return [PartitionReport(*row) for row in map_in_arrow(rows, task, REPORT_COLUMNS).collect()]
        except spark_errors() as error:
            raise refusal(error) from error

    def _targets(self, frame: DataFrame) -> Targets:
        """All partitions of the batch's topics. PipelineError if a topic does not exist."""
        topic = self.settings.topic
        if topic is not None:
            topics = [topic]
        else:
            check_columns(dict(frame.dtypes), topic)
            found = [row[0] for row in frame.select(TOPIC).distinct().collect()]
            if None in found:
                raise PipelineError(f"a row has no topic; fill the column {TOPIC!r}, or give one topic for all rows")
            topics = sorted(found)
        return Targets(partitions_of(self._opened(), topics))

    def _opened(self) -> BlockingCluster:
        if self._cluster is None:
            self._cluster = open_cluster(self.settings.producing)
        return self._cluster

    def _opened_transaction(self) -> Transaction:
        if self._transaction is None:
            transactional_id = self.settings.transactional_id
            assert transactional_id is not None, "without transactions none is opened"
            self._transaction = Transaction(self._opened(), transactional_id, self.settings.transaction_timeout_ms)
        return self._transaction


def exactly_once_sink(
    bootstrap: Bootstrap, topic: str | None, query_id: str, **options: Unpack[SinkOptions]
) -> Callable[[Any, int], None]:
    """A function for `foreachBatch`. `topic` is the topic of all rows; None: rows have a column `topic`.

    `query_id` identifies the query for ever: its ledger is the group `spark-sink-QUERY_ID`, and no other query may use
    it. Consumers need isolation.level=read_committed. WrongUse for an invalid option.
    """
    return Sink(sink_settings(bootstrap, topic, query_id, **options))


def sink_settings(
    bootstrap: Bootstrap, topic: str | None, query_id: str, **options: Unpack[SinkOptions]
) -> SinkSettings:
    """WrongUse for an invalid or unknown option."""
    unknown = [name for name in options if name not in SinkOptions.__annotations__]
    if unknown:
        raise WrongUse(f"the sink has no option {unknown[0]}")
    delivery = options.get("delivery", EXACTLY_ONCE)
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise WrongUse(f"delivery must be {EXACTLY_ONCE} or {AT_LEAST_ONCE}; got {delivery!r}")
    if not query_id:
        raise WrongUse("query_id must not be empty: ledger and transactional id are named after it")
    compression = options.get("compression_type", "none")
    if compression.upper() not in Compression.__members__:
        raise WrongUse(f"compression.type must be none, gzip, snappy, lz4 or zstd; got {compression!r}")
    numbers = {
        "transaction_timeout_ms": options.get("transaction_timeout_ms", TRANSACTION_TIMEOUT_MS),
        "attempts": options.get("attempts", ATTEMPTS),
        "batch_bytes": options.get("batch_bytes", BATCH_BYTES),
        "request_timeout_ms": options.get("request_timeout_ms", REQUEST_TIMEOUT_MS),
        "retry_timeout_ms": options.get("retry_timeout_ms", RETRY_TIMEOUT_MS),
    }
    for name, value in numbers.items():
        if value < 1:
            raise WrongUse(f"{name} must be at least 1; got {value}")
    producing = ProducingSettings(
        bootstrap,
        Compression[compression.upper()],
        numbers["batch_bytes"],
        numbers["request_timeout_ms"],
        numbers["retry_timeout_ms"],
    )
    return SinkSettings(
        query_id,
        topic,
        producing,
        delivery,
        numbers["transaction_timeout_ms"],
        numbers["attempts"],
        options.get("begin_late", False),
    )


# Checks of a batch


def check_failures(reports: Sequence[PartitionReport]) -> None:
    """PipelineError with the reason of a failed task; Untrusted if the batch may be written again."""
    refusals = [report for report in reports if report.refusal is not None]
    final = [report for report in refusals if not report.retriable]
    if final:
        raise PipelineError(final[0].refusal or "")
    if refusals:
        raise Untrusted(refusals[0].refusal or "")


def check_reports(reports: Sequence[PartitionReport]) -> None:
    """Like `check_failures`; also Untrusted if two tasks wrote to one partition, because the leader may have taken
    batches of one for duplicates of the other's."""
    check_failures(reports)
    counts = Counter((report.topic, report.partition) for report in reports)
    for (topic, partition), count in counts.items():
        if count > 1:
            raise Untrusted(f"{count} tasks wrote to {topic}-{partition}, but only one may")


def refuse_speculation(session: Any) -> None:
    """WrongUse if Spark may run copies of slow tasks."""
    if str(session.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true":
        raise WrongUse("spark.speculation must be false: a copy of a task would write its rows twice")


def refuse_stage_retry(session: Any, reports: Sequence[PartitionReport]) -> None:
    """Untrusted if Spark repeated a stage because a shuffle file was lost; its tasks are then first attempts again."""
    tracker = session.sparkContext.statusTracker()
    for stage_id in sorted({report.stage_id for report in reports}):
        stage = tracker.getStageInfo(stage_id)
        if stage is not None and stage.currentAttemptId > 0:
            raise Untrusted(
                f"stage {stage_id} ran {stage.currentAttemptId + 1} times, so tasks may have written rows twice"
            )


# Frames


def in_columns(frame: DataFrame, topic: str | None) -> DataFrame:
    """The frame with the columns of the sink, in its types. WrongUse as `check_columns`."""
    from pyspark.sql import functions

    types = dict(frame.dtypes)
    columns = []
    for name in check_columns(types, topic):
        column = functions.col(name)
        if name in (KEY, VALUE):
            column = column.cast("binary")
        elif name == TIMESTAMP:
            column = functions.unix_millis(column)
        columns.append(column.alias(name))
    return frame.select(*columns)


COLUMNS: Mapping[str, tuple[str, ...]] = {
    KEY: ("string", "binary"),
    VALUE: ("string", "binary"),
    TOPIC: ("string",),
    PARTITION: ("int",),
    TIMESTAMP: ("timestamp",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
}
"""The columns of the sink and their types; others are left out. As in Spark's JVM connector, which also leaves out the
timestamp."""


def check_columns(types: Mapping[str, str], topic: str | None) -> list[str]:
    """The columns to write. WrongUse if value or topic is missing, or a column has another type."""
    if VALUE not in types:
        raise WrongUse(f"rows need a column {VALUE!r} of bytes or text; got {', '.join(types)}")
    if topic is None and TOPIC not in types:
        raise WrongUse(f"rows need a column {TOPIC!r}, or one topic for all of them")
    used = [name for name in COLUMNS if name in types and (name != TOPIC or topic is None)]
    for name in used:
        if types[name] not in COLUMNS[name]:
            raise WrongUse(f"column {name!r} must be {' or '.join(COLUMNS[name])}; got {types[name]}")
    return used


def routed_schema(rows: DataFrame) -> str:
    """The schema of rows with a target."""
    kept = [f"{name} {kind}" for name, kind in rows.dtypes if name not in (TOPIC, PARTITION)]
    return ", ".join([*kept, f"{TARGET} int"])


def checkpoint_of(frame: DataFrame) -> str | None:
    """The id of the running query, which its checkpoint keeps; None outside of queries."""
    found: str | None = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    return found


def partitions_of(cluster: BlockingCluster, topics: Sequence[str]) -> dict[str, int]:
    """The number of partitions of each topic. PipelineError if one still does not exist after MISSING_TOPIC_MS."""
    deadline = time.monotonic() + MISSING_TOPIC_MS / 1000
    while topics:
        view = cluster.metadata(topics)
        missing = [topic for topic in topics if topic not in view.topics or not view.topics[topic].partitions]
        if not missing:
            return {topic: len(view.topics[topic].partitions) for topic in topics}
        if time.monotonic() > deadline:
            raise PipelineError(f"topic {missing[0]} does not exist; create it first")
        time.sleep(0.1)
    return {}
