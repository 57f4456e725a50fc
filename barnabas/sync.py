"""The client for code without `await`: scripts, notebooks, Spark tasks.

    from barnabas import sync

    with sync.Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        producer.send("flights", b"gate open", key=b"UA1545")

Names, arguments and errors are those of `barnabas`; what docstrings say about a cancel is true for Ctrl-C here. A
client has a trio event loop in its own thread for the length of its `with` block. Threads may share a producer or an
administrator; a consumer is for one thread at a time, though others may acknowledge its records. After a fork a client
belongs to the parent process only.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import fields, replace
from functools import partial as bind
from re import Pattern
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

import trio

from barnabas.client.admin import Admin as AsyncAdmin
from barnabas.client.admin import AdminOptions
from barnabas.client.consumer.consumer import Consumer as AsyncConsumer
from barnabas.client.consumer.listener import OnPartitions, RebalanceListener
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.settings import ConsumerOptions
from barnabas.client.interceptors import ProducerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.delivery_time import delivery_header
from barnabas.client.producer.future import FutureRecordMetadata
from barnabas.client.producer.producer import Producer as AsyncProducer
from barnabas.client.producer.record_metadata import RecordMetadata
from barnabas.client.producer.settings import ProducerOptions
from barnabas.client.producer.transaction_manager import TransactionState
from barnabas.client.shares.acknowledgements import Acknowledged
from barnabas.client.shares.deliveries import Delivery
from barnabas.client.shares.record import Holder
from barnabas.client.shares.record import ShareRecord as AsyncShareRecord
from barnabas.client.shares.settings import ShareConsumerOptions
from barnabas.client.shares.share_consumer import OnAcknowledged
from barnabas.client.shares.share_consumer import ShareConsumer as AsyncShareConsumer
from barnabas.portal import Held, Portal

__all__ = ["Admin", "Consumer", "Future", "Producer", "RebalanceListener", "ShareConsumer", "ShareRecord"]

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class Facade(Generic[C]):
    """A client in a portal."""

    def __init__(self, client: C, manager: AbstractAsyncContextManager[object]) -> None:
        """`manager` opens and closes the client; both may be the same object."""
        self._client = client
        self._manager = manager
        self._portal = Portal()
        self._held: Held[Any] | None = None

    def __enter__(self) -> Self:
        self._portal.start()
        try:
            held: Held[Any] = Held(self._portal, self._manager)
            held.open()
        except BaseException:
            self._portal.stop()
            raise
        self._held = held
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        held, self._held = self._held, None
        try:
            self._begin_call()
            return held.close(error) if held is not None else False
        finally:
            self._portal.stop()

    def _begin_call(self) -> None:
        """Called before each method."""


def blocking(method: Callable[Concatenate[C, P], Awaitable[T]]) -> Callable[Concatenate[Facade[C], P], T]:
    """A blocking method for a coroutine method of the client."""

    @functools.wraps(method)
    def call(self: Facade[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._begin_call()
        return self._portal.call(method, self._client, *args, **kwargs)

    return call


def immediate(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[Facade[C], P], T]:
    """A method that does not wait: called in the loop's own thread, between the steps of its tasks."""

    @functools.wraps(method)
    def call(self: Facade[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._begin_call()
        return self._portal.call_now(method, self._client, *args, **kwargs)

    return call


def record_to_send(
    topic: str, value: Any, *, deliver_at: Any = None, deliver_after: Any = None, **of_record: Any
) -> ProducerRecord:
    """The arguments of `send` as a record."""
    if deliver_at is not None or deliver_after is not None:
        header = delivery_header(deliver_at=deliver_at, deliver_after=deliver_after)
        of_record["headers"] = (*of_record.get("headers", ()), header)
    return ProducerRecord(topic, value, **of_record)


class OutcomeOfRecord:
    """The part of a record's outcome that is known without waiting."""

    __slots__ = ("_future",)

    def __init__(self, future: FutureRecordMetadata) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        """True if the outcome is known."""
        return self._future.done

    def exception(self) -> Exception | None:
        """The reason of the failure; None if it was delivered, or is not `done`."""
        return self._future.exception()

    def __repr__(self) -> str:
        return repr(self._future)


class Future(OutcomeOfRecord):
    """The outcome of one record."""

    __slots__ = ("_portal",)

    def __init__(self, portal: Portal, future: FutureRecordMetadata) -> None:
        super().__init__(future)
        self._portal = portal

    def result(self) -> RecordMetadata:
        """Wait for the acknowledgement; returns topic, partition and offset. Raises the reason of a failure."""
        if self._future.done:
            return self._future.result()
        return self._portal.call(self._wait)

    async def _wait(self) -> RecordMetadata:
        return await self._future


class Producer(Facade[AsyncProducer]):
    """Sends records: `barnabas.Producer` without `await`."""

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        """Settings of `barnabas.Producer`. ConfigException for options that are unknown or invalid."""
        client = AsyncProducer(**options)
        super().__init__(client, client)
        self.settings = client.settings

    send_all = blocking(AsyncProducer.send_all)
    flush = blocking(AsyncProducer.flush)
    close = blocking(AsyncProducer.close)
    partitions_for = blocking(AsyncProducer.partitions_for)
    metrics = immediate(AsyncProducer.metrics)
    client_instance_id = blocking(AsyncProducer.client_instance_id)
    init_transactions = blocking(AsyncProducer.init_transactions)
    prepare_transaction = blocking(AsyncProducer.prepare_transaction)
    complete_transaction = blocking(AsyncProducer.complete_transaction)
    begin_transaction = immediate(AsyncProducer.begin_transaction)
    commit_transaction = blocking(AsyncProducer.commit_transaction)
    abort_transaction = blocking(AsyncProducer.abort_transaction)
    send_offsets_to_transaction = blocking(AsyncProducer.send_offsets_to_transaction)

    _enqueue = blocking(AsyncProducer.enqueue)
    _send_nowait = immediate(AsyncProducer.send_nowait)

    @functools.wraps(AsyncProducer.send, assigned=("__doc__",))
    def send(self, topic: str, value: Any = None, **of_record: Any) -> RecordMetadata:
        # One step in the loop's thread sends the record, and the response is reported by a callback: no task is made.
        record = record_to_send(topic, value, **of_record)
        begun = self._portal.call_until_notified(bind(self._client.begin_send, record))
        return begun.result() if isinstance(begun, FutureRecordMetadata) else self._portal.call(begun)

    @functools.wraps(AsyncProducer.enqueue, assigned=("__doc__",))
    def enqueue(self, topic: str, value: Any = None, **of_record: Any) -> Future:
        return Future(self._portal, self._enqueue(topic, value, **of_record))

    @functools.wraps(AsyncProducer.send_nowait, assigned=("__doc__",))
    def send_nowait(self, topic: str, value: Any = None, **of_record: Any) -> Future:
        return Future(self._portal, self._send_nowait(topic, value, **of_record))

    @property
    def transaction_state(self) -> TransactionState:
        """IllegalStateException without a transactional_id. After ABORTABLE_ERROR the transaction has to be aborted;
        after FATAL_ERROR the producer can only be closed.
        """
        return self._portal.call_now(lambda: self._client.transaction_state)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits at the end of the block; aborts if the block raises or is cancelled, and raises that.

        If the outcome of an earlier transaction is open, after a cancel or a timeout, that one is ended first.
        """
        held: Held[None] = Held(self._portal, self._client.transaction())
        held.open()
        try:
            yield
        except BaseException as error:
            if not held.close(error):
                raise
        else:
            held.close()


class Consumer(Facade[AsyncConsumer]):
    """Reads records: `barnabas.Consumer` without `await`. For one thread at a time.

    `for record in consumer` never ends; positions and commits count the records that it returned.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        """Settings of `barnabas.Consumer`. ConfigException for options that are unknown or invalid."""
        client = AsyncConsumer(*topics, **options)
        super().__init__(client, client)
        self.settings = client.settings
        self._taken: deque[ConsumerRecord] = deque()
        """Records that iteration has taken from the client, and not returned yet."""

    def _begin_call(self) -> None:
        """Positions and commits count returned records: the client gets the others back."""
        if self._taken:
            taken, self._taken = self._taken, deque()
            self._portal.call_now(self._client.put_back, taken)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        if not self._taken:
            self._taken = self._portal.call(self._client.take_ahead)
        return self._taken.popleft()

    poll = blocking(AsyncConsumer.poll)
    close = blocking(AsyncConsumer.close)
    unsubscribe = immediate(AsyncConsumer.unsubscribe)
    assign = immediate(AsyncConsumer.assign)
    assignment = immediate(AsyncConsumer.assignment)
    subscription = immediate(AsyncConsumer.subscription)
    enforce_rebalance = immediate(AsyncConsumer.enforce_rebalance)
    group_metadata = immediate(AsyncConsumer.group_metadata)
    pause = immediate(AsyncConsumer.pause)
    resume = immediate(AsyncConsumer.resume)
    paused = immediate(AsyncConsumer.paused)
    seek = immediate(AsyncConsumer.seek)
    seek_to_beginning = immediate(AsyncConsumer.seek_to_beginning)
    seek_to_end = immediate(AsyncConsumer.seek_to_end)
    position = blocking(AsyncConsumer.position)
    positions = immediate(AsyncConsumer.positions)
    current_lag = immediate(AsyncConsumer.current_lag)
    commit = blocking(AsyncConsumer.commit)
    committed = blocking(AsyncConsumer.committed)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    list_topics = blocking(AsyncConsumer.list_topics)
    metrics = immediate(AsyncConsumer.metrics)
    client_instance_id = blocking(AsyncConsumer.client_instance_id)

    _subscribe = immediate(AsyncConsumer.subscribe)

    @functools.wraps(AsyncConsumer.subscribe, assigned=("__doc__",))
    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        self._subscribe(topics, pattern=pattern, listener=None if listener is None else _in_threads(listener))


def _in_threads(listener: RebalanceListener) -> RebalanceListener:
    """Callbacks in a worker thread, where they may use the consumer; in the loop's own thread they could not."""

    def in_thread(call: OnPartitions | None) -> OnPartitions | None:
        if call is None:
            return None

        async def called(partitions: Sequence[TopicPartition]) -> None:
            await trio.to_thread.run_sync(call, partitions)

        return called

    return replace(
        listener,
        on_assigned=in_thread(listener.on_assigned),
        on_revoked=in_thread(listener.on_revoked),
        on_lost=in_thread(listener.on_lost),
    )


class ShareRecord(AsyncShareRecord):
    """A record of `ShareConsumer`: `with record: …` does what `async with` does in `barnabas`."""

    __slots__ = ()

    def __enter__(self) -> Self:
        self.holder.hold(self.delivery)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.holder.let_go(self.delivery, error)


class HolderInLoop:
    """A `Holder` for other threads than that of the loop."""

    def __init__(self, portal: Portal, holder: Holder) -> None:
        self._portal = portal
        self._holder = holder

    def hold(self, delivery: Delivery) -> None:
        self._portal.call_now(self._holder.hold, delivery)

    def let_go(self, delivery: Delivery, error: BaseException | None) -> None:
        self._portal.call_now(self._holder.let_go, delivery, error)


class ShareConsumer(Facade[AsyncShareConsumer]):
    """Reads records of share groups: `barnabas.ShareConsumer` without `await`. For one thread at a time."""

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        """Settings of `barnabas.ShareConsumer`. ConfigException for options that are unknown or invalid."""
        client = AsyncShareConsumer(*topics, **options)
        super().__init__(client, client)
        self.settings = client.settings

    close = blocking(AsyncShareConsumer.close)
    subscribe = immediate(AsyncShareConsumer.subscribe)
    unsubscribe = immediate(AsyncShareConsumer.unsubscribe)
    subscription = immediate(AsyncShareConsumer.subscription)
    assignment = immediate(AsyncShareConsumer.assignment)
    acknowledge = immediate(AsyncShareConsumer.acknowledge)
    commit = blocking(AsyncShareConsumer.commit)
    acquisition_lock_timeout_ms = immediate(AsyncShareConsumer.acquisition_lock_timeout_ms)
    metrics = immediate(AsyncShareConsumer.metrics)
    client_instance_id = blocking(AsyncShareConsumer.client_instance_id)

    _poll = blocking(AsyncShareConsumer.poll)
    _set_callback = immediate(AsyncShareConsumer.set_acknowledgement_callback)

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ShareRecord]:
        records = self._poll(timeout_ms, max_records)
        holder = HolderInLoop(self._portal, records[0].holder) if records else None
        return [
            ShareRecord(**{each.name: getattr(record, each.name) for each in fields(record)} | {"holder": holder})
            for record in records
        ]

    def set_acknowledgement_callback(self, callback: OnAcknowledged | None) -> None:
        if callback is None:
            self._set_callback(None)
            return

        async def called(acknowledged: Acknowledged) -> None:
            await trio.to_thread.run_sync(callback, acknowledged)

        self._set_callback(called)

    poll.__doc__ = AsyncShareConsumer.poll.__doc__
    set_acknowledgement_callback.__doc__ = AsyncShareConsumer.set_acknowledgement_callback.__doc__


class Admin(Facade[AsyncAdmin]):
    """Describes and changes a cluster: `barnabas.Admin` without `await`."""

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        """Settings of `barnabas.Admin`. ConfigException for options that are unknown or invalid."""
        client = AsyncAdmin(**options)
        super().__init__(client, client)
        self.settings = client.settings

    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    add_raft_voter = blocking(AsyncAdmin.add_raft_voter)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    client_instance_id = blocking(AsyncAdmin.client_instance_id)
    alter_consumer_group_offsets = blocking(AsyncAdmin.alter_consumer_group_offsets)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    alter_share_group_offsets = blocking(AsyncAdmin.alter_share_group_offsets)
    alter_streams_group_offsets = blocking(AsyncAdmin.alter_streams_group_offsets)
    alter_user_scram_credentials = blocking(AsyncAdmin.alter_user_scram_credentials)
    api_versions = blocking(AsyncAdmin.api_versions)
    create_acls = blocking(AsyncAdmin.create_acls)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    delete_consumer_group_offsets = blocking(AsyncAdmin.delete_consumer_group_offsets)
    delete_consumer_groups = blocking(AsyncAdmin.delete_consumer_groups)
    delete_share_groups = blocking(AsyncAdmin.delete_share_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    delete_records = blocking(AsyncAdmin.delete_records)
    delete_share_group_offsets = blocking(AsyncAdmin.delete_share_group_offsets)
    delete_streams_group_offsets = blocking(AsyncAdmin.delete_streams_group_offsets)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    describe_classic_groups = blocking(AsyncAdmin.describe_classic_groups)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    describe_consumer_groups = blocking(AsyncAdmin.describe_consumer_groups)
    describe_delegation_token = blocking(AsyncAdmin.describe_delegation_token)
    describe_features = blocking(AsyncAdmin.describe_features)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    describe_metadata_quorum = blocking(AsyncAdmin.describe_metadata_quorum)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    describe_replica_log_dirs = blocking(AsyncAdmin.describe_replica_log_dirs)
    describe_share_groups = blocking(AsyncAdmin.describe_share_groups)
    describe_streams_groups = blocking(AsyncAdmin.describe_streams_groups)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_user_scram_credentials = blocking(AsyncAdmin.describe_user_scram_credentials)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    force_terminate_transaction = blocking(AsyncAdmin.force_terminate_transaction)
    incremental_alter_configs = blocking(AsyncAdmin.incremental_alter_configs)
    list_client_metrics_resources = blocking(AsyncAdmin.list_client_metrics_resources)
    list_config_resources = blocking(AsyncAdmin.list_config_resources)
    list_consumer_group_offsets = blocking(AsyncAdmin.list_consumer_group_offsets)
    list_consumer_groups = blocking(AsyncAdmin.list_consumer_groups)
    list_groups = blocking(AsyncAdmin.list_groups)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    list_partition_lags = blocking(AsyncAdmin.list_partition_lags)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    list_share_group_offsets = blocking(AsyncAdmin.list_share_group_offsets)
    list_streams_group_offsets = blocking(AsyncAdmin.list_streams_group_offsets)
    list_topics = blocking(AsyncAdmin.list_topics)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    remove_members = blocking(AsyncAdmin.remove_members)
    remove_members_from_consumer_group = blocking(AsyncAdmin.remove_members_from_consumer_group)
    remove_raft_voter = blocking(AsyncAdmin.remove_raft_voter)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    unregister_broker = blocking(AsyncAdmin.unregister_broker)
    update_features = blocking(AsyncAdmin.update_features)
