"""A stage for coordinators: partitions in memory whose replicas, disk and leadership do as a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from barnabas.broker.purgatory import WaitingAck, WaitingAcks
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.storage.producers import NO_WARRANT, Warrant


@dataclass
class Hands:
    """Both clocks, moved by hand, and the rest of a `World` that coordinators use."""

    ms: int = 1_000
    stretch_bytes: int = 1
    passed: list[str] = field(default_factory=list)
    """Fault points."""

    def __post_init__(self) -> None:
        self.monotonic = SimpleNamespace(now_ms=lambda: self.ms)
        self.wall_clock = SimpleNamespace(now_ms=lambda: self.ms + 1_700_000_000_000)

    def fault_point(self, name: str) -> None:
        self.passed.append(name)

    def tuned(self, name: str, default: int) -> int:
        return self.stretch_bytes if name == "coordinator.load.stretch.bytes" else default


@dataclass
class MemoryLog:
    """The batches of one partition."""

    high_watermark: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    held: list[tuple[int, bytes]] = field(default_factory=list)
    """Base offset and bytes, without what compaction removed."""
    damage: Exception | None = None
    """Raised by the next read."""
    stretches: list[int] = field(default_factory=list)
    """How many batches each read gave."""

    def batches(self, from_offset: int) -> Iterator[bytes]:
        if self.damage is not None:
            raise self.damage
        self.stretches.append(0)
        for _, batch in [each for each in self.held if read_header(each[1], 0).next_offset > from_offset]:
            self.stretches[-1] += 1
            yield batch

    def write(self, batch: bytearray) -> None:
        batch[:8] = self.log_end_offset.to_bytes(8, "big")
        self.held.append((self.log_end_offset, bytes(batch)))
        self.log_end_offset = read_header(batch, 0).next_offset

    def compact(self, keeps: Callable[[int], bool]) -> None:
        """Remove batches by their place, transactions apart."""
        self.held = [
            each for place, each in enumerate(self.held) if keeps(place) or read_header(each[1], 0).is_transactional
        ]

    def delete_front(self) -> None:
        """Begin the log with its first batch."""
        self.log_start_offset = self.held[0][0] if self.held else self.log_end_offset


@dataclass
class StagedPartition:
    """The part of a `Partition` that a coordinator sees."""

    topic: str
    index: int
    log: MemoryLog = field(default_factory=MemoryLog)
    is_leader: bool = False
    leader_epoch: int = 0
    is_forgotten: bool = False
    isr_is_small: bool = False
    fails_appends: ErrorCode | None = None
    fails_over: Callable[[], None] | None = None
    """Called by a failing append before it raises, as by a failing disk."""
    admitted: list[Warrant] = field(default_factory=list)
    acks: WaitingAcks[ErrorCode] = field(default_factory=WaitingAcks)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    def append(
        self, buffer: bytearray, batches: Sequence[tuple[int, BatchHeader]], acks: int, warrant: Warrant = NO_WARRANT
    ) -> None:
        assert acks == -1 and [place for place, _ in batches] == [0]
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.fails_appends is not None:
            if self.fails_over is not None:
                self.fails_over()
            raise KafkaError(self.fails_appends)
        self.admitted.append(warrant)
        self.log.write(buffer)

    def when_replicated(
        self, required_offset: int, callback: Callable[[ErrorCode | None], None]
    ) -> WaitingAck[ErrorCode] | None:
        if not self.is_leader:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark >= required_offset:
            callback(self.ack_error)
        else:
            return self.acks.add(required_offset, callback)
        return None

    @property
    def ack_error(self) -> ErrorCode | None:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.isr_is_small else None

    def replicate(self, up_to: int) -> None:
        self.log.high_watermark = max(self.log.high_watermark, min(up_to, self.log.log_end_offset))
        self.acks.complete_up_to(self.log.high_watermark, self.ack_error)

    def moves_away(self) -> None:
        self.is_leader = False
        self.leader_epoch += 1

    def fail_acks(self) -> None:
        self.acks.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def begin_verification(self, *of: Any, supports_epoch_bump: bool) -> Any:
        return (*of, supports_epoch_bump)

    def opened_again(self) -> StagedPartition:
        """The same log under a new object, as after a disk came back."""
        return replace(self, is_leader=False, is_forgotten=False, acks=WaitingAcks())
