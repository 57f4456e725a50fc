"""librdkafka, through confluent-kafka: its calls block, so each runs in a thread, in a process of its own
(`confluent_program`).

`confluent_errors` has the meaning of its errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeVar

import trio

from clients import confluent_settings, definite_errors
from clients.client import ClientError, ClientSettings, Read, Sent
from clients.confluent_errors import classified
from clients.library_missing import LibraryMissing
from operations import Place

T = TypeVar("T")

CALL_SECONDS = 30.0
"""Every call is bounded by the library; one that takes longer is given up, together with its client."""
CLOSE_SECONDS = 10.0
LEAVE_SECONDS = 10.0
MARGIN_SECONDS = 2.0
MOST_RECORDS = 500
ADMIN_MARGIN = 1.0

END_OF_PARTITION = "_PARTITION_EOF"
"""Events that poll returns as errors and that are none."""

NOT_FETCHED_YET = "_STATE"
"""A seek in a partition that was assigned just now."""


def check() -> str:
    """librdkafka's version. LibraryMissing."""
    try:
        return str(_kafka().libversion()[0])
    except ImportError as error:
        raise LibraryMissing(
            f"--client confluent: {error.name or error} is not installed (pip install confluent-kafka)"
        ) from error


def _kafka() -> Any:
    """Loaded only where it is used; it has no types."""
    return import_module("confluent_kafka")


def _kafka_admin() -> Any:
    return import_module("confluent_kafka.admin")


class ConfluentClient:
    """A `WorkClient`. What it is made of is made when it is needed first."""

    def __init__(self, settings: ClientSettings, now_ns: Callable[[], int], threads: trio.CapacityLimiter) -> None:
        self._settings = settings
        self._now_ns = now_ns
        self._threads = threads
        self._admin: Any = None
        self._producer: Any = None
        self._consumer: Any = None
        self._topics: tuple[str, ...] = ()
        """Subscribed to."""
        self._assigned: list[Place] = []
        """By hand."""
        self._next: dict[Place, int] = {}
        """Next offset to read, or one of librdkafka's symbolic offsets. It knows its own position only when something
        was read there."""
        self._ends: dict[Place, int] = {}
        """End offset of a partition when everything of it had been read."""
        self._rebalances: list[dict[str, Any]] = []
        self._crashed = False
        self._stuck = False

    # ---- administrator

    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        topic = _kafka_admin().NewTopic(
            name, num_partitions=partitions, replication_factor=replicas, config=dict(configs or {})
        )
        await self._change(lambda admin, times: admin.create_topics([topic], **times))

    async def delete_topic(self, name: str) -> None:
        await self._change(lambda admin, times: admin.delete_topics([name], **times))

    async def create_partitions(self, name: str, total: int) -> None:
        await self._change(
            lambda admin, times: admin.create_partitions([_kafka_admin().NewPartitions(name, total)], **times)
        )

    async def list_topics(self) -> Mapping[str, int]:
        def ask() -> dict[str, int]:
            topics = self._admin_client().list_topics(timeout=self._block_seconds).topics
            return {name: len(topic.partitions) for name, topic in sorted(topics.items()) if not name.startswith("__")}

        return await self._call(ask, definite_errors.OF_CHANGES)

    async def alter_config(self, topic: str, name: str, value: str) -> None:
        entry = _kafka_admin().ConfigEntry(name, value, incremental_operation=_kafka_admin().AlterConfigOpType.SET)
        resource = _kafka_admin().ConfigResource(_kafka_admin().ResourceType.TOPIC, topic, incremental_configs=[entry])
        await self._change(
            lambda admin, times: admin.incremental_alter_configs([resource], request_timeout=times["request_timeout"])
        )

    async def describe_config(self, topic: str, name: str) -> str:
        resource = _kafka_admin().ConfigResource(_kafka_admin().ResourceType.TOPIC, topic)

        def ask() -> str:
            [future] = self._admin_client().describe_configs([resource], request_timeout=self._block_seconds).values()
            found = future.result(self._block_seconds + ADMIN_MARGIN)
            return str(found[name].value or "")

        return await self._call(ask, definite_errors.OF_CHANGES)

    def answered_by(self) -> str | None:
        return None

    async def _change(self, ask: Callable[[Any, dict[str, float]], dict[Any, Any]]) -> None:
        seconds = self._settings.request_timeout_ms / 1000

        def change() -> None:
            times = {"request_timeout": seconds, "operation_timeout": seconds}
            [future] = ask(self._admin_client(), times).values()
            future.result(seconds + ADMIN_MARGIN)

        await self._call(change, definite_errors.OF_CHANGES)

    # ---- producer

    async def send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        return await self._call(lambda: self._send(place, key, value), definite_errors.OF_SENDS)

    def _send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        reports: list[tuple[Any, Any]] = []
        producer = self._producer_client()
        try:
            producer.produce(place.topic, value, key, place.partition, on_delivery=lambda *each: reports.append(each))
        except _kafka().KafkaException as error:
            raise classified(error.args[0], definite_errors.OF_SENDS, sent=False) from error
        except BufferError as error:
            raise ClientError("BufferExhaustedException", str(error), definite=True) from error
        deadline = time.monotonic() + self._settings.delivery_timeout_ms / 1000 + MARGIN_SECONDS
        while not reports:
            producer.poll(0.1)
            if time.monotonic() > deadline:
                raise ClientError("TimeoutException", "the record has no fate", definite=False, fatal=True)
        [(failure, message)] = reports
        if failure is not None:
            raise _kafka().KafkaException(failure)
        offset = message.offset()
        _kind, timestamp_ms = message.timestamp()
        return Sent(offset if offset is not None and offset >= 0 else None, timestamp_ms)

    async def init_transactions(self) -> None:
        def init() -> None:
            self._producer_client().init_transactions(self._block_seconds)

        try:
            await self._call(init, definite_errors.OF_SENDS)
        except ClientError as error:
            raise ClientError(error.name, error.text, definite=True, fatal=True) from error

    async def begin(self) -> None:
        try:
            await self._call(lambda: self._producer_client().begin_transaction(), definite_errors.OF_SENDS)
        except ClientError as error:
            raise ClientError(error.name, error.text, definite=True, fatal=error.fatal) from error

    async def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        places = [_kafka().TopicPartition(*place, offset) for place, offset in offsets.items()]

        def send() -> None:
            group = self._consumer_client().consumer_group_metadata()
            self._producer_client().send_offsets_to_transaction(places, group, self._block_seconds)

        await self._call(send, frozenset())

    async def commit_transaction(self) -> None:
        await self._end(lambda: self._producer_client().commit_transaction(self._block_seconds))

    async def abort_transaction(self) -> None:
        await self._end(lambda: self._producer_client().abort_transaction(self._block_seconds))

    async def _end(self, call: Callable[[], None]) -> None:
        """No error of this call proves that the transaction has not ended so."""
        try:
            await self._call(call, frozenset())
        except ClientError as error:
            raise ClientError(error.name, error.text, definite=False, fatal=error.fatal) from error

    # ---- consumer

    async def assign(self, places: Sequence[Place], *, from_beginning: bool) -> None:
        def assign() -> None:
            if self._topics:
                self._leave()
            consumer = self._consumer_client()
            start = _kafka().OFFSET_STORED if self._settings.group_id is not None else _kafka().OFFSET_BEGINNING
            # A consumer that is assigned continues at its position, as with Kafka's own client.
            known = {} if self._topics else {place: self._next.get(place, start) for place in self._assigned}
            start = _kafka().OFFSET_BEGINNING if from_beginning else start
            self._next = {place: start if from_beginning else known.get(place, start) for place in places}
            consumer.assign([_kafka().TopicPartition(*place, offset) for place, offset in self._next.items()])

        await self._call(assign, definite_errors.OF_CHANGES)
        self._topics, self._assigned = (), list(places)
        self._ends.clear()

    async def subscribe(self, topics: Sequence[str]) -> None:
        def subscribe() -> None:
            consumer = self._consumer_client()
            if self._assigned:
                consumer.unassign()
            consumer.subscribe(
                list(topics),
                on_assign=lambda _consumer, places: self._rebalanced("assigned", places),
                on_revoke=lambda _consumer, places: self._rebalanced("revoked", places),
                on_lost=lambda _consumer, places: self._rebalanced("lost", places),
            )

        await self._call(subscribe, definite_errors.OF_CHANGES)
        self._topics, self._assigned = tuple(topics), []
        self._next.clear()
        self._ends.clear()

    async def seek(self, place: Place, offset: int) -> None:
        await self._call(lambda: self._seek(place, offset), definite_errors.OF_CHANGES)
        self._next[place] = offset
        self._ends.pop(place, None)

    def _seek(self, place: Place, offset: int) -> None:
        consumer = self._consumer_client()
        try:
            consumer.seek(_kafka().TopicPartition(*place, offset))
        except _kafka().KafkaException as error:
            if error.args[0].name() != NOT_FETCHED_YET or place not in self._assigned:
                raise
            # Kafka's own client takes it at once; this one while it fetches only.
            self._next[place] = offset
            consumer.assign([_kafka().TopicPartition(*each, at) for each, at in self._next.items()])

    async def poll(self, timeout_ms: int) -> list[Read]:
        if not self._topics and not self._assigned:
            await trio.sleep(timeout_ms / 1000)
            return []
        return await self._call(lambda: self._poll(timeout_ms / 1000), definite_errors.OF_CHANGES)

    def _poll(self, timeout_seconds: float) -> list[Read]:
        consumer = self._consumer_client()
        deadline = time.monotonic() + timeout_seconds
        reads: list[Read] = []
        failure: Any = None
        while not reads and failure is None:
            left_seconds = deadline - time.monotonic()
            first = consumer.poll(max(0.0, left_seconds))
            if first is None and left_seconds <= 0:
                break
            rest = consumer.consume(MOST_RECORDS - 1, timeout=0) if first is not None else []
            for message in [first, *rest]:
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    place = Place(message.topic(), message.partition())
                    value = message.value() or b""
                    self._next[place] = message.offset() + 1
                    known = message.leader_epoch()
                    epoch = -1 if known is None else known
                    reads.append(Read(place, message.offset(), message.key(), value, message.timestamp()[1], epoch))
                elif error.name() == END_OF_PARTITION:
                    self._ends[Place(message.topic(), message.partition())] = message.offset()
                else:
                    failure = error
        # These records are real; the next poll raises the error if it is still there.
        if failure is not None and not reads:
            raise _kafka().KafkaException(failure)
        return reads

    async def position(self, place: Place) -> int | None:
        await trio.lowlevel.checkpoint()
        # Positions skip records that are not returned: markers and aborted transactions.
        position = max(self._next.get(place, -1), self._ends.get(place, -1))
        return position if position >= 0 else None

    async def commit_offsets(self) -> Mapping[Place, int]:
        def commit() -> dict[Place, int]:
            consumer = self._consumer_client()
            found = consumer.position(consumer.assignment())
            offsets = {Place(each.topic, each.partition): each.offset for each in found}
            # To this one only what was read makes a position, and where it was sent does not.
            offsets |= {place: self._next[place] for place in self._assigned}
            offsets = {place: offset for place, offset in offsets.items() if offset >= 0}
            if offsets:
                wanted = [_kafka().TopicPartition(*place, offset) for place, offset in offsets.items()]
                consumer.commit(offsets=wanted, asynchronous=False)
            return offsets

        return await self._call(commit, frozenset())

    async def committed(self, places: Sequence[Place]) -> Mapping[Place, int]:
        def ask() -> dict[Place, int]:
            wanted = [_kafka().TopicPartition(*place) for place in places]
            found = self._consumer_client().committed(wanted, timeout=self._block_seconds)
            return {Place(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

        return await self._call(ask, definite_errors.OF_CHANGES)

    async def end_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        def ask() -> dict[Place, int]:
            consumer = self._consumer_client()
            return {
                place: consumer.get_watermark_offsets(_kafka().TopicPartition(*place), timeout=self._block_seconds)[1]
                for place in places
            }

        return await self._call(ask, definite_errors.OF_CHANGES)

    def assignment(self) -> list[Place]:
        if self._consumer is None:
            return []
        return [Place(each.topic, each.partition) for each in self._consumer.assignment()]

    def take_rebalances(self) -> list[dict[str, Any]]:
        taken, self._rebalances = self._rebalances, []
        return taken

    def _rebalanced(self, kind: str, partitions: Sequence[Any]) -> None:
        """Called within a poll, in its thread. librdkafka does not have the generation."""
        self._ends.clear()
        self._rebalances.append(
            {
                "kind": kind,
                "places": [[each.topic, each.partition] for each in partitions],
                "generation": -1,
                "t_ns": self._now_ns(),
            }
        )

    # ---- the end

    async def crash(self) -> None:
        self._crashed = True
        await self.close()

    async def close(self) -> None:
        """Closes in good order, unless it has crashed: then its sockets vanish without a goodbye."""
        if self._stuck or (self._consumer is None and self._producer is None and self._admin is None):
            return

        def close() -> None:
            consumer, producer = self._consumer, self._producer
            self._consumer = self._producer = self._admin = None
            if not self._crashed:
                # A producer that is no longer usable raises once more, and so does a member that was expelled.
                if producer is not None:
                    with suppress(_kafka().KafkaException):
                        producer.flush(1.0)
                if consumer is not None:
                    with suppress(_kafka().KafkaException, RuntimeError):
                        consumer.close()
            # The last references: librdkafka ends an instance that was not closed without a word to the group.
            del consumer, producer

        with trio.move_on_after(CLOSE_SECONDS):
            await trio.to_thread.run_sync(close, limiter=self._threads, abandon_on_cancel=True)

    # ---- inside

    @property
    def _block_seconds(self) -> float:
        return self._settings.max_block_ms / 1000

    async def _call(self, call: Callable[[], T], definite_names: frozenset[str]) -> T:
        """In a thread. Raises ClientError."""
        try:
            with trio.move_on_after(CALL_SECONDS):
                return await trio.to_thread.run_sync(call, limiter=self._threads, abandon_on_cancel=True)
        except _kafka().KafkaException as error:
            raise classified(error.args[0], definite_names) from error
        except RuntimeError as error:
            raise ClientError("IllegalStateException", str(error), definite=True, fatal=True) from error
        except TimeoutError as error:
            raise ClientError("TimeoutException", "no answer", definite=False) from error
        self._stuck = True
        raise ClientError("TimeoutException", f"no end within {CALL_SECONDS:g} s", definite=False, fatal=True)

    def _leave(self) -> None:
        """Returns when the group's partitions are taken from it. ClientError if that does not come."""
        consumer = self._consumer_client()
        if self._settings.group_protocol == "classic":
            _unsubscribed(consumer)
            return
        # Once subscribed with KIP-848 it takes increments only, also when it has left: assign is _STATE for ever. One
        # that never was in a group takes its place.
        self._consumer = None
        with suppress(_kafka().KafkaException, RuntimeError):
            consumer.close()

    def _admin_client(self) -> Any:
        if self._admin is None:
            common = {
                name: value
                for name, value in confluent_settings.common(self._settings).items()
                if name != "allow.auto.create.topics"
            }
            self._admin = _kafka_admin().AdminClient(common | {"socket.timeout.ms": self._settings.request_timeout_ms})
        return self._admin

    def _producer_client(self) -> Any:
        if self._producer is None:
            self._producer = _kafka().Producer(
                confluent_settings.common(self._settings) | confluent_settings.producer(self._settings)
            )
        return self._producer

    def _consumer_client(self) -> Any:
        if self._consumer is None:
            self._consumer = _kafka().Consumer(
                confluent_settings.common(self._settings) | confluent_settings.consumer(self._settings)
            )
        return self._consumer


def _unsubscribed(consumer: Any) -> None:
    """Returns when its group's partitions are taken from it. librdkafka does so at one of the next polls, and with them
    would go whatever was assigned by hand meanwhile. ClientError if that does not come."""
    consumer.unsubscribe()
    deadline = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < deadline:
        if consumer.poll(0.05) is None and not consumer.assignment():
            return
    reason = f"its group's partitions were not taken from it within {LEAVE_SECONDS:g} s"
    raise ClientError("TimeoutException", reason, definite=True, fatal=True)
