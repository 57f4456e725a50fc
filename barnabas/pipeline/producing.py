"""What tasks of Spark do for the sink: rows to partitions, rows to record batches, batches to leaders.

Runs in executors: blocking, no trio, no session. Rows come as Arrow batches of the columns below. Who owns a partition
writes it alone: sequences of the driver's producer id and epoch count from 0 in each partition, so what two tasks wrote
to one could not be told apart. Sending a batch again with the same sequences is safe within one task, and only there: a
task that is tried again must not write (`SecondAttempt`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipeline.blocking import BlockingCluster, CoordinatorKind, partition_error
from barnabas.pipeline.errors import BlockingError, PipelineError
from barnabas.pipeline.transaction import FENCED, ProducerStamp
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import add_to_sequence
from protocol.records.builder import build_batch
from protocol.records.compression import Compression
from protocol.records.layout import Fields

KEY, VALUE, HEADERS, TIMESTAMP, TOPIC, PARTITION = "key", "value", "headers", "timestamp", "topic", "partition"
"""Columns as users give them; `timestamp` comes here as milliseconds."""
TARGET = "__target"
"""Which of the targets a row goes to: a number, see `Targets`."""

PRODUCE_VERSION = 9
"""No later one is needed: from 12 on a leader adds the partition to the transaction by itself."""
RECORD_BYTES = 40
"""At most what a record adds to a batch besides key, value and headers."""
MAX_TIMES_SPLIT = 20

BATCH_BYTES = 256 * 1024
REQUEST_TIMEOUT_MS = 30_000
RETRY_TIMEOUT_MS = 120_000
OWN_GROUP = "spark-sink"


class Targets:
    """The partitions that may be written to, each with a number: topics in order, partitions in order."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        """`partitions` is how many each topic has."""
        self.partitions = dict(sorted(partitions.items()))
        self.first: dict[str, int] = {}
        """The number of each topic's partition 0."""
        self._all: list[tuple[str, int]] = []
        for topic, count in self.partitions.items():
            self.first[topic] = len(self._all)
            self._all += [(topic, partition) for partition in range(count)]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> tuple[str, int]:
        return self._all[number]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._all)


@dataclass(frozen=True, slots=True)
class ProducingSettings:
    """How to write; the same for all tasks of a query."""

    bootstrap: str
    compression: Compression = Compression.NONE
    batch_bytes: int = BATCH_BYTES
    """Of a batch before compression; a record that is larger goes alone."""
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    retry_timeout_ms: int = RETRY_TIMEOUT_MS
    """How long a partition may have no leader, as delivery.timeout.ms."""


class Claim(NamedTuple):
    """What one task wrote to one partition."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    size_bytes: int
    stage_id: int
    task_id: int
    refusal: str | None = None
    """Why the batch must not be committed, in one line; then nothing else here means anything. Told this way, and not
    raised, because Spark would try the task again, and in the end name another reason."""
    again: bool = False
    """The batch may be written anew."""


CLAIM_COLUMNS = (
    "topic string, partition int, records long, first_offset long, last_offset long, size_bytes long, stage_id int,"
    " task_id long, refusal string, again boolean"
)
_CLAIM_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("size_bytes", pa.int64()),
        ("stage_id", pa.int32()),
        ("task_id", pa.int64()),
        ("refusal", pa.string()),
        ("again", pa.bool_()),
    ]
)


class TaskPlace(NamedTuple):
    """Where a task stands, as Spark tells it."""

    partition_id: int
    attempt: int
    stage_id: int
    task_id: int


def task_place() -> TaskPlace:
    """Of the task that asks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskPlace(0, 0, 0, 0)
    return TaskPlace(context.partitionId(), context.attemptNumber(), context.stageId(), context.taskAttemptId())


class SecondAttempt(PipelineError):
    """A task is tried again: its first attempt may have written some of its rows, and may still do so."""

    def __init__(self, place: TaskPlace) -> None:
        super().__init__(
            f"task {place.partition_id} was tried before, and what it wrote then cannot be told from what it would"
            " write now: the whole batch is aborted (why the task failed first stands in Spark's log)"
        )


class AnotherWriter(PipelineError):
    """A partition was written to by another task of the same epoch."""


# ---- which partition a row goes to

_SEED = 0x9747B28C
_MIX = 0x5BD1E995


def murmur2(keys: Any) -> Any:
    """The hash of Kafka's clients for each key of an Arrow array of binaries, as uint32; of a null it means nothing."""
    keys = keys.cast(pa.binary())
    count = len(keys)
    _, offsets_buffer, data_buffer = keys.buffers()
    if not count or offsets_buffer is None:
        return np.zeros(count, np.uint32)
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    data = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(4, np.uint8)]).astype(np.uint32)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    mix = np.uint32(_MIX)
    total = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for step in range(int(words.max())):
        active = np.flatnonzero(words > step)
        word = _word(data, starts[active] + 4 * step) * mix
        word = (word ^ word >> np.uint32(24)) * mix
        total[active] = total[active] * mix ^ word
    tails = lengths & 3
    active = np.flatnonzero(tails)
    if len(active):
        # What follows the key is another key: it is masked away.
        masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)[tails[active]]
        word = _word(data, starts[active] + 4 * words[active]) & masks
        total[active] = (total[active] ^ word) * mix
    total = (total ^ total >> np.uint32(13)) * mix
    return total ^ total >> np.uint32(15)


def _word(data: Any, positions: Any) -> Any:
    """Four bytes from each position, the first one lowest."""
    eight = np.uint32(8)
    word = data[positions + 3]
    for ahead in (2, 1, 0):
        word = word << eight | data[positions + ahead]
    return word


class Router:
    """A step of `mapInArrow`: gives each row the number of its target, as Kafka's producer would choose it: the row's
    own partition, or by its key, or, without either, one partition for a while and then the next."""

    def __init__(self, targets: Targets, topic: str | None) -> None:
        """`topic` is that of all rows; None: each has its own."""
        self._targets = targets
        self._topic = topic

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        turn = task_place().partition_id
        for batch in batches:
            if batch.num_rows:
                yield self.route(batch, turn)
                turn += 1

    def route(self, batch: Any, turn: int) -> Any:
        """`batch` without topic and partition, and with its targets. PipelineError if a row can go nowhere."""
        rows = batch.num_rows
        names = batch.schema.names
        first, counts = self._topics(batch)
        chosen = np.full(rows, turn, np.int64) % counts
        if KEY in names:
            keys = batch.column(names.index(KEY))
            hashed = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % counts
            chosen = np.where(_filled(keys), hashed, chosen)
        if PARTITION in names:
            given = batch.column(names.index(PARTITION))
            numbers = pc.fill_null(given, 0).to_numpy(zero_copy_only=False).astype(np.int64)
            bad = np.flatnonzero(_filled(given) & ((numbers < 0) | (numbers >= counts)))
            if len(bad):
                row = int(bad[0])
                raise PipelineError(
                    f"a row is for partition {numbers[row]}, and its topic has {counts[row]}: correct the column"
                    f" {PARTITION!r}, or add partitions"
                )
            chosen = np.where(_filled(given), numbers, chosen)
        kept = [name for name in names if name not in (TOPIC, PARTITION)]
        columns = [batch.column(names.index(name)) for name in kept]
        targets = pa.array((first + chosen).astype(np.int32))
        return pa.RecordBatch.from_arrays([*columns, targets], [*kept, TARGET])

    def _topics(self, batch: Any) -> tuple[Any, Any]:
        """Of each row: the number of its topic's partition 0, and how many partitions that has."""
        rows = batch.num_rows
        if self._topic is not None:
            count, first = self._targets.partitions[self._topic], self._targets.first[self._topic]
            return np.full(rows, first, np.int64), np.full(rows, count, np.int64)
        names = batch.column(batch.schema.names.index(TOPIC)).dictionary_encode()
        if names.null_count:
            raise PipelineError(f"a row has no topic: fill the column {TOPIC!r}, or name one topic for all")
        topics = names.dictionary.to_pylist()
        unknown = [topic for topic in topics if topic not in self._targets.partitions]
        if unknown:
            raise PipelineError(f"there is no topic {unknown[0]}: create it first")
        firsts = np.array([self._targets.first[topic] for topic in topics], np.int64)
        counts = np.array([self._targets.partitions[topic] for topic in topics], np.int64)
        indices = names.indices.to_numpy(zero_copy_only=False)
        return firsts[indices], counts[indices]


def _filled(column: Any) -> Any:
    return pc.is_valid(column).to_numpy(zero_copy_only=False)


# ---- rows to records


def rows_of(batch: Any, now_ms: int) -> list[Fields]:
    """The records of an Arrow batch; `now_ms` is the time of those without any."""
    names = batch.schema.names
    count = batch.num_rows

    def column(name: str, otherwise: Any) -> Any:
        return batch.column(names.index(name)) if name in names else pa.array([otherwise] * count)

    keys: list[Any] = column(KEY, None).to_pylist()
    values: list[Any] = column(VALUE, None).to_pylist()
    times: list[Any] = [now_ms] * count
    if TIMESTAMP in names:
        times = pc.fill_null(column(TIMESTAMP, None), now_ms).to_pylist()
    headers: list[Any] = [()] * count
    if HEADERS in names:
        headers = [
            tuple((each["key"], each["value"]) for each in row) if row else ()
            for row in column(HEADERS, None).to_pylist()
        ]
    return list(zip([0] * count, times, keys, values, headers, strict=True))


def sizes_of(batch: Any, rows: Sequence[Fields]) -> Any:
    """At most what each row adds to a batch that is not compressed."""
    sizes = np.full(batch.num_rows, RECORD_BYTES, np.int64)
    for name in (KEY, VALUE):
        if name in batch.schema.names:
            lengths = pc.fill_null(pc.binary_length(batch.column(batch.schema.names.index(name))), 0)
            sizes += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    if HEADERS in batch.schema.names:
        sizes += np.array(
            [sum(len(key.encode()) + len(value or b"") + 10 for key, value in row[4]) for row in rows], np.int64
        )
    return sizes


class PartitionWriter:
    """Writes one partition from its first sequence to its last; one batch at a time is under way."""

    def __init__(
        self,
        cluster: BlockingCluster,
        settings: ProducingSettings,
        target: tuple[str, int],
        producer: ProducerStamp,
        transactional_id: str | None,
    ) -> None:
        self.topic, self.partition = target
        self.records = 0
        self.size_bytes = 0
        self.first_offset = -1
        self.last_offset = -1
        self._cluster = cluster
        self._settings = settings
        self._producer = producer
        self._transactional_id = transactional_id
        self._sequence = 0
        self._pending: list[Fields] = []
        self._pending_bytes = 0

    def append(self, rows: Sequence[Fields], sizes: Any) -> None:
        """Rows in their order; what makes a full batch is sent."""
        limit = self._settings.batch_bytes
        ends = np.cumsum(sizes)
        start, before = 0, 0
        while start < len(rows):
            room = limit - self._pending_bytes
            stop = int(np.searchsorted(ends, before + room, side="right"))
            if stop <= start:
                if self._pending:
                    self.flush()
                    continue
                stop = start + 1  # larger than a batch: it goes alone
            self._pending += rows[start:stop]
            self._pending_bytes += int(ends[stop - 1]) - before
            start, before = stop, int(ends[stop - 1])
            if self._pending_bytes >= limit or start < len(rows):
                self.flush()

    def flush(self) -> None:
        """Send what is pending and wait until all replicas in sync have it. PipelineError, KafkaError."""
        if self._pending:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            if self.records == 0 and self._transactional_id is not None:
                self._refuse_other_writer()
            self._send(pending, MAX_TIMES_SPLIT)

    def _refuse_other_writer(self) -> None:
        """AnotherWriter if somebody wrote here in our epoch: what we send would be taken for what he sent, come again.

        A stage that Spark runs again has first attempts again. One that writes at this very moment is not seen here,
        but by the driver.
        """
        request = DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=[self.partition])])
        response = self._cluster.leader_call(self.topic, self.partition, request)
        # Who may write but not look is not asked again.
        for producer in response.topics[0].partitions[0].active_producers:
            stamp = ProducerStamp(producer.producer_id, producer.producer_epoch)
            if stamp == self._producer and producer.last_sequence >= 0:
                raise AnotherWriter(f"{self.topic}-{self.partition}: another task wrote there, and only one may")

    def _send(self, rows: list[Fields], splits: int) -> None:
        batch = build_batch(
            rows,
            compression=self._settings.compression,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._sequence,
            transactional=self._transactional_id is not None,
        )
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=self.topic, partition_data=[PartitionProduceData(index=self.partition, records=batch)]
                )
            ],
        )
        response = self._cluster.leader_call(self.topic, self.partition, request, version=PRODUCE_VERSION)
        code = partition_error(response, self.partition)
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(rows) > 1 and splits:
            half = len(rows) // 2
            self._send(rows[:half], splits - 1)
            self._send(rows[half:], splits - 1)
            return
        if code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._check(code, rows)
            answer = response.responses[0].partition_responses[0]
            if self.first_offset < 0:
                self.first_offset = answer.base_offset
            self.last_offset = answer.base_offset + len(rows) - 1
        self._sequence = add_to_sequence(self._sequence, len(rows))
        self.records += len(rows)
        self.size_bytes += len(batch)

    def _check(self, code: ErrorCode, rows: Sequence[Fields]) -> None:
        if code is ErrorCode.NONE:
            return
        where = f"{self.topic}-{self.partition}"
        if code in FENCED:
            raise PipelineError(
                f"{where}: this batch was given up by its driver, or another driver took over ({code.name})"
            )
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # We count without a gap, so it was somebody else's batch that came in between.
            raise AnotherWriter(f"{where}: another task wrote there, and only one may ({code.name})")
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            largest = max(len(row[2] or b"") + len(row[3] or b"") for row in rows)
            raise PipelineError(
                f"{where}: a record of {largest} bytes is more than max.message.bytes of the topic allows"
            )
        raise PipelineError(f"{where}: {KafkaError(code)}")

    def claim(self, place: TaskPlace) -> Claim:
        return Claim(
            self.topic,
            self.partition,
            self.records,
            self.first_offset,
            self.last_offset,
            self.size_bytes,
            place.stage_id,
            place.task_id,
        )


# ---- tasks


@dataclass(frozen=True, slots=True)
class ProduceTask:
    """A step of `mapInArrow`: writes its rows, gives claims. What it is made of travels to executors."""

    settings: ProducingSettings
    targets: Targets
    transactional_id: str | None
    """None: at least once; each task then has a producer id of its own."""
    producer: ProducerStamp | None = None
    turn: int | None = None
    """Rows have no target: all of a task go to one partition, the one that is so many after the task's own number."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        place = task_place()
        try:
            claims = self.write(batches, place)
        except (PipelineError, KafkaError) as error:
            claims = [refusal_of(place, error)]
        arrays = [pa.array([claim[index] for claim in claims], kind.type) for index, kind in enumerate(_CLAIM_SCHEMA)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_CLAIM_SCHEMA)

    def write(self, batches: Iterable[Any], place: TaskPlace) -> list[Claim]:
        """All of it is on the replicas when this returns. PipelineError; whatever a cluster raises."""
        if self.transactional_id is not None and place.attempt > 0:
            raise SecondAttempt(place)
        writers: dict[int, PartitionWriter] = {}
        with open_cluster(self.settings) as cluster:
            producer = self.producer
            for batch in batches:
                if not batch.num_rows:
                    continue
                if producer is None:
                    producer = own_producer(cluster)
                for number, part in self._by_target(batch, place):
                    writer = writers.get(number)
                    if writer is None:
                        writer = writers[number] = PartitionWriter(
                            cluster, self.settings, self.targets[number], producer, self.transactional_id
                        )
                    rows = rows_of(part, int(time.time() * 1000))
                    writer.append(rows, sizes_of(part, rows))
            for writer in writers.values():
                writer.flush()
        return [writer.claim(place) for writer in writers.values()]

    def _by_target(self, batch: Any, place: TaskPlace) -> Iterator[tuple[int, Any]]:
        """Each target's rows in their order."""
        if self.turn is not None:
            yield (place.partition_id + self.turn) % len(self.targets), batch
            return
        position = batch.schema.names.index(TARGET)
        numbers = batch.column(position).to_numpy(zero_copy_only=False)
        present = np.unique(numbers)
        if len(present) == 1:
            yield int(present[0]), batch
            return
        for number in present:
            yield int(number), batch.filter(pa.array(numbers == number))


def refusal_of(place: TaskPlace, error: Exception) -> Claim:
    """What a task gives whose batch must not be committed."""
    # BlockingError: the cluster was away for too long; another epoch may fare better.
    again = isinstance(error, SecondAttempt | AnotherWriter | BlockingError)
    return Claim("", -1, 0, -1, -1, 0, place.stage_id, place.task_id, " ".join(str(error).split()), again)


def open_cluster(settings: ProducingSettings) -> BlockingCluster:
    """As a task needs it."""
    return BlockingCluster(
        settings.bootstrap,
        client_id="barnabas-sink",
        request_timeout_ms=settings.request_timeout_ms,
        retry_timeout_ms=settings.retry_timeout_ms,
    )


def own_producer(cluster: BlockingCluster) -> ProducerStamp:
    """An id that nobody else has, without transactions: what is sent again is written once."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    # Any broker gives one; the coordinator of some group is a broker that is looked for as long as it takes.
    response = cluster.coordinator_call(OWN_GROUP, CoordinatorKind.GROUP, request, _code)
    if _code(response) is not ErrorCode.NONE:
        raise KafkaError(_code(response), "no producer id")
    return ProducerStamp(response.producer_id, response.producer_epoch)


def _code(response: Any) -> ErrorCode:
    return error_code(response.error_code)
