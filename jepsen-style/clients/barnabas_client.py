"""Our own client, on trio: in every world, also a simulated one.

The outcome of the producer (`Failed`, `Unknown`) decides whether a record without an ack may be in the log: so a
wrong word of the client is found as a read of something that failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin import ConfigResource, NewTopic, ResourceType
from barnabas.client.cluster import TopicPartition
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.errors import IllegalStateException
from barnabas.client.groups.membership import Leaving
from barnabas.client.producer import Failed, PreparedTxnState, TransactionState, Unknown
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.record import Headers
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import World
from clients import barnabas_settings
from clients.barnabas_errors import definite_errors, errors_of_change, may_be_definite, name_of
from clients.client import ClientError, ClientSettings, Read, Sent
from clients.mortal_network import MortalNetwork, mortal
from clients.one_broker import OneBroker
from clients.security_calls import SecurityCalls
from clients.share_calls import ShareCalls
from operations import Place

CLOSE_MS = 3_000
"""Maximum time for closing in good order."""


class BarnabasLibrary:
    """Makes our clients."""

    name = "barnabas"

    def __init__(
        self, world_of: Callable[[str], World], now_ns: Callable[[], int], make: MakeClient | None = None
    ) -> None:
        """`world_of` is asked once for each client, when the one before it on that host has ended. `make` makes another
        kind of client."""
        self._world_of = world_of
        self._now_ns = now_ns
        self._make = make or BarnabasClient

    @asynccontextmanager
    async def open(self, settings: ClientSettings, host: str) -> AsyncIterator[BarnabasClient]:
        world, network = mortal(self._world_of(host))
        async with (
            Admin(world=world, **barnabas_settings.admin(settings, settings.max_block_ms)) as admin,
            Admin(world=world, **barnabas_settings.changing_admin(settings)) as changing,
            Consumer(world=world, **barnabas_settings.consumer(settings)) as consumer,
            trio.open_nursery() as nursery,
        ):
            parts = Parts(world, network, nursery, settings)
            client = self._make(settings, parts, (admin, changing, consumer), self._now_ns)
            try:
                yield client
            finally:
                await client.close()
                nursery.cancel_scope.cancel()


MakeClient = Callable[[ClientSettings, "Parts", tuple[Admin, Admin, Consumer], Callable[[], int]], "BarnabasClient"]


class Parts:
    """The parts of a client."""

    def __init__(self, world: World, network: MortalNetwork, nursery: trio.Nursery, settings: ClientSettings) -> None:
        self.world = world
        self.network = network
        self.nursery = nursery
        self.one_broker = OneBroker(world, nursery, settings)


class BarnabasClient:
    """A `WorkClient`."""

    def __init__(
        self,
        settings: ClientSettings,
        parts: Parts,
        shells: tuple[Admin, Admin, Consumer],
        now_ns: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._admin, self._changing, self._consumer = shells
        self._now_ns = now_ns
        self._producer: Producer | None = None
        self._producer_done = trio.Event()
        self._reads_something = False
        self._crashed = False
        self._rebalances: list[dict[str, Any]] = []
        self._answered_by: str | None = None
        self.security = SecurityCalls(parts.world, parts.nursery, settings, self._changing)
        """Changes of rights, and attempts of other users."""
        admins = self._admin, self._changing
        self.sharing = ShareCalls(parts.world, parts.nursery, settings, admins, now_ns)
        """A member of a share group."""

    # ---- administrator

    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        with errors_of_change():
            await self._changing.create_topics(NewTopic(name, partitions, replicas, configs=dict(configs or {})))

    async def delete_topic(self, name: str) -> None:
        with errors_of_change():
            await self._changing.delete_topics(name)

    async def create_partitions(self, name: str, total: int) -> None:
        with errors_of_change():
            await self._changing.create_partitions({name: total})

    async def list_topics(self) -> Mapping[str, int]:
        with definite_errors():
            names = list(await self._admin.list_topics())
            described = await self._admin.describe_topics(names)
            return {name: len(topic.partitions) for name, topic in described.succeeded.items()}

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        with errors_of_change():
            await self._changing.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, topic): {name: value}})

    async def describe_config(self, topic: str, name: str) -> str:
        """Half of the time of one broker, so that it is known who answered; else as an administrator does it."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        self._answered_by = None
        with definite_errors():
            if self._parts.world.chance.randrange(0, 2):
                one = self._parts.one_broker
                try:
                    value, self._answered_by = await one.config_of(topic, name, self._settings.request_timeout_ms)
                except ChannelError as error:
                    raise ClientError("TimeoutException", str(error), definite=True) from error
                return value
            entry = (await self._admin.describe_configs(resource))[resource].get(name)
            if entry is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no {name}")
            return entry.value or ""

    def answered_by(self) -> str | None:
        return self._answered_by

    # ---- producer

    async def send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        return await self._send(place, key, value)

    async def send_tombstone(self, place: Place, key: bytes) -> Sent:
        return await self._send(place, key, None)

    async def send_later(self, place: Place, value: bytes, delay_ms: int | None, by: str) -> None:
        headers: Headers = ()
        if delay_ms is not None:
            time_ms = delay_ms if by == "after" else self._parts.world.wall_clock.now_ms() + delay_ms
            headers = ((f"deliver-{by}", b"%d" % time_ms),)
        await self._send(place, None, value, headers)

    async def _send(self, place: Place, key: bytes | None, value: bytes | None, headers: Headers = ()) -> Sent:
        producer = await self._open_producer()
        try:
            future = await producer.enqueue(
                place.topic, value, key=key, headers=headers, partition=place.partition
            )
        except KafkaError as error:
            raise self._of_producer(error, definite=True) from error
        outcome = await future.outcome()
        if isinstance(outcome, Failed):
            raise self._of_producer(outcome.error, definite=may_be_definite(outcome.error))
        if isinstance(outcome, Unknown):
            raise self._of_producer(outcome.error, definite=False)
        return Sent(outcome.offset if outcome.offset >= 0 else None, outcome.timestamp)

    async def init_transactions(self) -> None:
        await self._open_producer()

    async def begin(self) -> None:
        producer = await self._open_producer()
        try:
            producer.begin_transaction()
        except KafkaError as error:
            raise self._of_producer(error, definite=True) from error

    async def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        producer = await self._open_producer()
        try:
            await producer.send_offsets_to_transaction(
                {TopicPartition(*place): offset for place, offset in offsets.items()}, self._consumer.group_metadata()
            )
        except KafkaError as error:
            raise self._of_producer(error, definite=False) from error

    async def commit_transaction(self) -> None:
        producer = await self._open_producer()
        may_end = False
        try:
            await producer.flush()
            # As long as a transaction is not open and whole, the producer does not ask for its end.
            may_end = producer.transaction_state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING)
            await producer.commit_transaction()
        except KafkaError as error:
            raise self._of_producer(error, definite=not may_end) from error

    async def abort_transaction(self) -> None:
        producer = await self._open_producer()
        try:
            await producer.abort_transaction()
        except KafkaError as error:
            raise self._of_producer(error, definite=False) from error

    async def find_prepared(self) -> str:
        producer = await self._open_producer()
        try:
            return str(await producer.init_transactions(keep_prepared=True))
        except KafkaError as error:
            raise self._of_producer(error, definite=False) from error

    async def prepare(self) -> str:
        producer = await self._open_producer()
        try:
            return str(await producer.prepare_transaction())
        except KafkaError as error:
            raise self._of_producer(error, definite=True) from error

    async def complete(self, decided: str) -> None:
        producer = await self._open_producer()
        try:
            await producer.complete_transaction(PreparedTxnState.parse(decided))
        except KafkaError as error:
            raise self._of_producer(error, definite=False) from error

    # ---- consumer

    async def assign(self, places: Sequence[Place], *, from_beginning: bool) -> None:
        await trio.lowlevel.checkpoint()
        partitions = [TopicPartition(*place) for place in places]
        with definite_errors():
            if self._consumer.membership is not None:
                self._consumer.unsubscribe()
            self._consumer.assign(partitions)
            if from_beginning and partitions:
                self._consumer.seek_to_beginning(partitions)
        self._reads_something = bool(places)

    async def subscribe(self, topics: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        listener = RebalanceListener(
            lambda places: self._rebalanced("assigned", places),
            lambda places: self._rebalanced("revoked", places),
            lambda places: self._rebalanced("lost", places),
        )
        with definite_errors():
            if self._consumer.membership is None and self._reads_something:
                self._consumer.unsubscribe()
            self._consumer.subscribe(topics, listener=listener)
        self._reads_something = bool(topics)

    async def seek(self, place: Place, offset: int) -> None:
        await trio.lowlevel.checkpoint()
        with definite_errors():
            self._consumer.seek(TopicPartition(*place), offset)

    async def poll(self, timeout_ms: int) -> list[Read]:
        if not self._reads_something:
            await trio.sleep(timeout_ms / 1000)
            return []
        with self._errors_of_reading():
            records = await self._consumer.poll(timeout_ms)
        return [
            Read(
                Place(each.topic, each.partition),
                each.offset,
                each.key,
                each.value or b"",
                each.timestamp_ms,
                -1 if each.leader_epoch is None else each.leader_epoch,
            )
            for each in records
        ]

    async def position(self, place: Place) -> int | None:
        with self._errors_of_reading():
            return await self._consumer.position(TopicPartition(*place))

    async def commit_offsets(self) -> Mapping[Place, int]:
        positions = self._consumer.positions()
        with self._errors_of_reading():
            await self._consumer.commit(positions)
        return {Place(*partition): position.offset for partition, position in positions.items()}

    async def committed(self, places: Sequence[Place]) -> Mapping[Place, int]:
        with self._errors_of_reading():
            found = await self._consumer.committed([TopicPartition(*place) for place in places])
        return {Place(*partition): place.offset for partition, place in found.items() if place is not None}

    async def committed_by_one(self, places: Sequence[Place], turn: int) -> Mapping[Place, int]:
        group_id = self._settings.group_id
        assert group_id is not None, "offsets are of a group"
        with definite_errors():
            try:
                return await self._parts.one_broker.committed(group_id, places, turn, self._settings.request_timeout_ms)
            except ChannelError as error:
                raise ClientError("TimeoutException", str(error), definite=True) from error

    async def end_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        with self._errors_of_reading():
            found = await self._consumer.end_offsets([TopicPartition(*place) for place in places])
        return {Place(*partition): offset for partition, offset in found.items()}

    def assignment(self) -> list[Place]:
        return [Place(*partition) for partition in self._consumer.assignment()]

    def take_rebalances(self) -> list[dict[str, Any]]:
        taken, self._rebalances = self._rebalances, []
        return taken

    # ---- the end

    async def crash(self) -> None:
        await trio.lowlevel.checkpoint()
        self._crashed = True
        self._parts.network.end()

    async def close(self) -> None:
        """In good order, if it has not crashed; in bounded time."""
        patience_ms = 0 if self._crashed else CLOSE_MS
        leaving = Leaving.REMAIN_IN_GROUP if self._crashed else Leaving.DEFAULT
        if self._producer is not None:
            await self._producer.close(patience_ms)
        self._producer_done.set()
        await self.sharing.leave(patience_ms)
        await self._consumer.close(patience_ms, leaving)
        self._parts.one_broker.close()
        self.security.close()

    # ---- inside

    async def _open_producer(self) -> Producer:
        """Made when it is needed first: that of transactions asks the cluster for its id."""
        if self._producer is None:
            try:
                self._producer = await self._parts.nursery.start(self._hold_producer)
            except KafkaError as error:
                raise ClientError(name_of(error), str(error), definite=True, fatal=True) from error
        return self._producer

    async def _hold_producer(self, *, task_status: trio.TaskStatus[Producer]) -> None:
        async with Producer(world=self._parts.world, **barnabas_settings.producer(self._settings)) as producer:
            task_status.started(producer)
            await self._producer_done.wait()

    def _of_producer(self, error: Exception, *, definite: bool) -> ClientError:
        fatal = isinstance(error, IllegalStateException)
        if self._settings.transactional_id is not None and self._producer is not None:
            fatal = fatal or self._producer.transaction_state is TransactionState.FATAL_ERROR
        return ClientError(name_of(error), str(error), definite=definite, fatal=fatal)

    @contextmanager
    def _errors_of_reading(self) -> Iterator[None]:
        """Errors of calls that only read: they are definite; fatal if the member can never come back to its group."""
        try:
            yield
        except KafkaError as error:
            membership = self._consumer.membership
            fatal = membership is not None and membership.fatal is not None
            definite = not error.code.retriable
            raise ClientError(name_of(error), str(error), definite=definite, fatal=fatal) from error

    def _rebalanced(self, kind: str, partitions: Sequence[TopicPartition]) -> None:
        self._rebalances.append(
            {
                "kind": kind,
                "places": [[partition.topic, partition.partition] for partition in partitions],
                "generation": self._consumer.group_metadata().generation_or_epoch,
                "t_ns": self._now_ns(),
            }
        )
