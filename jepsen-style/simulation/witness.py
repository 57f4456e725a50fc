"""Clients of a simulated run that compare what they get with the invariants, whatever their workload.

Each acknowledgement and each record that is read is held to what replicas have committed. Members of groups report what
they take on, give up, and commit. `Tally` counts what was sent and acknowledged in each partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from barnabas import Admin, Consumer, Producer
from barnabas.client.cluster import TopicPartition
from barnabas.client.groups.consumer_member import ConsumerMember
from barnabas.client.producer import TransactionState
from barnabas.cluster.simulated import current_node
from barnabas.protocol.errors import ErrorCode
from clients.barnabas_client import BarnabasClient, BarnabasLibrary, Parts
from clients.client import ClientError, ClientSettings, Read, Sent
from operations import Place
from simulation.cluster import SimCluster
from simulation.invariants.groups import SESSION_PART, GroupPartition
from simulation.invariants.places import PartitionKey

FENCED = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
"""A static member may get these: its predecessor is missed only when its session ends; its successor fences it."""
SESSION_KEY = "group.consumer.session.timeout.ms"


@dataclass(slots=True)
class Tally:
    """Records that were sent outside of transactions, by partition."""

    acked: Counter[PartitionKey] = field(default_factory=Counter)
    sent: Counter[PartitionKey] = field(default_factory=Counter)
    """Without those whose client crashed."""
    has_transactions: bool = False
    """Logs may have markers, which consumers skip."""

    def counts(self) -> dict[PartitionKey, tuple[int, int]]:
        """(acked, sent)"""
        return {key: (self.acked[key], sent) for key, sent in self.sent.items()}


@dataclass(frozen=True, slots=True)
class Testimony:
    """The parts that all witnesses of a run share."""

    cluster: SimCluster
    tally: Tally
    first_sequence: int = 0
    """First sequence of producers in a partition."""
    is_mixed: bool = False
    """Groups change their protocol."""


class WitnessLibrary(BarnabasLibrary):
    """Makes witnesses."""

    def __init__(self, testimony: Testimony) -> None:
        cluster = testimony.cluster
        super().__init__(cluster.world, cluster.now_ns, lambda *parts: Witness(testimony, *parts))

    @asynccontextmanager
    async def open(self, settings: ClientSettings, host: str) -> AsyncIterator[BarnabasClient]:
        before = current_node.set(host)
        try:
            async with super().open(settings, host) as client:
                assert isinstance(client, Witness)
                client.host = host
                yield client
        finally:
            current_node.reset(before)


class Witness(BarnabasClient):
    """A client whose life on its host is watched."""

    def __init__(
        self,
        testimony: Testimony,
        settings: ClientSettings,
        parts: Parts,
        shells: tuple[Admin, Admin, Consumer],
        now_ns: Callable[[], int],
    ) -> None:
        super().__init__(settings, parts, shells, now_ns)
        self.host = settings.client_id
        self._testimony = testimony
        self._findings = testimony.cluster.findings
        self._partitions = testimony.cluster.watch.partitions
        self._groups = testimony.cluster.watch.groups
        self._fresh: dict[TopicPartition, None] = {}
        """Taken on; the committed offset is not known yet."""
        self._in_transaction: dict[Place, int] = {}
        """Offsets of the open transaction."""
        self._polled_at = trio.current_time()

    # ---- producer

    async def send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        partition, tally = PartitionKey(*place), self._testimony.tally
        counts = self._settings.transactional_id is None
        tally.sent[partition] += counts
        try:
            sent = await super().send(place, key, value)
        except ClientError as error:
            self._findings.count("sends that failed" if error.definite else "sends of unknown fate")
            raise
        except trio.Cancelled:
            tally.sent[partition] -= counts
            raise
        self._findings.count("acks")
        tally.acked[partition] += counts
        self._testimony.cluster.universe.trace(f"acked {partition} {sent.offset}")
        if sent.offset is not None:
            self._partitions.acked(partition, sent.offset, value)
        return sent

    async def _open_producer(self) -> Producer:
        is_new = self._producer is None
        if self._settings.transactional_id is not None:
            self._testimony.tally.has_transactions = True
        producer = await super()._open_producer()
        if is_new and self._testimony.first_sequence:
            _begin_at(producer, self._testimony.first_sequence)
        return producer

    async def send_offsets(self, offsets: Mapping[Place, int]) -> None:
        self._asks_to_commit(offsets)
        self._in_transaction = dict(offsets)
        await super().send_offsets(offsets)

    async def commit_transaction(self) -> None:
        offsets, self._in_transaction = self._in_transaction, {}
        await super().commit_transaction()
        self._findings.count("transactions committed")
        self._has_committed(offsets)

    async def abort_transaction(self) -> None:
        self._in_transaction = {}
        was_open = self._producer is not None and self._producer.transaction_state is not TransactionState.READY
        await super().abort_transaction()
        self._findings.count("transactions aborted", was_open)

    # ---- consumer

    async def poll(self, timeout_ms: int) -> list[Read]:
        self._polled_at = trio.current_time()
        try:
            reads = await super().poll(timeout_ms)
        except ClientError as error:
            self._judge_end(error)
            raise
        if self._fresh:
            self._note_beginnings(reads)
        for read in reads:
            self._partitions.consumed(PartitionKey(*read.place), read.offset, read.value)
        return reads

    def _judge_end(self, error: ClientError) -> None:
        """Reports that a member is out of its group for ever, unless that may be."""
        membership = self._consumer.membership
        if not error.fatal or membership is None or membership.fatal is None:
            return
        code = getattr(error.__cause__, "code", None)
        is_explained = code in FENCED and self._settings.group_instance_id is not None
        if code is ErrorCode.GROUP_ID_NOT_FOUND and isinstance(membership.member, ConsumerMember):
            is_explained = self._testimony.is_mixed and self._groups.may_miss_its_group(self.host, self._session_ms)
        if not is_explained:
            self._findings.report(f"{self.host} is out of its group for ever: {error}")

    def _note_beginnings(self, reads: Sequence[Read]) -> None:
        """The positions are the group's committed offsets, or the beginning if there is none."""
        starts = {partition: each.offset for partition, each in self._consumer.positions().items()}
        starts |= {TopicPartition(*each.place): each.offset for each in reversed(reads)}
        for partition in [partition for partition in self._fresh if partition in starts]:
            del self._fresh[partition]
            is_committed = not self._testimony.tally.has_transactions
            self._groups.begins_at(self._place(partition), self.host, starts[partition], is_committed=is_committed)

    async def commit_offsets(self) -> Mapping[Place, int]:
        positions = self._consumer.positions()
        self._asks_to_commit({Place(*partition): position.offset for partition, position in positions.items()})
        committed = await super().commit_offsets()
        self._findings.count("commits")
        self._has_committed(committed)
        return committed

    def _asks_to_commit(self, offsets: Mapping[Place, int]) -> None:
        for place, offset in offsets.items():
            self._groups.commits(self._place(place), self.host, offset)

    def _has_committed(self, offsets: Mapping[Place, int]) -> None:
        for place, offset in offsets.items():
            self._groups.committed(self._place(place), offset)

    # ---- groups

    def _rebalanced(self, kind: str, partitions: Sequence[TopicPartition]) -> None:
        super()._rebalanced(kind, partitions)
        self._testimony.cluster.universe.trace(f"{self.host}: {kind} {' '.join(map(str, partitions))}")
        if kind != "assigned":
            for partition in partitions:
                self._groups.gives_up(self._place(partition), self.host)
                self._fresh.pop(partition, None)
            return
        # An empty group that changes its protocol starts again at the same generation.
        is_mixed = self._testimony.is_mixed
        generation = -1 if is_mixed else self._consumer.group_metadata().generation_or_epoch
        for partition in partitions:
            place = self._place(partition)
            self._groups.takes_on_in(generation, place, self.host)
            self._groups.takes_on(place, self.host, self._unheard_ms, self._session_ms)
            self._fresh[partition] = None
            self._findings.count("partitions taken on")

    def _unheard_ms(self) -> int:
        """A member that has not polled for max.poll.interval.ms leaves the group, and learns of it at its next poll."""
        asleep_ms = (trio.current_time() - self._polled_at) * 1000.0
        if self._consumer.membership is None or asleep_ms > self._settings.max_poll_interval_ms * SESSION_PART:
            return self._session_ms
        return self._groups.unheard_ms(self.host)

    @property
    def _session_ms(self) -> int:
        if self._settings.group_protocol == "classic":
            return self._settings.session_timeout_ms
        return int(self._testimony.cluster.settings[SESSION_KEY])

    def _place(self, place: tuple[str, int]) -> GroupPartition:
        return GroupPartition(self._settings.group_id or "", PartitionKey(*place))

    # ---- the end

    async def crash(self) -> None:
        await super().crash()
        self._findings.count("clients that crashed")
        self._groups.is_gone(self.host)

    async def close(self) -> None:
        await super().close()
        self._groups.is_gone(self.host)


def _begin_at(producer: Producer, sequence: int) -> None:
    """Let a new producer number its records from there on. No application can; a broker takes any first sequence."""
    accumulator: Any = producer._accumulator
    accumulator._queue_settings = replace(accumulator._queue_settings, first_sequence=sequence)
