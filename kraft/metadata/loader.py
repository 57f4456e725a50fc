"""`MetadataLoader`: replays the committed metadata log and returns a delta for each visible step.

It knows metadata transactions (KIP-868): the records between a BeginTransactionRecord and its EndTransactionRecord
become visible together, or never if an AbortTransactionRecord comes instead. While a transaction is open the image
stays as it was before it. Large batches and snapshots may come in parts; they, too, become visible as a whole. Knows
nothing of Raft or files.
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


class MetadataLoader:
    """Owns the latest visible image. One writer."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.last_offset = image.offset
        """The last offset that was loaded; ahead of `image.offset` while a transaction or a batch is incomplete."""
        self.is_empty = image is EMPTY_IMAGE
        """No record has become visible yet: the cluster is new."""
        self._batch: ImageReplay | None = None
        """The parts so far of a batch that continues."""
        self._snapshot: ImageReplay | None = None
        """The parts so far of a snapshot that continues."""
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
        *,
        continues: bool = False,
        last_offset: int | None = None,
    ) -> list[MetadataDelta]:
        """Load one committed batch, or a part of one that `continues`; a control batch of the log itself has no
        records here, and ends at `last_offset`. Returns one delta in most cases; none inside a transaction or before
        the last part of a batch, two when a transaction begins in the middle of a batch.

        Raises `ReplayError` when the log contradicts itself; this node must then stop.
        """
        deltas: list[MetadataDelta] = []
        replay = self._transaction or self._batch or ImageReplay(self.image)
        offset = base_offset - 1
        for record in records:
            if isinstance(record, BeginTransactionRecord):
                if self._transaction is not None:
                    raise ReplayError(f"a transaction begins at {offset + 1} inside another")
                if offset >= base_offset or self._batch is not None:
                    deltas.append(self._publish(replay, offset, epoch, append_time_ms))
                    self._batch = None
                replay = self._transaction = ImageReplay(self.image)
                self._transaction_name = record.name
            elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                if self._transaction is None:
                    raise ReplayError(f"a transaction ends at {offset + 1}, but none began")
                if isinstance(record, AbortTransactionRecord):
                    replay = ImageReplay(self.image)
                self._transaction = self._transaction_name = None
            else:
                replay.replay(record)
            offset += 1
        offset = max(offset, base_offset if last_offset is None else last_offset)
        self.last_offset = offset
        self._batch = replay if continues and self._transaction is None else None
        if self._transaction is None and not continues:
            deltas.append(self._publish(replay, offset, epoch, append_time_ms))
        return deltas

    def handle_snapshot(
        self, records: Iterable[object], offset: int, epoch: int, timestamp_ms: int, *, continues: bool = False
    ) -> MetadataDelta | None:
        """Replace the image by the snapshot that ends at `offset`, or load a part of one that `continues`. Returns the
        delta that leads there from the old image; None before the last part.

        Equal parts of both are kept as the very same objects, so the delta holds only differences.
        """
        from barnabas.kraft.metadata.snapshot import difference

        replay, self._snapshot = self._snapshot or ImageReplay(EMPTY_IMAGE), None
        for record in records:
            replay.replay(record)
        if continues:
            self._snapshot = replay
            return None
        loaded = replay.finish(offset, epoch, timestamp_ms).after
        delta = difference(self.image, loaded)
        self.image = delta.after
        self.is_empty = False
        self.last_offset = offset
        self._transaction = self._transaction_name = self._batch = None
        return delta

    def _publish(self, replay: ImageReplay, offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        delta = replay.finish(offset, epoch, timestamp_ms)
        self.image = delta.after
        self.is_empty = self.is_empty and replay.replayed == 0
        return delta
