"""Mistakes of replicas: what is acknowledged, committed, served and cut.

Each function here takes the original and gives the mistake.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.replication.follower import Follower
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reads import FetchKind
from barnabas.broker.replication.replica import Effects, HighWatermarkAdvanced, Leading, Replica
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.errors import ErrorCode


def acknowledge_before_replication(_original: Any) -> Any:
    """acks=all is answered as soon as the leader has written."""

    def enough_replicas(self: Replica, required_offset: int) -> tuple[bool, ErrorCode | None]:
        return True, self.leader_error()

    return enough_replicas


def advance_by_one_too_many(original: Any) -> Any:
    """The high watermark counts the next record, too, as if it were the last offset of the ISR and not its end."""

    def advance(self: Replica, now_ms: int) -> Effects:
        effects: Effects = original(self, now_ms)
        role = self.role
        if not isinstance(role, Leading) or len(role.isr) < self.min_isr:
            return effects
        ends = [role.followers[member].log_end_offset for member in role.maximal_isr if member in role.followers]
        one_more = min([*ends, self.log_end_offset]) + 1
        if one_more > self.log_end_offset or one_more <= self.high_watermark:
            return effects
        self.high_watermark = one_more
        return (HighWatermarkAdvanced(one_more),)

    return advance


def cut_at_the_high_watermark(original: Any) -> Any:
    """A follower of a new leader cuts what it does not know to be committed: as Kafka did before KIP-101."""

    def start(self: Follower, leader_epoch: int) -> None:
        log: Any = self._log
        log.truncate_to(log.high_watermark)
        original(self, leader_epoch)

    return start


def go_on_leading(original: Any) -> Any:
    """A leader does not learn that another was elected, and continues to serve in its old epoch."""

    def partition_changed(self: Replica, image: PartitionImage, log_end_offset: int, now_ms: int) -> Effects:
        if isinstance(self.role, Leading) and image.leader != self.node_id:
            return ()
        effects: Effects = original(self, image, log_end_offset, now_ms)
        return effects

    return partition_changed


def read_to_the_end(original: Any) -> Any:
    """Consumers are given what is written, and not what is replicated."""

    def read(self: Partition, request: Any) -> Any:
        return original(self, request._replace(kind=FetchKind.REPLICA))

    return read
