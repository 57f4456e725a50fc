"""Core: parses the answer of a node's `/state`, which is not trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_NODES = 100
"""Limit of nodes shown."""
MOST_THROTTLED = 100
"""Limit of throttled clients of a broker."""


class NotAState(Exception):
    """The answer is not a valid `/state`."""


@dataclass(frozen=True, slots=True)
class NodeName:
    """Name, id and role of a node, and the host that it shares."""

    name: str
    """`broker-1`"""
    id: int
    role: str
    """`broker` or `controller`"""
    host: str | None = None
    """The host that it shares with other brokers."""

    @classmethod
    def of(cls, role: str, node_id: int) -> NodeName:
        return cls(f"{role}-{node_id}", node_id, role)

    def to_json(self) -> dict[str, Any]:
        host = {} if self.host is None else {"host": self.host}
        return {"name": self.name, "id": self.id, "role": self.role, **host}


@dataclass(frozen=True, slots=True)
class MetadataState:
    """A node's view of the metadata log; None for unknown."""

    leader: int | None = None
    epoch: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    applied_offset: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A controller's view of a broker."""

    epoch: int
    fenced: bool
    out_of_sync: int = 0
    """Number of its replicas that are not in sync."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A broker's view of a partition. Offsets are None if it has no replica."""

    index: int
    leader: int
    """-1 for none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_leader: bool = False
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a node."""

    id: int
    role: str
    state: str
    missing: str = ""
    epoch: int | None = None
    """The broker epoch, of brokers only."""
    metadata: MetadataState = MetadataState()
    next_decision: int = 1
    topics: Mapping[str, int] = field(default_factory=dict)
    """Number of partitions by topic; empty for controllers."""
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    """Brokers by id; empty for brokers."""
    partitions: Sequence[PartitionState] = ()
    throttled: Sequence[Mapping[str, str | float]] = ()
    """The clients that quotas hold back now: `user`, `client_id` or `ip`, and `quota`, `limit`, `rate`, `left_ms`."""
    source: str = ""
    """Source of the state if it is not the node itself."""


def read_state(answer: Any) -> NodeState:
    """Raises `NotAState`."""
    try:
        return _read(answer)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotAState("its /state has an unknown format; is it of another version?") from None


def _read(answer: Any) -> NodeState:
    metadata = answer["metadata"]
    names = ("leader", "epoch", "high_watermark", "log_end_offset", "applied_offset")
    return NodeState(
        id=int(answer["id"]),
        role=str(answer["role"]),
        state=str(answer["state"])[:40],
        missing=str(answer["missing"])[:400],
        epoch=_number(answer.get("broker_epoch")),
        metadata=MetadataState(*(_number(metadata.get(name)) for name in names)),
        next_decision=int(answer.get("next_decision", 1)),
        topics={str(each["name"]): int(each["partitions"]) for each in answer.get("topics", ())},
        brokers={
            int(each["id"]): BrokerState(int(each["epoch"]), bool(each["fenced"]), int(each.get("out_of_sync", 0)))
            for each in answer.get("brokers", ())
        },
        partitions=[_partition(each) for each in answer.get("partitions", ())],
        throttled=[_throttled(each) for each in answer.get("throttled", ())[:MOST_THROTTLED]],
    )


def _throttled(answer: Mapping[str, Any]) -> dict[str, str | float]:
    who = {tag: str(answer[tag])[:80] for tag in ("user", "client_id", "ip") if answer.get(tag)}
    numbers = {key: float(answer[key]) for key in ("limit", "rate", "left_ms")}
    return {**who, "quota": str(answer["quota"])[:80], **numbers}


def _partition(answer: Mapping[str, Any]) -> PartitionState:
    return PartitionState(
        index=int(answer["index"]),
        leader=int(answer["leader"]),
        leader_epoch=int(answer["leader_epoch"]),
        replicas=tuple(map(int, answer["replicas"])),
        isr=tuple(map(int, answer["isr"])),
        is_leader=bool(answer["is_leader"]),
        log_start_offset=_number(answer["log_start_offset"]),
        log_end_offset=_number(answer["log_end_offset"]),
        high_watermark=_number(answer["high_watermark"]),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
