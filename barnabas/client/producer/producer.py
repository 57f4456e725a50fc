"""The public producer: sends records and reports the outcome of each.

    async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        metadata = await producer.send("flights", key=b"UA1545", value=b"...")

A `RecordAccumulator` gathers records in batches and a `Sender` sends those to the brokers, by default idempotently and
to all in-sync replicas; with a transactional id, in transactions (`Transactions`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
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
from barnabas.client.producer.delivery_time import delivery_header
from barnabas.client.producer.future import FutureRecordMetadata
from barnabas.client.producer.memory_records_builder import BatchFormat
from barnabas.client.producer.metrics import ProducerMetrics
from barnabas.client.producer.partition_queue import QueueSettings
from barnabas.client.producer.prepared_state import PreparedTxnState
from barnabas.client.producer.producer_batch import FinalState, ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.record_appender import Headers, Outgoing, RecordAppender
from barnabas.client.producer.record_metadata import Acked, Failed, Outcome, RecordMetadata
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.settings import ProducerOptions, ProducerSettings
from barnabas.client.producer.transaction_manager import TransactionState
from barnabas.client.producer.transactions import Transactions
from barnabas.client.schema_needed import SchemaNeeded
from barnabas.client.session import open_cluster
from barnabas.client.telemetry.meters import named
from barnabas.client.telemetry.metrics_push import MetricsPush, pushing
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.otlp import Sample
from barnabas.runtime.world import World

CANCELLED_ABORT_MS = 1_000
"""Time to abort the transaction of a cancelled block; after that its timeout ends it."""


class Producer:
    """Sends records. `send`, `enqueue`, `send_nowait` and `flush` may be used by many tasks at once; `close` and the
    methods for transactions by one.

    All methods may be cancelled. An accepted record is sent whether or not anybody waits for it.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[ProducerOptions]) -> None:
        """No connection is made before `async with`. `world` is the real one unless given. ConfigException for options
        that are unknown, invalid or contradictory.
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
        self._push: MetricsPush | None = None

    # ---- life

    async def __aenter__(self) -> Self:
        """With a transactional_id: fences earlier producers of this id and aborts their open transaction (within
        max.block.ms, else TimeoutException). With two-phase commit that is left to `init_transactions`.
        """
        if self._context is not None:
            raise IllegalStateException("this producer was opened before: create another one")
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
        if settings.enable_metrics_push:
            self._push = MetricsPush(cluster, self._samples, self._describe)
            nursery.start_soon(self._push.run)
        if self._transactions is not None and not self._transactions.is_two_phase:
            await self._transactions.initialize()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The end of the block delivers everything (`close`); after an error nothing more is sent."""
        try:
            if error is None:
                await self.close()
        finally:
            await self._leave()

    async def close(self, timeout_ms: int | None = None) -> None:
        """Deliver all accepted records, for `timeout_ms` at most (None: as long as delivery.timeout.ms allows), and
        abort an open transaction; records that are left then fail. Nothing can be sent afterwards.

        A cancelled `close` closes it as well, at once.
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
                if self._push is not None:
                    await self._push.close()
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
        """Fail all undecided records: nothing more will be sent."""
        self._closed = self._accumulator.closing = True
        error = IllegalStateException("the producer was closed")
        self._appender.close(error)
        self._accumulator.abort_incomplete(error)

    async def _leave(self) -> None:
        """End all tasks. Raises the error of a task as itself."""
        self._abandon()
        assert self._context is not None
        # An exception of the block is not passed on to the tasks.
        await self._context.__aexit__(None, None, None)

    # ---- sending

    async def send(  # noqa: PLR0913 - all that a record may have
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        deliver_at: datetime | int | None = None,
        deliver_after: timedelta | int | None = None,
    ) -> RecordMetadata:
        """Send a record, and wait until it is acknowledged as `acks` demands.

        With `deliver_at` or `deliver_after` (`delivery_header`) consumers get it later, at a higher offset than the one
        that is returned, if the topic has `barnabas.delayed.delivery.enable`.

        Raises as `enqueue`, and the reason why it was not acknowledged: TimeoutException after delivery.timeout.ms, or
        the broker's error. To learn whether the record can be in the log nevertheless, use `enqueue` and the
        `outcome()` of its future. A cancel while it waits does not take the record back.
        """
        if deliver_at is not None or deliver_after is not None:
            headers = (*headers, delivery_header(deliver_at=deliver_at, deliver_after=deliver_after))
        appender = self._appender
        try:
            outgoing = appender.prepare(topic, value, key, headers, partition, timestamp_ms)
        except SchemaNeeded as needed:
            outgoing = await appender.prepare_later(needed)
        result = appender.append_at_once(outgoing)
        if result is None:
            return await self._send_later(outgoing)
        if result.wakes_sender:
            appender.notify_sender(result)  # it runs while this waits
        return await result.future

    async def send_all(
        self, topic: str, records: Iterable[Any], *, partition: int | None = None
    ) -> list[RecordMetadata]:
        """Send many records, and wait until all of them are acknowledged; returns their metadata, in order. Each is a
        value for `topic`, and `partition` if that is given, or a complete `ProducerRecord`.

        Raises NotAllSentException, with the outcome of each, if any was not acknowledged. The first record that is not
        accepted ends it: neither that one nor those after it are sent. A cancel takes back no accepted record.
        """
        futures: list[FutureRecordMetadata] = []
        given = iter(records)
        refused: list[Outcome] = []
        for each in given:
            record = each if isinstance(each, ProducerRecord) else ProducerRecord(topic, each, partition=partition)
            try:
                future = await self.enqueue(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
            except Exception as error:  # becomes the outcome of this record
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
        self, record: ProducerRecord, notify: Callable[[], object]
    ) -> FutureRecordMetadata | Callable[[], Awaitable[RecordMetadata]]:
        """`send` for callers that cannot await here: `notify` is called once the returned future is done. If the record
        cannot be accepted without waiting, `notify` is called at once, and the returned coroutine function sends it.
        """
        appender, given = self._appender, record
        try:
            outgoing = appender.prepare(
                given.topic, given.value, given.key, given.headers, given.partition, given.timestamp_ms
            )
        except SchemaNeeded as needed:
            notify()
            return bind(self._send_after_look_up, needed)
        result = appender.append_at_once(outgoing)
        if result is None:
            notify()
            return bind(self._send_later, outgoing)
        result.future.add_callback(notify)
        if result.wakes_sender:
            appender.notify_sender(result)
        return result.future

    async def _send_after_look_up(self, needed: SchemaNeeded) -> RecordMetadata:
        return await self._send_later(await self._appender.prepare_later(needed))

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
        """Accept a record, and return its future. Waits for the topic's metadata and for memory only, max.block.ms at
        most.

        Raises if it is not accepted: SerializationException; RecordTooLargeException; UnknownTopicOrPartitionException
        or another error of the metadata; BufferExhaustedException; ValueError for an invalid timestamp or header;
        IllegalStateException if the producer is closed or no transaction is open; the error of a failed transaction. If
        it is cancelled before it returns, the record was not accepted.
        """
        appender = self._appender
        try:
            outgoing = appender.prepare(topic, value, key, headers, partition, timestamp_ms)
        except SchemaNeeded as needed:
            outgoing = await appender.prepare_later(needed)
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
        """Accept a record without waiting. BufferExhaustedException if there is no memory now; else raises as
        `enqueue`, except errors of metadata that is not known yet: the future raises those.
        """
        outgoing = self._appender.prepare(topic, value, key, headers, partition, timestamp_ms)
        return self._appender.enqueue_now(outgoing)

    async def flush(self) -> None:
        """Send waiting batches at once, and wait until every record accepted so far is acknowledged or has failed. May
        be cancelled; the records are still sent.
        """
        self._check_usable()
        await self._flush()

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Metadata of each partition. Waits for max.block.ms at most; raises the error of the metadata."""
        self._check_usable()
        return await self._cluster.partitions_for(topic, self.settings.max_block_ms)

    def metrics(self) -> Mapping[str, float]:
        """Kafka's names to numbers: bytes, milliseconds, counts; NaN without recent samples."""
        self._check_usable()
        return self._metrics.snapshot(self._pool, self._sender.requests_in_flight, self._cluster.now_ms())

    async def client_instance_id(self, timeout_ms: int = 60_000) -> str:
        """The id that brokers give this client to push its metrics (KIP-714), in base64. TimeoutException after
        `timeout_ms`; UnsupportedVersionException if the brokers take no metrics; IllegalStateException with
        enable_metrics_push=False.
        """
        self._check_usable()
        return await pushing(self._push).client_instance_id(timeout_ms)

    def _samples(self, now_ms: int) -> Iterator[Sample]:
        yield from self._cluster.meters.samples("producer", now_ms)
        metrics = self._metrics.snapshot(self._pool, self._sender.requests_in_flight, now_ms)
        for name, value in metrics.items():
            yield Sample(named(f"producer.{name}"), (), value, is_sum=name.endswith("-total"))

    def _describe(self) -> dict[str, str]:
        described = {"client_rack": self.settings.client_rack, "transactional_id": self.settings.transactional_id}
        return {key: text for key, text in described.items() if text}

    # ---- transactions

    @property
    def transaction_state(self) -> TransactionState:
        """IllegalStateException without a transactional_id. After ABORTABLE_ERROR the transaction has to be aborted;
        after FATAL_ERROR the producer can only be closed.
        """
        return self._of_transactions().manager.state

    async def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTxnState:
        """Begin the work of a producer with two-phase commit, and fence earlier producers of its transactional_id. An
        open transaction is aborted; with `keep_prepared` it stays, and its state is returned: then it can only be
        completed. The state is empty if there is none.

        TimeoutException after max.block.ms: call it again. UnsupportedVersionException if the brokers do not enable
        two-phase commit; TransactionalIdAuthorizationException if this principal has no right to it.
        """
        self._check_usable()
        transactions = self._of_transactions()
        if not transactions.is_two_phase:
            raise IllegalStateException("without transaction_two_phase_commit_enable the `async with` has done it")
        await transactions.initialize(keep_prepared=keep_prepared)
        return transactions.manager.prepared or PreparedTxnState()

    async def prepare_transaction(self) -> PreparedTxnState:
        """Write everything that was sent, and return the state for the external coordinator to store in the decision to
        commit. Afterwards the transaction can only be completed; neither time nor the death of this producer ends it.

        If that is impossible, raises the reason; call `abort_transaction` then.
        """
        self._check_usable()
        transactions = self._of_transactions()
        if not transactions.is_two_phase:
            raise IllegalStateException("without transaction_two_phase_commit_enable a transaction cannot be prepared")
        return await transactions.prepare(self._flush)

    async def complete_transaction(self, decided: PreparedTxnState) -> None:
        """Commit the prepared transaction if it is `decided`, the one that the external coordinator committed; abort it
        if it is not. Does nothing if none was found at the start: it was completed before.

        TimeoutException if the outcome is unknown; then, and after a cancel, call it again.
        """
        self._check_usable()
        manager = self._of_transactions().manager
        if manager.prepared is None:
            raise IllegalStateException(f"{manager!r}: no transaction is prepared")
        if manager.state in (TransactionState.COMMITTING, TransactionState.ABORTING):
            await self._finish_transaction()
        elif not manager.prepared.has_transaction:
            manager.check()
        elif manager.prepared == decided:
            await self.commit_transaction()
        else:
            await self.abort_transaction()

    def begin_transaction(self) -> None:
        """Records sent from now on belong to a transaction. Sends no request."""
        self._check_usable()
        self._of_transactions().begin()

    async def commit_transaction(self) -> None:
        """Commit the transaction. If that is impossible, raises the reason; call `abort_transaction` then.
        TimeoutException if the outcome is unknown; then, and after a cancel, call it again.
        """
        self._check_usable()
        await self._of_transactions().commit(self._flush)

    async def abort_transaction(self) -> None:
        """Abort the transaction; records not sent yet fail. After a TimeoutException or a cancel call it again."""
        self._check_usable()
        await self._abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commits at the end of the block; aborts if the block raises or is cancelled, and raises that.

        If the outcome of an earlier transaction is open, after a cancel or a timeout, that one is ended first.
        """
        self._check_usable()
        await self._finish_transaction()
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except Exception as error:  # the block may raise anything; all of it aborts
            try:
                await self._abort_if_open()
            except KafkaError as failure:
                error.add_note(f"the transaction could not be aborted: {failure}")
            raise
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + CANCELLED_ABORT_MS / 1000):
                try:
                    await self._abort_if_open()
                except KafkaError:
                    pass  # its timeout, or the next transaction, ends it
            raise

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        """Commit the group's offsets if the transaction commits. `group_metadata` fences: if its consumer is no longer
        a member of the group this raises, and the transaction has to be aborted. After a cancel it has to be aborted,
        too: the offsets may or may not belong to it.
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
        """End a transaction whose outcome is open."""
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
        """Called by the accumulator for a batch that has ended."""
        self._metrics.decided(batch)
        if batch.final_state is not FinalState.SUCCEEDED and self._admission is not None:
            self._admission.failed(batch)

    def _not_placed(self, error: Exception) -> None:
        """A record of the open transaction is missing: it must not commit."""
        if self._transactions is not None:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            self._transactions.manager.written(code, str(error))

    def split(self, batch: ProducerBatch) -> None:
        """Called by the accumulator for a batch that was too large."""
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
            raise IllegalStateException("this producer is closed: create another one")
        if self._context is None:
            raise IllegalStateException("this producer is not open yet: use it in an `async with` block")

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
