"""Core: the owners of a consumer group's partitions, by the epochs in which they got them."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.groups.consumer_member import UNKNOWN_EPOCH, OwnedPartitions


class PartitionOwners:
    """Each partition has at most one owner: a member to which it is assigned, or one that has yet to revoke it."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[bytes, dict[int, int]] = {}

    def __iter__(self) -> Iterator[tuple[bytes, dict[int, int]]]:
        """(topic id, epochs by partition)."""
        return iter(self._epochs.items())

    def epoch(self, topic_id: bytes, partition: int) -> int:
        """Epoch in which the owner got the partition; -1 if it is free."""
        epochs = self._epochs.get(topic_id)
        return UNKNOWN_EPOCH if epochs is None else epochs.get(partition, UNKNOWN_EPOCH)

    def own(self, owned: OwnedPartitions, epoch: int) -> None:
        for topic_id, partitions in owned.items():
            epochs = self._epochs.setdefault(topic_id, {})
            for partition in partitions:
                epochs[partition] = epoch

    def release(self, owned: OwnedPartitions, epoch: int) -> None:
        """Release only partitions owned since this epoch: after compaction the new owner's record may precede the
        former owner's.
        """
        for topic_id, partitions in owned.items():
            epochs = self._epochs.get(topic_id)
            if epochs is None:
                continue
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                del self._epochs[topic_id]
