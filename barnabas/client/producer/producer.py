"""The producer that users see: records go in, and what becomes of each comes out.

    async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        metadata = await producer.send("flights", key=b"UA1545", value=b"...")

It gathers records in batches (`RecordAccumulator`) which a `Sender` carries to the brokers, idempotently and for all
replicas unless it is told otherwise; with a transactional id, in transactions (`Transactions`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial as bind
from types import TracebackType
from typing import Any, Self, Unpack

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.errors import IllegalStateException, NotAllSentException
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.client.interceptors import ProducerRecord
from barnabas.client.metadata import PartitionInfo, TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer.admission import Admission, ProducerIds
from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.future import FutureRecordMetadata
from barnabas.client.producer.memory_records_builder import BatchFormat
from barnabas.client.producer.metrics import ProducerMetrics
from barnabas.client.producer.partition_queue import QueueSettings
from barnabas.client.producer.producer_batch import FinalState, ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.record_appender import Headers, Outgoing, RecordAppender
from barnabas.client.producer.record_metadata import Acked, Failed, Outcome, RecordMetadata
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.settings import ProducerOptions, ProducerSettings
from barnabas.client.producer.transaction_manager import TransactionState
from barnabas.client.producer.transactions import Transactions
from barnabas.client.session import open_cluster
from protocol.errors import ErrorCode, KafkaError
from runtime.world import World

ABORT_PATIENCE_MS = 1_000
"""How long the transaction of a cancelled block may take to be aborted; after that its timeout ends it."""


class Producer:
    """Sends records. `send`, `enqueue`, `send_nowait` and `flush` may be used by many tasks at once; what belongs to
    transactions, and `close`, by one.

    All of it may be cancelled. A record that was taken on is sent whether or not anybody waits for it.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[ProducerOptions]) -> None:
        """Nothing is dialled before `async with`. `world` is the real one unless given. ConfigException for options
        that are unknown, cannot be or contradict each other.
        """
        self.settings = ProducerSettings.of(options)
        self._world = world
        self._metrics = ProducerMetrics(self.settings.metrics_sample_window_ms, self.settings.metrics_num_samples)
        self._pool = BufferPool(self.settings.buffer_memory)
        self._accumulator = RecordAccumulator(
            _format(self.settings), _queues(self.settings), self._pool, trio.Event, self
        )
        self._appender = RecordAppender(
            self.settings, self._accumulator, self._metrics, self._check_open, self._not_placed
        )
        self._context: AbstractAsyncContextManager[Cluster] | None = None
        self._closed = False
        self._cluster: Cluster
        self._admission: Admission | None = None
        self._transactions: Transactions | None = None
        self._sender: Sender

    # ---- life

    async def __aenter__(self) -> Self:
        """With a transactional_id: whoever had it before is fenced, and what he left open is aborted (this waits for
        max.block.ms at most, then TimeoutException).
        """
        if self._context is not None:
            raise IllegalStateException("a producer is opened once")
        self._context = open_cluster(
            self.settings, self._world, metadata_max_idle_ms=self.settings.metadata_max_idle_ms
        )
        self._cluster = await self._context.__aenter__()
        try:
            await self._open()
        except BaseException:
            await self._leave()
            raise
        return self

    async def _open(self) -> None:
        settings, cluster = self.settings, self._cluster
        nursery = await cluster.open_nursery()
        if settings.transactional_id is not None:
            self._admission = self._transactions = Transactions(cluster, settings, self._accumulator)
        elif settings.enable_idempotence:
            self._admission = ProducerIds(cluster, settings.request_timeout_ms)
        self._sender = Sender(cluster, nursery, self._accumulator, settings, self._admission, self._metrics)
        self._appender.open(cluster, nursery, self._sender)
        nursery.start_soon(self._sender.run)
        if self._transactions is not None:
            await self._transactions.initialize()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """At the end of the block everything is delivered (`close`); after an error nothing more is sent."""
        try:
            if error is None:
                await self.close()
        finally:
            await self._leave()

    async def close(self, timeout_ms: int | None = None) -> None:
        """Deliver what was taken on, for `timeout_ms` at most (None: as long as delivery.timeout.ms lets it take), and
        abort an open transaction; what is left then fails. Nothing can be sent any more.

        After a cancel it is closed as well, at once.
        """
        if self._closed or self._context is None:
            self._closed = True
            return
        self._closed = True
        self._accumulator.closing = True
        try:
            with trio.move_on_after(float("inf") if timeout_ms is None else timeout_ms / 1000):
                if self._transactions is not None:
                    await self._end_open_transaction()
                if self._transactions is None or self.transaction_state is TransactionState.READY:
                    await self._flush()
        finally:
            self._abandon()

    async def _end_open_transaction(self) -> None:
        try:
            await self._finish_transaction()
            if self.transaction_state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
                await self._abort()
        except KafkaError:
            pass  # the transaction's own timeout ends it, or the next producer of this id

    def _abandon(self) -> None:
        """Decide all that is undecided: nothing more will be sent."""
        self._closed = self._accumulator.closing = True
        error = IllegalStateException("the producer was closed")
        self._appender.close(error)
        self._accumulator.abort_incomplete(error)

    async def _leave(self) -> None:
        """End all tasks. Whatever failed in one of them is raised as itself."""
        self._abandon()
        assert self._context is not None
        # What the block raised is none of the tasks' business.
        await self._context.__aexit__(None, None, None)

    # ---- sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record, and wait until it is acknowledged as `acks` says.

        Raises as `enqueue`, and why it was not acknowledged: TimeoutException after delivery.timeout.ms, or what the
        broker said. Who has to know whether the record can be in the log nevertheless, takes `enqueue` and asks the
        future for its `outcome()`. A cancel while it waits does not take the record back.
        """
        appender = self._appender
        outgoing = appender.prepare(topic, value, key, headers, partition, timestamp_ms)
        result = appender.append_at_once(outgoing)
        if result is None:
            return await self._send_later(outgoing)
        if result.wakes_sender:
            appender.tell_sender(result)  # it runs while this waits
        return await result.future

    async def send_all(
        self, topic: str, records: Iterable[Any], *, partition: int | None = None
    ) -> list[RecordMetadata]:
        """Send many records, and wait until all of them are acknowledged; gives where each is, in order. Each is a
        value for `topic`, and `partition` if that is given, or a `ProducerRecord` that says all this itself.

        Raises NotAllSentException, with the outcome of each, if any was not acknowledged. The first that cannot be
        taken on ends it: neither that one nor those after it are sent. A cancel takes back none that was taken on.
        """
        futures: list[FutureRecordMetadata] = []
        given = iter(records)
        refused: list[Outcome] = []
        for each in given:
            told = each if isinstance(each, ProducerRecord) else ProducerRecord(topic, each, partition=partition)
            try:
                future = await self.enqueue(
                    told.topic,
                    told.value,
                    key=told.key,
                    headers=told.headers,
                    partition=told.partition,
                    timestamp_ms=told.timestamp_ms,
                )
            except Exception as error:  # whatever it is, the outcome of this record says so
                refused = [Failed(error), *(Failed(error) for _ in given)]
                break
            futures.append(future)
        for future in futures:
            if not future.done:
                await future.outcome()
        if not refused and not any(future.exception() for future in futures):
            return [future.metadata() for future in futures]
        outcomes = [await future.outcome() for future in futures] + refused
        failures = [each.error for each in outcomes if not isinstance(each, Acked)]
        raise NotAllSentException(outcomes, len(failures), failures[0]) from failures[0]

    def begin_send(
        self, record: ProducerRecord, told: Callable[[], object]
    ) -> FutureRecordMetadata | Callable[[], Awaitable[RecordMetadata]]:
        """`send` for who cannot wait here: `told` is called once the fate of the record that is given is known. If
        something has to be waited for before it can be taken on, `told` is called at once, and what is given does it.
        """
        appender, given = self._appender, record
        outgoing = appender.prepare(
            given.topic, given.value, given.key, given.headers, given.partition, given.timestamp_ms
        )
        result = appender.append_at_once(outgoing)
        if result is None:
            told()
            return bind(self._send_later, outgoing)
        result.future.call_too(told)
        if result.wakes_sender:
            appender.tell_sender(result)
        return result.future

    async def _send_later(self, outgoing: Outgoing) -> RecordMetadata:
        return await (await self._appender.enqueue(outgoing))

    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Take a record on. Waits for the topic's metadata and for memory only, max.block.ms at most.

        Raises if it is not taken on: SerializationException; RecordTooLargeException; UnknownTopicOrPartitionException
        or another of the metadata; BufferExhaustedException; ValueError for a timestamp or a header that cannot be
        written; IllegalStateException if the producer is closed or no transaction is open; what a transaction failed
        with. A cancel before it returns means: the record was not taken on.
        """
        appender = self._appender
        outgoing = appender.prepare(topic, value, key, headers, partition, timestamp_ms)
        result = appender.append_at_once(outgoing)
        if result is None:
            return await appender.enqueue(outgoing)
        if result.batch_is_full or result.new_batch_created:
            await appender.let_sender_run(result)
        return result.future

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Take a record on without waiting. BufferExhaustedException if there is no room now; else raises as
        `enqueue`, but for what the metadata may still say: that the future will.
        """
        outgoing = self._appender.prepare(topic, value, key, headers, partition, timestamp_ms)
        return self._appender.enqueue_now(outgoing)

    async def flush(self) -> None:
        """Send what is there at once, and wait until every record that was taken on has its fate, good or bad. What is
        sent meanwhile is not waited for. May be cancelled; the records go on.
        """
        self._check_usable()
        await self._flush()

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """What is known of each partition. Waits for max.block.ms at most; raises what the metadata says."""
        self._check_usable()
        return await self._cluster.partitions_for(topic, self.settings.max_block_ms)

    def metrics(self) -> Mapping[str, float]:
        """Kafka's names to numbers: bytes, milliseconds, counts; NaN where nothing was measured lately."""
        self._check_usable()
        return self._metrics.told(self._pool, self._sender.requests_in_flight, self._cluster.now_ms())

    # ---- transactions

    @property
    def transaction_state(self) -> TransactionState:
        """IllegalStateException without a transactional_id. After ABORTABLE_ERROR the transaction has to be aborted;
        after FATAL_ERROR there is nothing to do but to close.
        """
        return self._of_transactions().manager.state

    def begin_transaction(self) -> None:
        """What is sent from now on belongs to a transaction. Nothing is sent for it."""
        self._check_usable()
        self._of_transactions().begin()

    async def commit_transaction(self) -> None:
        """All of it takes effect. If it cannot, raises why, and `abort_transaction` is to be called. TimeoutException
        if it is not known whether it did; then, and after a cancel, call it again.
        """
        self._check_usable()
        await self._of_transactions().commit(self._flush)

    async def abort_transaction(self) -> None:
        """None of it takes effect; what was not sent yet fails. After a TimeoutException or a cancel call it again."""
        self._check_usable()
        await self._abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commits at the end of the block; aborts if the block raises or is cancelled, and raises that.

        An earlier one whose end was cancelled or not heard of is brought to its end first.
        """
        self._check_usable()
        await self._finish_transaction()
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except Exception as error:  # of the block: whatever it is, it aborts
            try:
                await self._abort_if_open()
            except KafkaError as failure:
                error.add_note(f"and the transaction could not be aborted: {failure}")
            raise
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + ABORT_PATIENCE_MS / 1000):
                try:
                    await self._abort_if_open()
                except KafkaError:
                    pass  # its timeout, or the next transaction, will
            raise

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        """The group will have come so far, if the transaction commits. `group_metadata` fences: offsets of a consumer
        that is not of the group any more raise why, and the transaction has to be aborted. After a cancel, too, it has
        to be: nobody knows whether they belong to it.
        """
        self._check_usable()
        committed = {
            place: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for place, offset in offsets.items()
        }
        await self._of_transactions().send_offsets(committed, group_metadata)

    async def _abort_if_open(self) -> None:
        if self.transaction_state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
            await self._abort()

    async def _abort(self) -> None:
        transactions = self._of_transactions()
        self._appender.abort_unplaced(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction is aborted"))
        await transactions.abort(self._sender.answered)

    async def _finish_transaction(self) -> None:
        """Bring to its end what was left in the midst of it."""
        state = self.transaction_state
        if state is TransactionState.COMMITTING:
            await self._of_transactions().commit(self._flush)
        elif state in (TransactionState.ABORTING, TransactionState.INITIALIZING):
            await self._abort()

    def _of_transactions(self) -> Transactions:
        if self._transactions is None:
            raise IllegalStateException("the producer has no transactional_id")
        return self._transactions

    # ---- inside

    def decided(self, batch: ProducerBatch) -> None:
        """The accumulator's word that a batch has ended."""
        self._metrics.decided(batch)
        if batch.final_state is not FinalState.SUCCEEDED and self._admission is not None:
            self._admission.failed(batch)

    def _not_placed(self, error: Exception) -> None:
        """A record of the open transaction is missing: that must not commit."""
        if self._transactions is not None:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            self._transactions.manager.written(code, str(error))

    def split(self, batch: ProducerBatch) -> None:
        """The accumulator's word that a batch was too large."""
        self._metrics.count("batch-split-total")

    async def _flush(self) -> None:
        batches = self._accumulator.begin_flush()
        try:
            self._sender.wake()
            for unplaced in self._appender.unplaced:
                await unplaced.future.outcome()
            for batch in batches:
                await batch.result.wait_for_all()
        finally:
            self._accumulator.end_flush()

    def _check_usable(self) -> None:
        if self._closed:
            raise IllegalStateException("the producer is closed")
        if self._context is None:
            raise IllegalStateException("the producer is not open yet: use `async with`")

    def _check_open(self) -> None:
        if self._closed or self._context is None:
            self._check_usable()
        if self._transactions is not None:
            self._transactions.manager.check_open()


def _format(settings: ProducerSettings) -> BatchFormat:
    return BatchFormat(
        settings.batch_size, settings.compression, settings.compression_level, settings.transactional_id is not None
    )


def _queues(settings: ProducerSettings) -> QueueSettings:
    return QueueSettings(
        settings.linger_ms,
        settings.delivery_timeout_ms,
        settings.max_in_flight_requests_per_connection,
        settings.retries,
        settings.enable_idempotence,
    )
