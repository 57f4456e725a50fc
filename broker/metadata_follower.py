"""Shell: follows the metadata log as an observer, builds its images, hands them on, and writes snapshots of them."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.broker.metadata_publisher import MetadataPublisher
from barnabas.kraft.commit_feed import CommittedBatch
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata.snapshot import difference_in_steps, image_to_records_in_steps
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.replica_snapshots import LAST_SNAPSHOT_SECONDS
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.steps import in_turns


class MetadataFollower:
    """`MetadataListener` of this broker's replica of the metadata log.

    Until `publish` is called, images are only built: history from before this broker's registration must not make it
    lead. Then the broker takes the present state in one step, and every later change as it is committed.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        has_own_registration: Callable[[MetadataImage], bool],
        advanced: Callable[[], None],
        *,
        writes_snapshots: bool,
    ) -> None:
        """`has_own_registration`: whether an image contains this incarnation of the broker. `advanced` is called after
        each step. On a combined node the controller writes the snapshots."""
        self._replica: MetadataReplica | None = None
        self._writes_snapshots = writes_snapshots
        self.leader_changed: Callable[[int | None], None] = lambda leader_id: None
        """Called with the id of the quorum's new leader; None if there is none."""
        self.caught_up = trio.Event()
        """Set when an image contains this incarnation of the broker."""
        self._nursery = nursery
        self._has_own_registration = has_own_registration
        self._advanced = advanced
        self._loader = MetadataLoader()
        self._publisher: MetadataPublisher | None = None
        """None until the logs on this broker are open, so that steps of the metadata may be applied."""
        self._later: list[MetadataDelta] | None = None
        """Steps that come while the first one is prepared for the publisher."""
        self._snapshotting = False

    def attach(self, replica: MetadataReplica) -> None:
        """The replica whose listener this is; before it runs."""
        self._replica = replica

    @property
    def replica(self) -> MetadataReplica:
        assert self._replica is not None, "no replica was attached"
        return self._replica

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    @property
    def applied_offset(self) -> int:
        """The offset up to which the metadata log was applied."""
        behind = None if self._publisher is None else self._publisher.behind
        return self._loader.last_offset if behind is None else behind

    async def publish(self, publisher: MetadataPublisher) -> None:
        """Hand over the present image in one step, and every later step as it is committed."""
        later: list[MetadataDelta] = []
        self._later = later
        first = await in_turns(difference_in_steps(EMPTY_IMAGE, self._loader.image))
        self._publisher, self._later = publisher, None
        for delta in [first, *later]:
            publisher.put(delta)

    # -- MetadataListener

    def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
        deltas: list[MetadataDelta] = []
        if batch.records:
            deltas = yield from self._loader.commit_steps(
                batch.base_offset, batch.epoch, batch.append_time_ms, batch.records
            )
        self._loader.last_offset = batch.last_offset
        self.replica.snapshots.look_at(deltas)
        self._apply(deltas)

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> Stepwise[None]:
        self._apply([(yield from self._loader.snapshot_steps(records, offset, epoch, timestamp_ms))])

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        self.leader_changed(leader_id)

    def _apply(self, deltas: list[MetadataDelta]) -> None:
        if self._later is not None:
            self._later += deltas
        elif self._publisher is not None:
            for delta in deltas:
                self._publisher.put(delta)
        elif self._has_own_registration(self._loader.image):
            self.caught_up.set()
        self._advanced()
        if self._may_snapshot and self.replica.snapshots.is_due:
            self._snapshotting = True
            self._nursery.start_soon(self._snapshot, self._loader.image)

    @property
    def _may_snapshot(self) -> bool:
        """A log from an earlier run may be due for a snapshot before any of it was read again."""
        is_free = self._writes_snapshots and not self._snapshotting and not self._loader.in_transaction
        return is_free and self._loader.image.offset >= 0

    async def snapshot_before_stop(self) -> None:
        """Write a snapshot if the next start would have to replay a long log."""
        if self._may_snapshot and self.replica.snapshots.is_due_before_a_stop:
            self._snapshotting = True
            with trio.move_on_after(LAST_SNAPSHOT_SECONDS):
                await self._snapshot(self._loader.image)

    async def _snapshot(self, image: MetadataImage) -> None:
        records = image_to_records_in_steps(image)
        await self.replica.snapshots.create(records, image.offset, image.epoch, image.timestamp_ms)
        self._snapshotting = False
