"""Types of the promises: partitions, the part of their logs that is checked, and leading replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from simulation.ghosts import LogLike


class PartitionKey(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Epochs(Protocol):
    """The part of `storage.leader_epochs.LeaderEpochs` that is read here."""

    def entries(self) -> list[tuple[int, int]]: ...


class ReplicaLog(LogLike, Protocol):
    """The part of `PartitionLog` that is read here."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def local_log_start_offset(self) -> int:
        """Earlier offsets are only remote."""

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def recovery_point(self) -> int: ...

    @property
    def epochs(self) -> Epochs: ...


@dataclass(frozen=True, slots=True)
class LeaderView:
    """A leading replica as it is after a change."""

    node_id: int
    leader_epoch: int
    partition_epoch: int
    high_watermark: int
    maximal_isr: frozenset[int]
    """With those whom it has asked the controller to take in."""
