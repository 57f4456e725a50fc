"""A producer's transactions: records in many partitions, and offsets of a group, take effect together.

Sends the requests that the `TransactionManager` decides on: each response is a verdict, and requests are retried until
max.block.ms is over. Then the outcome of a transaction may be unknown; `commit` or `abort` may be called again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.groups.coordinators import CoordinatorLink, CoordinatorType
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer.partition_queue import PartitionQueue
from barnabas.client.producer.prepared_state import PreparedTxnState
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.settings import ProducerSettings
from barnabas.client.producer.transaction_manager import (
    ABORTABLE,
    TransactionManager,
    TransactionState,
    Verdict,
)
from barnabas.client.transaction_requests import LAST_ADD_OF_CLIENTS, TWO_PHASE_INIT, transaction_version
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION, ChannelError

Wait = Callable[[], Awaitable[None]]


class Transactions:
    """The transactions of one transactional id: an `Admission` of records. One call at a time."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, accumulator: RecordAccumulator) -> None:
        assert settings.transactional_id is not None
        self.is_two_phase = settings.transaction_two_phase_commit_enable
        timeout_ms = None if self.is_two_phase else settings.transaction_timeout_ms
        self.manager = TransactionManager(settings.transactional_id, timeout_ms)
        self._cluster = cluster
        self._max_block_ms = settings.max_block_ms
        self._accumulator = accumulator
        self._coordinator = CoordinatorLink(cluster, CoordinatorType.TRANSACTION, settings.transactional_id)
        self._groups: dict[str, CoordinatorLink] = {}
        self._adding = trio.Lock()
        self._admitted: dict[TopicPartition, None] = {}
        """Partitions admitted to the open transaction."""

    # ---- for the application

    async def initialize(self, *, keep_prepared: bool = False) -> None:
        """Get a producer id and an epoch; fences earlier producers of this transactional id and aborts their open
        transaction, unless `keep_prepared`. KafkaError: REQUEST_TIMED_OUT after max.block.ms; it may be called again.
        """
        manager = self.manager
        if manager.state is not TransactionState.INITIALIZING:
            manager.initialize(await self._learn_version(), keep_prepared=keep_prepared)
        at_most = TWO_PHASE_INIT if self.is_two_phase else None
        await self._ask(manager.init_request, manager.initialized, at_most=at_most)
        self._accumulator.withdraw()

    def begin(self) -> None:
        """Begin a transaction; sends no request."""
        self.manager.begin()
        self._admitted = {}
        if not self.manager.brokers_add:
            self._accumulator.readmit()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit the group's offsets if the transaction commits."""
        manager = self.manager
        manager.check_open()
        if not offsets:
            return
        if not manager.brokers_add:
            await self._ask(lambda: manager.add_offsets_request(group.group_id), manager.offsets_added)
        link = self._groups.get(group.group_id)
        if link is None:
            link = self._groups[group.group_id] = CoordinatorLink(self._cluster, CoordinatorType.GROUP, group.group_id)
        await self._ask(
            lambda: manager.commit_offsets_request(offsets, group),
            manager.offsets_committed,
            link=link,
            at_most=manager.at_most("txn_offset_commit"),
        )

    async def commit(self, flush: Wait) -> None:
        """Commit the transaction, once `flush` has waited for every record."""
        manager = self.manager
        if manager.state not in (TransactionState.COMMITTING, TransactionState.PREPARED):
            await self._write_everything(flush)
        manager.commit()
        await self._end()

    async def prepare(self, flush: Wait) -> PreparedTxnState:
        """Write every record; afterwards the transaction can only be completed. Sends no request of its own."""
        await self._write_everything(flush)
        return self.manager.prepare()

    async def _write_everything(self, flush: Wait) -> None:
        self.manager.check_open()
        self._accumulator.completing = True
        try:
            await flush()
        finally:
            self._accumulator.completing = False

    async def abort(self, answered: Wait) -> None:
        """Abort the transaction. Records not sent yet never are; `answered` waits for those in flight."""
        manager = self.manager
        if manager.state is TransactionState.INITIALIZING:
            await self.initialize()  # it has ended before; only the next epoch was missing
            return
        cause = manager.error
        manager.abort()
        reason = "the transaction is aborted" if cause is None else f"the transaction is aborted: {cause}"
        self._accumulator.abort_incomplete(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, reason))
        if not manager.brokers_add:
            # No record may arrive behind the marker: in the same epoch it would count for the next transaction.
            await answered()
            # Nor may a partition be added behind it, to whatever transaction is open by then.
            async with self._adding:
                pass
        await self._end()

    # ---- Admission

    @property
    def transactional_id(self) -> str:
        return self.manager.transactional_id

    @property
    def produce_at_most(self) -> int | None:
        return self.manager.at_most("produce")

    @property
    def error(self) -> KafkaError | None:
        return self.manager.error

    async def admit(self, queue: PartitionQueue) -> None:
        manager, partition = self.manager, queue.partition
        if manager.state is TransactionState.IN_TRANSACTION and partition in self._admitted:
            # It was admitted before, so its sequence broke: the remaining batches would come in another epoch.
            manager.written(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{partition}: a batch was lost and later ones cannot follow it"
            )
        if manager.state is TransactionState.IN_TRANSACTION and not manager.writes_to(partition):
            await self._add(partition)
        if manager.state is not TransactionState.IN_TRANSACTION or not manager.is_member(partition):
            queue.abort(manager.error or KafkaError(ErrorCode.INVALID_TXN_STATE, repr(manager)))
        elif manager.producer is not None:
            self._admitted[partition] = None
            queue.assign(manager.producer)

    def failed(self, batch: ProducerBatch) -> None:
        error = batch.result.error
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
        self.manager.written(code, error.message if isinstance(error, KafkaError) else str(error))

    async def _add(self, partition: TopicPartition) -> None:
        async with self._adding:
            if self.manager.is_member(partition) or self.manager.state is not TransactionState.IN_TRANSACTION:
                return  # another task has added it
            try:
                await self._ask(self.manager.add_request, self.manager.added, at_most=LAST_ADD_OF_CLIENTS)
            except KafkaError as error:
                self.manager.written(error.code, str(error))

    # ---- inside

    async def _learn_version(self) -> int:
        ask = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        learnt: list[int] = []

        def absorb(response: ApiVersionsResponse) -> Verdict:
            features = [(feature.name, feature.max_version_level) for feature in response.finalized_features]
            learnt.append(transaction_version(features))
            return Verdict.DONE

        await self._ask(lambda: ask, absorb)
        return learnt[0]

    async def _end(self) -> None:
        manager = self.manager
        before = manager.producer
        if manager.end_request() is None:
            manager.ended(None)
        else:
            await self._ask(_needed(manager.end_request), manager.ended, at_most=manager.at_most("end_txn"))
        if manager.state is TransactionState.INITIALIZING:
            await self.initialize()
        elif manager.producer != before:
            # Never in the same epoch: a broker would take new batches from sequence 0 for duplicates.
            self._accumulator.withdraw()

    async def _ask(
        self,
        request: Callable[[], Message],
        absorb: Callable[..., Verdict],
        *,
        link: CoordinatorLink | None = None,
        at_most: int | None = None,
    ) -> None:
        """Retry until there is a verdict. Raises the error of the manager, or REQUEST_TIMED_OUT."""
        link = link or self._coordinator
        backoff = self._cluster.backoff()
        asked = ""
        with trio.move_on_after(self._max_block_ms / 1000):
            while True:
                message = request()
                asked = type(message).__name__
                try:
                    response = await link.call(message, at_most=at_most)
                except ChannelError:
                    await trio.sleep(backoff.next_ms() / 1000)
                    continue
                except KafkaError as error:
                    # There will never be a coordinator for this id, or this group.
                    self.manager.fail(error.code, error.message, fatal=error.code not in ABORTABLE)
                    raise
                verdict = absorb(response)
                if verdict is Verdict.DONE:
                    return
                if verdict is Verdict.FAILED:
                    self.manager.check()
                if verdict is Verdict.ELSEWHERE:
                    link.forget()
                await trio.sleep(backoff.next_ms() / 1000)
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{self.manager!r}: no response to {asked} within {self._max_block_ms} ms{self._cluster.last_failure()}",
        )


def _needed(request: Callable[[], Message | None]) -> Callable[[], Message]:
    def needed() -> Message:
        message = request()
        assert message is not None
        return message

    return needed
