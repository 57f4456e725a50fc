"""A consumer's side of its group, as in Kafka's client: membership, assigned partitions, committed offsets.

A background task talks to the coordinator; changes for the application are carried out by `follow`, which `poll` calls,
so that a partition is never given up while its records are being processed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.auto_commit import AutoCommit, Positions
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.consumer.meters import GroupMeters
from barnabas.client.consumer.partition_reader import PartitionReader
from barnabas.client.consumer.settings import ConsumerSettings
from barnabas.client.errors import CommitFailedException
from barnabas.client.groups.coordinators import CoordinatorLink, CoordinatorType
from barnabas.client.groups.membership import Change, ChangeKind, ConsumerGroupMetadata, Leaving
from barnabas.client.groups.offsets import GroupOffsets
from barnabas.client.groups.participant import Participant, Wanted
from barnabas.client.interceptors import ConsumerInterceptors
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

WENT_ON = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Errors after the group has rebalanced without this member."""


class ConsumerCoordinator:
    """The group side of a consumer that has a group_id."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        settings: ConsumerSettings,
        reader: PartitionReader,
        positions: Callable[[], dict[TopicPartition, OffsetAndMetadata]],
    ) -> None:
        """`nursery` runs the membership and commits; `positions` returns the positions of the application."""
        assert settings.group_id is not None
        self.group_id = settings.group_id
        self.participant: Participant | None = None
        """None without a subscription."""
        self.leaving_positions: dict[TopicPartition, OffsetAndMetadata] = {}
        """Positions in partitions that were unsubscribed from, while the listener is called."""
        self.commits = 0
        self.meters = GroupMeters()
        self.interceptors = ConsumerInterceptors()
        self.on_change: Callable[[], None] = lambda: None
        """Called when `follow` has something to do."""
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._reader = reader
        self._positions = positions
        self._listener = RebalanceListener()
        self._group_settings = settings.group(self.group_id)
        self._coordinator = CoordinatorLink(cluster, CoordinatorType.GROUP, self.group_id)
        self._offsets = GroupOffsets(cluster, self._coordinator, self._group_settings)
        self._one_commit = trio.Lock()
        """One commit at a time: an older one must not overtake a later one."""
        self._auto: AutoCommit | None = None
        if settings.commits_by_itself:
            self._auto = AutoCommit(nursery, self.commit, settings.auto_commit_interval_ms, settings.retry_backoff_ms)
        self._assignments = 0
        """Counts changes of the assignment."""
        self._finding = False
        self._error: Exception | None = None
        """To be raised by the next `follow`."""
        self._leaving: Participant | None = None
        """Membership that the application gave up, until it has left the group."""
        self._left = trio.Event()
        self._left.set()
        self._former: ConsumerGroupMetadata | None = None
        """Last stamp of the previous membership; None once partitions are assigned by hand."""

    # ---- membership

    def subscribe(self, wanted: Wanted, listener: RebalanceListener | None) -> None:
        self._listener = listener or RebalanceListener()
        if self.participant is not None and self.participant.fatal is None:
            self.participant.subscribe(wanted)
            return
        if self.participant is not None:
            self.participant.stop()
            self._former = self.participant.last_stamp or self._former
            self.forget(self.participant.member.owned)
        self.participant = Participant(self._cluster, self._coordinator, self._group_settings, wanted, self._interrupt)
        self._nursery.start_soon(self._participate, self.participant)

    async def _participate(self, participant: Participant) -> None:
        await self._left.wait()
        await participant.run()

    def _interrupt(self) -> None:
        self.on_change()

    @property
    def transaction_stamp(self) -> ConsumerGroupMetadata:
        """Group metadata for commits in a transaction. A consumer that is out of the group, perhaps unknown to the
        application, still sends its last stamp, which is refused. An anonymous commit would not be.
        """
        participant = self._leaving or self.participant
        last = None if participant is None else participant.last_stamp
        return last or self._former or self._nobody()

    def _nobody(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self.group_id, group_instance_id=self._settings.group_instance_id)

    def _fetching_stamp(self) -> ConsumerGroupMetadata:
        """Offsets may be fetched by non-members, too."""
        stamp = None if self.participant is None else self.participant.stamp
        return stamp or self._nobody()

    def _committing_stamp(self) -> ConsumerGroupMetadata | None:
        """None: it should be a member, and is not."""
        participant = self._leaving or self.participant
        return ConsumerGroupMetadata(self.group_id) if participant is None else participant.stamp

    def polled(self, now_ms: int) -> None:
        """The application has called `poll`: it is alive, and has processed what it got before."""
        if self.participant is not None:
            self.participant.polled()
        if self._auto is not None:
            self._auto.maybe(now_ms, self._positions)

    async def follow(self, deadline: float) -> bool:
        """Carry out the changes of the assignment; False if that is not finished by `deadline` (trio's clock), and
        continues at the next call. KafkaError if it cannot be a member; exceptions of the listener.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self.find_positions()
        while True:
            participant = self.participant
            if participant is None:
                return True
            change = participant.change
            if change is None and participant.fatal is not None:
                raise participant.fatal
            if change is None:
                return True
            if not await self._follow_one(participant, change, deadline):
                return False

    async def _follow_one(self, participant: Participant, change: Change, deadline: float) -> bool:
        partitions = change.partitions
        self.meters.rebalance_goes_on(self._cluster.now_ms())
        if change.kind is ChangeKind.ASSIGN:
            known = dict.fromkeys(self._reader.assigned)
            self.start([partition for partition in partitions if partition not in known])
            notify = self._listener.assigned
            if self._auto is not None:
                self._auto.begin_interval(self._cluster.now_ms())
        elif change.kind is ChangeKind.REVOKE:
            if self._auto is not None and not await self._auto.before_revocation(
                self._positions_in(partitions), deadline
            ):
                return False
            notify = self._listener.revoked
        else:
            notify = self._listener.lost
        try:
            await notify(partitions)
        except Exception:  # of the listener, which is not called again; after a cancel it is
            self._followed(participant, change)
            raise
        self._followed(participant, change)
        return True

    def _followed(self, participant: Participant, change: Change) -> None:
        if change.kind is not ChangeKind.ASSIGN:
            self.forget(change.partitions)
        else:
            self.meters.rebalance_ended(self._cluster.now_ms())
        participant.changed(change)

    def _positions_in(self, partitions: Sequence[TopicPartition]) -> Positions:
        gone = dict.fromkeys(partitions)
        return {partition: place for partition, place in self._positions().items() if partition in gone}

    def unsubscribe(self, places: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Give up all partitions, and leave in the background; `places` become `leaving_positions` for the listener."""
        participant, self.participant = self.participant, None
        self.forget(self._reader.assigned)
        if participant is not None:
            self._former = participant.last_stamp or self._former
            self._leaving, self.leaving_positions, self._left = participant, places, trio.Event()
            self._nursery.start_soon(self._leave_in_background, participant, self._listener)

    async def _leave_in_background(self, participant: Participant, listener: RebalanceListener) -> None:
        try:
            await _notify_of_end(participant, listener)
        except Exception as error:  # of the listener; the next `follow` raises it
            log.debug("group %s: the listener raised %r", self.group_id, error)
            self._error = error
        finally:
            self.leaving_positions = {}
            try:
                await participant.leave(Leaving.DEFAULT, "the consumer unsubscribed from all topics")
            finally:
                self._leaving = None
                self._left.set()

    async def close(self, done: Positions, leaving: Leaving) -> None:
        """Commit what is processed (enable.auto.commit), call the listener, leave; raises the listener's exceptions."""
        await self._left.wait()
        participant = self.participant
        try:
            if self._auto is not None and done and (participant is None or participant.stamp is not None):
                await self._commit_last(done)
            if participant is not None:
                await _notify_of_end(participant, self._listener)
        finally:
            self.participant = None
            self.forget(self._reader.assigned)
            if participant is not None:
                await participant.leave(leaving, "the consumer is being closed")

    async def _commit_last(self, done: Positions) -> None:
        try:
            await self.commit(done)
        except KafkaError as error:
            log.warning("group %s: the last commit failed: %s", self.group_id, error)

    # ---- offsets

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """CommitFailedException if the group has rebalanced without this member; other KafkaErrors unchanged."""
        participant = self._leaving or self.participant
        async with self._one_commit:
            stamp = self._committing_stamp()
            if stamp is None:
                raise CommitFailedException(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"this consumer is no longer a member of group {self.group_id}"
                )
            began_ms = self._cluster.now_ms()
            try:
                await self._offsets.commit(offsets, self._committing_stamp)
            except KafkaError as error:
                if participant is not None:
                    participant.fenced(error, stamp)
                if error.code in WENT_ON:
                    raise CommitFailedException(
                        error.code, f"group {self.group_id} has rebalanced without this consumer"
                    ) from error
                raise
            now_ms = self._cluster.now_ms()
            self.meters.commit.record(now_ms - began_ms, now_ms)
        self._committed(offsets)

    def _committed(self, offsets: Positions) -> None:
        self.commits += 1
        if self.interceptors:
            self.interceptors.on_commit(offsets)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.fetch(partitions, self._fetching_stamp)

    # ---- initial positions

    def start_by_hand(self, partitions: Sequence[TopicPartition]) -> None:
        """Start with partitions that the application assigned: without membership, and with anonymous commits."""
        self._former = None
        self.start(partitions)

    def start(self, partitions: Sequence[TopicPartition]) -> None:
        """Start with these partitions at the committed offset, or as auto.offset.reset says."""
        self._assignments += 1
        self._reader.add(dict.fromkeys(partitions))
        self.find_positions()

    def find_positions(self) -> None:
        """Look up the positions of all partitions without one, in the background."""
        if not self._finding and self._reader.uninitialized():
            self._finding = True
            self._nursery.start_soon(self._find_positions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these partitions."""
        self._assignments += 1
        self._reader.remove(partitions)

    async def _find_positions(self) -> None:
        backoff = self._cluster.backoff()
        try:
            while (wanted := self._reader.uninitialized()) and self._error is None:
                assignments = self._assignments
                try:
                    committed = await self.committed(wanted)
                except KafkaError as error:
                    log.debug("group %s: fetching committed offsets failed: %s", self.group_id, error)
                    if not error.code.retriable and error.code not in WENT_ON:
                        self._error = error
                    await trio.sleep(backoff.next_ms() / 1000)
                    continue
                # A partition assigned again meanwhile may have been read and committed by another member in between.
                if assignments == self._assignments:
                    self._begin(committed)
        finally:
            self._finding = False
            self.on_change()

    def _begin(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        for partition in self._reader.uninitialized():  # the application has placed the others by itself
            place = committed.get(partition)
            if place is not None:
                self._reader.seek(partition, place)
            elif partition in committed:
                self._reader.reset([partition])


async def _notify_of_end(participant: Participant, listener: RebalanceListener) -> None:
    owned = participant.member.owned
    if owned and participant.stamp is not None:
        await listener.revoked(owned)
    elif owned:
        await listener.lost(owned)
