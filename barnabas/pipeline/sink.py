"""The sink on the driver: each micro-batch of a query is one transaction, and is in it once.

    rows.writeStream.foreachBatch(exactly_once_sink("127.0.0.1:9092", "flights", "load-flights")).start()

Spark repeats a batch of which it does not know the end. So the number of the batch is committed with its rows
(`ledger.py`), by one transaction (`transaction.py`), and a batch whose number stands in the ledger is skipped. Tasks
write with the driver's producer id (`producing.py`); each partition of the topic is written by one task alone, so rows
are shuffled by their target, unless they have neither key nor partition.

A batch is given up, aborted and written anew in another epoch where one attempt of it cannot be trusted: a task was
tried twice, a stage was, two tasks wrote to one partition, or the end of the transaction is unknown.
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
from protocol.errors import KafkaError
from protocol.records.compression import Compression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

TRANSACTION_TIMEOUT_MS = 300_000
"""Long enough for a batch of a stream; the brokers allow 900,000 at most (transaction.max.timeout.ms)."""
QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Spark tells it to whatever runs within a query; it is kept in the checkpoint."""
ATTEMPTS = 3


class SinkOptions(TypedDict, total=False):
    """All of them may be left out."""

    delivery: str
    """`exactly-once`, or `at-least-once`: no transaction, no shuffle, and a task that is tried again writes again."""
    transaction_timeout_ms: int
    """transaction.timeout.ms: the longest that a batch may take. Readers of committed records wait as long for what a
    driver left open that never comes back."""
    compression_type: str
    """none, gzip, snappy, lz4, zstd."""
    batch_bytes: int
    """Of a record batch, before compression."""
    request_timeout_ms: int
    retry_timeout_ms: int
    """How long the cluster may be away."""
    attempts: int
    """How often a batch is written at most."""
    begin_late: bool
    """The batches before the first one are not in the ledger, and that is right."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Checked; see `SinkOptions`."""

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
    """What became of a batch."""

    batch_id: int
    records: int
    size_bytes: int
    skipped: bool
    """It was there already."""
    seconds: float
    attempts: int


@dataclass(slots=True)
class Sink:
    """What `foreachBatch` calls. One of them serves one query; a batch after the other."""

    settings: SinkSettings
    last: Written | None = None
    """What became of the last batch."""
    _cluster: BlockingCluster | None = field(default=None, repr=False)
    _transaction: Transaction | None = field(default=None, repr=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch, or find that it is written. PipelineError tells in one line why neither could be."""
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
        """Close its connections; the next batch opens them again."""
        if self._cluster is not None:
            self._cluster.close()

    # ---- exactly once

    def _write_exactly_once(self, frame: DataFrame, batch_id: int) -> tuple[list[PartitionReport] | None, int]:
        """(what was written, or None if it was before; how many attempts that took)."""
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
        raise PipelineError(f"batch {batch_id} of {settings.query_id}, after {settings.attempts} attempts: {reason}")

    def _attempt(self, frame: DataFrame, batch_id: int, checkpoint: str) -> list[PartitionReport] | None:
        """The order is what writes a batch once: fence, write, read, decide. See `Transaction.read_after_write`."""
        settings, transaction = self.settings, self._opened_transaction()
        targets = self._targets(frame)
        if not len(targets):
            return []
        producer = transaction.begin()
        try:
            if self._is_written(transaction, targets, batch_id, checkpoint):
                self._give_up(transaction)
                return None
            transaction.add(targets)
            reports = self._produce(frame, targets, producer, batch_id)
            check_reports(reports)
            refuse_stage_retry(frame.sparkSession, reports)
        except Fenced:
            # There is nothing left to abort: the other driver has seen to it.
            raise
        except BaseException:
            # Tasks of a batch that takes too long are refused, and do not know why.
            transaction.check_time()
            self._give_up(transaction)
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
                "batch %d of %s took %d ms; at %d ms (transaction.timeout.ms) it would have been aborted",
                batch_id,
                settings.query_id,
                transaction.open_ms,
                settings.transaction_timeout_ms,
            )
        transaction.commit(group_of(settings.query_id), entries_at(topics, entry))
        return reports

    def _is_written(self, transaction: Transaction, targets: Targets, batch_id: int, checkpoint: str) -> bool:
        """Whether the ledger has the batch. LedgerError if neither yes nor no can be right."""
        settings = self.settings
        ledger = Ledger(self._opened(), settings.query_id, settings.topic)
        # Any topic will do for the write that goes first.
        topics = list(targets.partitions)[:1]
        last = ledger.last_before(transaction, topics, LedgerEntry(batch_id, checkpoint))
        verdict = decide(last, batch_id, checkpoint, query=settings.query_id, may_begin_late=settings.begin_late)
        return verdict is Verdict.SKIP

    def _give_up(self, transaction: Transaction) -> None:
        """Abort, so that readers need not wait. Where that fails the next transaction sees to it."""
        try:
            transaction.abort()
        except (TransactionError, BlockingError, KafkaError) as error:
            log.warning("%s is aborted by the next batch, or by its timeout: %s", transaction.transactional_id, error)

    # ---- both

    def _write_at_least_once(self, frame: DataFrame, batch_id: int) -> list[PartitionReport] | None:
        targets = self._targets(frame)
        reports = self._produce(frame, targets, None, batch_id) if len(targets) else []
        check_failures(reports)
        return reports

    def _produce(
        self, frame: DataFrame, targets: Targets, producer: ProducerId | None, batch_id: int
    ) -> list[PartitionReport]:
        """Have Spark write it. PipelineError with the line that a task told, or what Spark told."""
        settings = self.settings
        owned = producer is not None
        rows = in_columns(frame, settings.topic)
        turn = None
        if KEY not in rows.columns and PARTITION not in rows.columns and settings.topic is not None:
            # Any partition will do, so a task takes one for itself, and nothing is shuffled.
            turn = batch_id
            if owned:
                rows = rows.coalesce(len(targets))
        else:
            rows = map_in_arrow(rows, Router(targets, settings.topic), routed_schema(rows))
            if owned:
                tasks = min(len(targets), 2 * max(1, frame.sparkSession.sparkContext.defaultParallelism))
                rows = rows.repartitionById(tasks, TARGET)
        task = ProduceTask(settings.producing, targets, settings.transactional_id, producer, turn)
        try:
            return [PartitionReport(*row) for row in map_in_arrow(rows, task, REPORT_COLUMNS).collect()]
        except spark_errors() as error:
            raise refusal(error) from error

    def _targets(self, frame: DataFrame) -> Targets:
        """All partitions that the batch may be written to. PipelineError if a topic is not there."""
        topic = self.settings.topic
        if topic is not None:
            topics = [topic]
        else:
            check_columns(dict(frame.dtypes), topic)
            found = [row[0] for row in frame.select(TOPIC).distinct().collect()]
            if None in found:
                raise PipelineError(f"a row has no topic: fill the column {TOPIC!r}, or name one topic for all")
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
    bootstrap: str, topic: str | None, query_id: str, **options: Unpack[SinkOptions]
) -> Callable[[Any, int], None]:
    """For `foreachBatch`. `topic` is that of all rows; None: the column `topic` of each row says it.

    `query_id` names the query for ever: its ledger is the group `spark-sink-QUERY_ID`, and nobody else may write under
    that name. Readers want isolation.level=read_committed. WrongUse if a setting cannot be.
    """
    return Sink(sink_settings(bootstrap, topic, query_id, **options))


def sink_settings(bootstrap: str, topic: str | None, query_id: str, **options: Unpack[SinkOptions]) -> SinkSettings:
    """WrongUse, in one line, for what cannot be."""
    unknown = [name for name in options if name not in SinkOptions.__annotations__]
    if unknown:
        raise WrongUse(f"{unknown[0]}: there is no such option of the sink")
    delivery = options.get("delivery", EXACTLY_ONCE)
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise WrongUse(f"delivery {delivery!r}: it is {EXACTLY_ONCE} or {AT_LEAST_ONCE}")
    if not query_id:
        raise WrongUse("the query has no name: its ledger and its transactional id are named after it")
    name = options.get("compression_type", "none")
    if name.upper() not in Compression.__members__:
        raise WrongUse(f"compression.type {name!r}: it is none, gzip, snappy, lz4 or zstd")
    numbers = {
        "transaction_timeout_ms": options.get("transaction_timeout_ms", TRANSACTION_TIMEOUT_MS),
        "attempts": options.get("attempts", ATTEMPTS),
        "batch_bytes": options.get("batch_bytes", BATCH_BYTES),
        "request_timeout_ms": options.get("request_timeout_ms", REQUEST_TIMEOUT_MS),
        "retry_timeout_ms": options.get("retry_timeout_ms", RETRY_TIMEOUT_MS),
    }
    wrong = [f"{name}={value}" for name, value in numbers.items() if value < 1]
    if wrong:
        raise WrongUse(f"{wrong[0]}: it is 1 at least")
    producing = ProducingSettings(
        bootstrap,
        Compression[name.upper()],
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


# ---- what a batch may not be


def check_failures(reports: Sequence[PartitionReport]) -> None:
    """PipelineError with what a task told; Untrusted if the batch may be written anew."""
    refusals = [report for report in reports if report.refusal is not None]
    final = [report for report in refusals if not report.retriable]
    if final:
        raise PipelineError(final[0].refusal or "")
    if refusals:
        raise Untrusted(refusals[0].refusal or "")


def check_reports(reports: Sequence[PartitionReport]) -> None:
    """Also Untrusted if two tasks wrote to one partition: the sequences of one may have hidden the other's."""
    check_failures(reports)
    counts = Counter((report.topic, report.partition) for report in reports)
    for (topic, partition), count in counts.items():
        if count > 1:
            raise Untrusted(f"{count} tasks wrote to {topic}-{partition}, and only one may")


def refuse_speculation(session: Any) -> None:
    """WrongUse if Spark would run copies of slow tasks."""
    if str(session.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true":
        raise WrongUse("spark.speculation is on, and a copy of a task would write twice: set it to false")


def refuse_stage_retry(session: Any, reports: Sequence[PartitionReport]) -> None:
    """Untrusted if Spark ran a stage again, whose tasks are first attempts once more: a shuffle file was lost."""
    tracker = session.sparkContext.statusTracker()
    for stage_id in sorted({report.stage_id for report in reports}):
        stage = tracker.getStageInfo(stage_id)
        if stage is not None and stage.currentAttemptId > 0:
            raise Untrusted(
                f"stage {stage_id} was run {stage.currentAttemptId + 1} times: tasks may have written twice"
            )


# ---- frames


def in_columns(frame: DataFrame, topic: str | None) -> DataFrame:
    """What tasks are given: the columns that the sink knows, in its types. WrongUse if there is no value, or if a
    column is of another type."""
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
"""What the sink knows, and in which types; every other column is left out. As the JVM's connector has them, which
leaves out the timestamp, too."""


def check_columns(types: Mapping[str, str], topic: str | None) -> list[str]:
    """The columns that are used. WrongUse if there is no value, no topic, or if a column is of another type."""
    if VALUE not in types:
        raise WrongUse(f"rows have no column {VALUE!r} (they have {', '.join(types)}): make one, of bytes or text")
    if topic is None and TOPIC not in types:
        raise WrongUse(f"rows have no column {TOPIC!r}: name a topic for all of them")
    used = [name for name in COLUMNS if name in types and (name != TOPIC or topic is None)]
    for name in used:
        if types[name] not in COLUMNS[name]:
            raise WrongUse(f"the column {name!r} is {types[name]}, and has to be {' or '.join(COLUMNS[name])}")
    return used


def routed_schema(rows: DataFrame) -> str:
    """Of rows that know their target."""
    kept = [f"{name} {kind}" for name, kind in rows.dtypes if name not in (TOPIC, PARTITION)]
    return ", ".join([*kept, f"{TARGET} int"])


def checkpoint_of(frame: DataFrame) -> str | None:
    """The id of the query that runs this, as its checkpoint keeps it; None outside of queries."""
    found: str | None = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    return found


def partitions_of(cluster: BlockingCluster, topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has. PipelineError if one is not there, and does not come soon."""
    deadline = time.monotonic() + MISSING_TOPIC_MS / 1000
    while topics:
        view = cluster.metadata(topics)
        missing = [topic for topic in topics if topic not in view.topics or not view.topics[topic].partitions]
        if not missing:
            return {topic: len(view.topics[topic].partitions) for topic in topics}
        if time.monotonic() > deadline:
            raise PipelineError(f"there is no topic {missing[0]}: create it first")
        time.sleep(0.1)
    return {}
