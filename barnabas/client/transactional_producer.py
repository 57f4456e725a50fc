"""The transactional producer: what it sends to many partitions, and the offsets of what it read, take effect together.

It carries out what its `TransactionManager` decides: each answer is a verdict, and what is to be asked again is asked
again until max.block.ms is over. Then how a transaction ended may be unknown; `commit` or `abort` may be called again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from barnabas.client.accumulator import Acked, Outcome, PartitionQueue, ProducerSettings
from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.groups.coordinators import CoordinatorLink, CoordinatorType
from barnabas.client.groups.membership import GroupStamp
from barnabas.client.producer import Delivery, Producer
from barnabas.client.transactions import (
    LAST_ADD_OF_CLIENTS,
    TransactionError,
    TransactionManager,
    TransactionState,
    Verdict,
    transaction_version,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.records.record import Headers
from protocol.schema import Message
from runtime.channel import CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION, ChannelError

CONCURRENT_BACKOFF_MS = 20
"""The previous transaction is still being ended: that takes a few round trips, no more."""


@dataclass(frozen=True, slots=True)
class TransactionalSettings:
    """Names and defaults are Kafka's."""

    transactional_id: str
    transaction_timeout_ms: int = 60_000
    producing: ProducerSettings = field(default_factory=ProducerSettings)

    def __post_init__(self) -> None:
        if not self.transactional_id:
            raise ValueError("transactional_id is empty")


@asynccontextmanager
async def open_transactional_producer(
    cluster: Cluster, settings: TransactionalSettings
) -> AsyncIterator[TransactionalProducer]:
    """A producer that is initialized, for the length of the block: whoever had this transactional id before is fenced.
    A transaction that is open at the end is left to the next one, or to its timeout.
    """
    nursery = await cluster.open_nursery()
    producer = TransactionalProducer(cluster, nursery, settings)
    try:
        await producer.initialize()
        yield producer
    finally:
        producer.abandon()
        nursery.cancel_scope.cancel()


class TransactionalProducer:
    """`send` may be used by many tasks at once, everything else by one."""

    def __init__(self, cluster: Cluster, nursery: trio.Nursery, settings: TransactionalSettings) -> None:
        """`nursery` runs the sending. See `open_transactional_producer`."""
        self.manager = TransactionManager(settings.transactional_id, settings.transaction_timeout_ms)
        self._cluster = cluster
        self._settings = settings
        self._coordinator = CoordinatorLink(cluster, CoordinatorType.TRANSACTION, settings.transactional_id)
        self._groups: dict[str, CoordinatorLink] = {}
        self._producer = Producer(cluster, nursery, settings.producing, self)
        self._adding = trio.Lock()
        self._admitted: dict[TopicPartition, None] = {}
        """Partitions that were let go in the open transaction."""

    @property
    def state(self) -> TransactionState:
        return self.manager.state

    # ---- what an application does

    async def initialize(self) -> None:
        """Get a producer id and an epoch; earlier producers of this transactional id are fenced, and what they left
        open is aborted. KafkaError: REQUEST_TIMED_OUT after max.block.ms; it may be called again.
        """
        manager = self.manager
        if manager.state is not TransactionState.INITIALIZING:
            manager.initialize(await self._learn_version())
        await self._initialize()

    async def begin(self) -> None:
        """Begin a transaction; nothing is sent for it."""
        if self.manager.state is TransactionState.INITIALIZING:
            await self._initialize()
        self.manager.begin()
        self._admitted = {}
        if not self.manager.brokers_add:
            self._producer.readmit()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """As `Producer.send`, in the open transaction. TransactionError if that has failed already."""
        self.manager.check_open()
        return await self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], stamp: GroupStamp) -> None:
        """The group will have come so far, if the transaction commits. `stamp` fences: a member that is not of the
        group any more gets an AbortableError.
        """
        manager = self.manager
        manager.check_open()
        if not offsets:
            return
        if not manager.brokers_add:
            await self._ask(lambda: manager.add_offsets_request(stamp.group_id), manager.offsets_added)
        group = self._groups.get(stamp.group_id)
        if group is None:
            group = CoordinatorLink(self._cluster, CoordinatorType.GROUP, stamp.group_id)
            self._groups[stamp.group_id] = group
        await self._ask(
            lambda: manager.commit_offsets_request(offsets, stamp),
            manager.offsets_committed,
            link=group,
            at_most=manager.at_most("txn_offset_commit"),
        )

    async def commit(self) -> None:
        """All of it takes effect. AbortableError if it cannot: then call `abort`. KafkaError with REQUEST_TIMED_OUT if
        it is not known whether it did: then call `commit` again.
        """
        manager = self.manager
        if manager.state is not TransactionState.COMMITTING:
            manager.check_open()
            await self._producer.flush()
        manager.commit()
        await self._end()

    async def abort(self) -> None:
        """None of it takes effect. What was not sent yet never is."""
        manager = self.manager
        manager.abort()
        self._producer.abandon()
        if not manager.brokers_add:
            # Nothing may arrive behind the marker: in one epoch nobody could tell it from the next transaction.
            await self._producer.answered()
            # Nor may a partition be added behind it, to whatever transaction is open by then.
            async with self._adding:
                pass
        await self._end()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commits at the end of the block; aborts if the block raises, and raises that."""
        await self.begin()
        try:
            yield
            await self.commit()
        except (Exception, TransactionError):
            if self.manager.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
                await self.abort()
            raise

    def abandon(self) -> None:
        """Nothing more is sent."""
        self._producer.abandon()

    # ---- Admission

    @property
    def transactional_id(self) -> str:
        return self.manager.transactional_id

    @property
    def produce_at_most(self) -> int | None:
        return self.manager.at_most("produce")

    async def admit(self, partition: TopicPartition, queue: PartitionQueue) -> None:
        manager = self.manager
        if manager.state is TransactionState.IN_TRANSACTION and partition in self._admitted:
            # It was admitted before, so its sequence broke: what is left of it would come in another epoch.
            manager.written(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"the sequence of {partition} is broken")
        if manager.state is TransactionState.IN_TRANSACTION and not manager.writes_to(partition):
            await self._add(partition)
        if manager.state is TransactionState.IN_TRANSACTION and manager.is_member(partition):
            self._admitted[partition] = None
            queue.producer = manager.producer
        else:
            queue.abandon(manager.error or KafkaError(ErrorCode.INVALID_TXN_STATE, repr(manager)))

    def decided(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Acked):
            error = outcome.error
            code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
            self.manager.written(code, str(error))

    async def _add(self, partition: TopicPartition) -> None:
        async with self._adding:
            if self.manager.is_member(partition) or self.manager.state is not TransactionState.IN_TRANSACTION:
                return  # another one asked for it, too
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

    async def _initialize(self) -> None:
        manager = self.manager
        await self._ask(manager.init_request, manager.initialized)
        self._producer.renumber()

    async def _end(self) -> None:
        manager = self.manager
        before = manager.producer
        if manager.end_request() is None:
            manager.ended(None)
        else:
            await self._ask(_needed(manager.end_request), manager.ended, at_most=manager.at_most("end_txn"))
        if manager.state is TransactionState.INITIALIZING:
            await self._initialize()
        elif manager.producer != before:
            # Never in the same epoch: a broker would take what begins at 0 again for a repetition.
            self._producer.renumber()

    async def _ask(
        self,
        request: Callable[[], Message],
        absorb: Callable[..., Verdict],
        *,
        link: CoordinatorLink | None = None,
        at_most: int | None = None,
    ) -> None:
        """Ask until there is a verdict. Raises what the manager failed with, or REQUEST_TIMED_OUT."""
        link = link or self._coordinator
        backoff = self._cluster.backoff()
        with trio.move_on_after(self._settings.producing.max_block_ms / 1000):
            while True:
                asked = request()
                try:
                    response = await link.call(asked, at_most=at_most)
                except ChannelError:
                    await trio.sleep(backoff.next_ms() / 1000)
                    continue
                verdict = absorb(response)
                if verdict is Verdict.DONE:
                    return
                if verdict is Verdict.FAILED:
                    self.manager.check()
                if verdict is Verdict.ELSEWHERE:
                    link.forget()
                await trio.sleep(backoff.next_ms() / 1000)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.manager!r}: no answer to {type(asked).__name__}")


def _needed(request: Callable[[], Message | None]) -> Callable[[], Message]:
    def needed() -> Message:
        message = request()
        assert message is not None
        return message

    return needed
