"""`MetadataLoader`: follows the committed metadata log and gives a delta for each step that may be seen.

It knows about metadata transactions (KIP-868): what stands between a BeginTransactionRecord and its
EndTransactionRecord becomes visible at once, or never if an AbortTransactionRecord comes instead. While a
transaction is open the image stays where it was before it. Knows nothing of Raft or files: the caller hands
it what is committed.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.metadata.delta import MetadataDelta
from kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from kraft.metadata.replay import ImageReplay, ReplayError
from protocol.messages.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)


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
        """A new leader ends what its predecessor left open by writing an AbortTransactionRecord."""
        return self._transaction is not None

    @property
    def transaction_name(self) -> str | None:
        """What the open transaction calls itself, if there is one and it has a name."""
        return self._transaction_name

    def handle_commit(
        self, base_offset: int, epoch: int, append_time_ms: int, records: Iterable[object]
    ) -> list[MetadataDelta]:
        """Load one committed batch; a control batch of the log itself comes with no records. Mostly gives one
        delta; none inside a transaction, two when one begins in the middle of a batch.

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
                replay.replay(record)
            offset += 1
        offset = max(offset, base_offset)
        self.last_offset = offset
        if self._transaction is None:
            deltas.append(self._publish(replay, offset, epoch, append_time_ms))
        return deltas

    def handle_snapshot(self, records: Iterable[object], offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        """Replace everything by the snapshot whose last record is `offset`; the delta leads there from the
        old image.

        What is equal in both is kept as the very same object, so the delta names only what differs.
        """
        from kraft.metadata.snapshot import difference

        replay = ImageReplay(EMPTY_IMAGE)
        for record in records:
            replay.replay(record)
        loaded = replay.finish(offset, epoch, timestamp_ms).after
        delta = difference(self.image, loaded)
        self.image = delta.after
        self.is_empty = False
        self.last_offset = offset
        self._transaction = self._transaction_name = None
        return delta

    def _publish(self, replay: ImageReplay, offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        delta = replay.finish(offset, epoch, timestamp_ms)
        self.image = delta.after
        self.is_empty = self.is_empty and replay.replayed == 0
        return delta
