"""`MetadataLoader`: replays the committed metadata log and returns a delta for each visible step.

It knows metadata transactions (KIP-868): the records between a BeginTransactionRecord and its EndTransactionRecord
become visible together, or never if an AbortTransactionRecord comes instead. While a transaction is open the image
stays as it was before it. Batches and snapshots, too, become visible as a whole. They are loaded in short steps: other
tasks run between them. Knows nothing of Raft or files.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.kraft.metadata.replay import ImageReplay, ReplayError
from barnabas.protocol.messages.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from barnabas.runtime.at_once import Stepwise, at_once


class MetadataLoader:
    """Owns the latest visible image. One writer."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.last_offset = image.offset
        """The last offset that was loaded; ahead of `image.offset` while a transaction is open."""
        self.is_empty = image is EMPTY_IMAGE
        """No record has become visible yet: the cluster is new."""
        self._transaction: ImageReplay | None = None
        self._transaction_name: str | None = None

    @property
    def in_transaction(self) -> bool:
        """A new leader ends the transaction that its predecessor left open by an AbortTransactionRecord."""
        return self._transaction is not None

    @property
    def transaction_name(self) -> str | None:
        """The name of the open transaction, if there is one and it has a name."""
        return self._transaction_name

    def handle_commit(
        self,
        base_offset: int,
        epoch: int,
        append_time_ms: int,
        records: Iterable[object],
        last_offset: int | None = None,
    ) -> list[MetadataDelta]:
        """All steps of `commit_steps` at once."""
        return at_once(self.commit_steps(base_offset, epoch, append_time_ms, records, last_offset))

    def handle_snapshot(self, records: Iterable[object], offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        """All steps of `snapshot_steps` at once."""
        return at_once(self.snapshot_steps(records, offset, epoch, timestamp_ms))

    def commit_steps(
        self,
        base_offset: int,
        epoch: int,
        append_time_ms: int,
        records: Iterable[object],
        last_offset: int | None = None,
    ) -> Stepwise[list[MetadataDelta]]:
        """Load one committed batch, to its end before the next one; a control batch of the log itself has no records
        here, and ends at `last_offset`. Returns one delta in most cases; none inside a transaction, two when a
        transaction begins in the middle of a batch.

        Raises `ReplayError` when the log contradicts itself; this node must then stop.
        """
        deltas: list[MetadataDelta] = []
        replay = self._transaction or ImageReplay(self.image)
        offset = base_offset - 1
        for record in records:
            if isinstance(record, BeginTransactionRecord):
                if self._transaction is not None:
                    raise ReplayError(f"a transaction begins at {offset + 1} inside another")
                if offset >= base_offset:
                    deltas.append(self._publish(replay, offset, epoch, append_time_ms))
                replay = self._transaction = ImageReplay(self.image)
                self._transaction_name = record.name
            elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                if self._transaction is None:
                    raise ReplayError(f"a transaction ends at {offset + 1}, but none began")
                if isinstance(record, AbortTransactionRecord):
                    replay = ImageReplay(self.image)
                self._transaction = self._transaction_name = None
            else:
                yield from replay.steps(record)
            offset += 1
        offset = max(offset, base_offset if last_offset is None else last_offset)
        self.last_offset = offset
        if self._transaction is None:
            deltas.append(self._publish(replay, offset, epoch, append_time_ms))
        return deltas

    def snapshot_steps(
        self, records: Iterable[object], offset: int, epoch: int, timestamp_ms: int
    ) -> Stepwise[MetadataDelta]:
        """Replace the image by the snapshot that ends at `offset`. Returns the delta that leads there from the old
        image.

        Equal parts of both are kept as the very same objects, so the delta holds only differences.
        """
        from barnabas.kraft.metadata.snapshot import difference_in_steps

        replay = ImageReplay(EMPTY_IMAGE)
        for record in records:
            yield from replay.steps(record)
        loaded = replay.finish(offset, epoch, timestamp_ms).after
        delta = yield from difference_in_steps(self.image, loaded)
        delta.is_of_snapshot = True
        self._show(delta, is_empty=False)
        self.last_offset = offset
        self._transaction = self._transaction_name = None
        return delta

    def _publish(self, replay: ImageReplay, offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        delta = replay.finish(offset, epoch, timestamp_ms)
        self._show(delta, is_empty=self.is_empty and replay.replayed == 0)
        return delta

    def _show(self, delta: MetadataDelta, *, is_empty: bool) -> None:
        """Make the image after `delta` the visible one."""
        self.image = delta.after
        self.is_empty = is_empty
