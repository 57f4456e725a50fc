"""The topic of a registry: one task reads it from its first record on; writes go to its end, and are read again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import trio

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.config_values import ConfigResource, ResourceType
from barnabas.client.admin.topic_values import NewTopic
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.errors import (
    RecordTooLargeException,
    TimeoutException,
    TopicExistsException,
    UnknownTopicOrPartitionException,
)
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.producer import Producer
from barnabas.cluster.errors import ClusterError
from barnabas.protocol.errors import KafkaError
from barnabas.registry import errors
from barnabas.registry.records import NOOP_CHANGE, Change, WrongRecord, decode
from barnabas.registry.state import RegistryState

log = logging.getLogger(__name__)

TOPIC = "_schemas"
REPLICAS = 3
"""Replicas of a new topic, if there are as many brokers."""
WRITE_SECONDS = 10.0
READ_MS = 500
STRETCH_SECONDS = 0.002
"""Records are applied for so long before others have a turn."""


class TopicStore:
    """A registry's state, and the topic behind it. `clients` are keyword arguments of all clients."""

    def __init__(self, clients: Mapping[str, Any], topic: str = TOPIC) -> None:
        self.state = RegistryState()
        self.topic = topic
        self._clients = clients
        self._partition = TopicPartition(topic, 0)
        self._stack = AsyncExitStack()
        self._producer: Producer
        self._consumer: Consumer
        self._read_up_to = 0
        """Offset of the next record to read."""
        self._advanced = trio.Event()
        self._begun_again: trio.Event | None = None
        """Set when the topic is read from its first record on again; None: nobody asked for it."""

    # ---- life

    async def __aenter__(self) -> Self:
        """Create the topic or check it. Raises `ClusterError` if it cannot be used, KafkaError if no broker answers."""
        async with Admin(**self._clients) as admin:
            await self._ensure_topic(admin)
        async with AsyncExitStack() as stack:
            self._producer = await stack.enter_async_context(
                Producer(
                    **self._clients,
                    linger_ms=0,
                    max_block_ms=round(WRITE_SECONDS * 1000),
                    delivery_timeout_ms=round(WRITE_SECONDS * 1000),
                    request_timeout_ms=round(WRITE_SECONDS * 500),
                    allow_auto_create_topics=False,
                )
            )
            self._consumer = await stack.enter_async_context(
                Consumer(
                    **self._clients,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    allow_auto_create_topics=False,
                )
            )
            self._stack = stack.pop_all()
        self._consumer.assign([self._partition])
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _ensure_topic(self, admin: Admin) -> None:
        try:
            await self._check_topic(admin)
        except UnknownTopicOrPartitionException:
            brokers = len((await admin.describe_cluster()).nodes)
            new = NewTopic(self.topic, 1, min(REPLICAS, brokers), configs={"cleanup.policy": "compact"})
            try:
                await admin.create_topics(new)
            except TopicExistsException:
                await self._check_topic(admin)

    async def _check_topic(self, admin: Admin) -> None:
        """Raises `ClusterError`; UnknownTopicOrPartitionException if it does not exist."""
        description = (await admin.describe_topics([self.topic]))[self.topic]
        partitions = len(description.partitions)
        if partitions != 1:
            raise ClusterError(f"the schema topic {self.topic} should have only 1 partition but has {partitions}")
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        configs = (await admin.describe_configs(resource))[resource]
        policy = configs["cleanup.policy"].value
        if policy != "compact":
            raise ClusterError(
                f"the retention policy of the schema topic {self.topic} is incorrect: "
                f"cleanup.policy must be compact; got {policy}"
            )

    # ---- reading

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read until cancelled; started when what was there at the start is read."""
        end = (await self._consumer.end_offsets([self._partition]))[self._partition]
        is_ready = False
        while True:
            if not is_ready and self._read_up_to >= end:
                is_ready = True
                task_status.started()
            if self._begun_again is not None:
                self._forget(self._begun_again)
            records = await self._consumer.poll(READ_MS)
            pause_at = trio.current_time() + STRETCH_SECONDS
            for record in records:
                self._apply(record)
                if trio.current_time() >= pause_at:
                    await trio.lowlevel.checkpoint()
                    pause_at = trio.current_time() + STRETCH_SECONDS
            # The position is also behind records that are no data, such as the marks of transactions.
            self._read_up_to = await self._consumer.position(self._partition)
            self._advanced.set()
            self._advanced = trio.Event()

    def _forget(self, begun_again: trio.Event) -> None:
        self.state.clear()
        self._consumer.seek(self._partition, 0)
        self._read_up_to, self._begun_again = 0, None
        begun_again.set()

    async def begin_again(self) -> None:
        """Read the topic from its first record on: its records were replaced. Raises `RegistryError`."""
        self._begun_again = self._begun_again or trio.Event()
        await self._begun_again.wait()
        await self.catch_up()

    def _apply(self, record: ConsumerRecord) -> None:
        try:
            ignored = self.state.apply(decode(record.key, record.value, record.timestamp_ms))
        except WrongRecord as error:
            ignored = str(error)
        if ignored:
            log.error("record %d of %s is ignored: %s", record.offset, self.topic, ignored)

    # ---- writing

    async def write(self, changes: Sequence[Change]) -> None:
        """Write records, and wait until they are read again. Raises `RegistryError`; then some may be written."""
        last = -1
        try:
            with trio.fail_after(WRITE_SECONDS):
                futures = []
                for each in changes:
                    key, value = each.encode()
                    futures.append(await self._producer.enqueue(self.topic, value, key=key, partition=0))
                for future in futures:
                    last = max(last, (await future).offset)
                await self._read(last)
        except RecordTooLargeException:
            raise errors.schema_too_large() from None
        except (trio.TooSlowError, TimeoutException):
            raise errors.store_timed_out(f"no broker took the record within {WRITE_SECONDS:g} s") from None
        except KafkaError as error:
            raise errors.store_failed(f"the record was not written: {error}") from None

    async def _read(self, offset: int) -> None:
        while self._read_up_to <= offset:
            await self._advanced.wait()

    async def catch_up(self) -> None:
        """Read all that was written up to now, by others too. Raises `RegistryError`."""
        await self.write([NOOP_CHANGE])
