"""What a node tells at its `/state`, read with distrust. A core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_NODES = 100
"""A cluster with more is not shown in full."""


class NotAState(Exception):
    """What came is not what nodes tell."""


@dataclass(frozen=True, slots=True)
class NodeName:
    """Who a node is."""

    name: str
    """`broker-1`"""
    id: int
    role: str
    """`broker` or `controller`"""

    @classmethod
    def of(cls, role: str, node_id: int) -> NodeName:
        return cls(f"{role}-{node_id}", node_id, role)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "id": self.id, "role": self.role}


@dataclass(frozen=True, slots=True)
class MetadataState:
    """The metadata log as a node has it; None: it does not know."""

    leader: int | None = None
    epoch: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    applied_offset: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker as a controller has it."""

    epoch: int
    fenced: bool
    out_of_sync: int = 0
    """Replicas of it that are not in sync."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as a broker has it. Offsets are None if no replica is there."""

    index: int
    leader: int
    """-1: nobody."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_leader: bool = False
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """All of it."""

    id: int
    role: str
    state: str
    missing: str = ""
    epoch: int | None = None
    """A broker's."""
    metadata: MetadataState = MetadataState()
    next_decision: int = 1
    topics: Mapping[str, int] = field(default_factory=dict)
    """Partitions by topic; controllers tell none."""
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    """By id; brokers tell none."""
    partitions: Sequence[PartitionState] = ()
    told: str = ""
    """One line about how this is known, if it is not from the node itself."""


def read_state(told: Any) -> NodeState:
    """Raises `NotAState`."""
    try:
        return _read(told)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotAState("its /state is not what this page reads: is it of another version?") from None


def _read(told: Any) -> NodeState:
    metadata = told["metadata"]
    names = ("leader", "epoch", "high_watermark", "log_end_offset", "applied_offset")
    return NodeState(
        id=int(told["id"]),
        role=str(told["role"]),
        state=str(told["state"])[:40],
        missing=str(told["missing"])[:400],
        epoch=_number(told.get("broker_epoch")),
        metadata=MetadataState(*(_number(metadata.get(name)) for name in names)),
        next_decision=int(told.get("next_decision", 1)),
        topics={str(each["name"]): int(each["partitions"]) for each in told.get("topics", ())},
        brokers={
            int(each["id"]): BrokerState(int(each["epoch"]), bool(each["fenced"]), int(each.get("out_of_sync", 0)))
            for each in told.get("brokers", ())
        },
        partitions=[_partition(each) for each in told.get("partitions", ())],
    )


def _partition(told: Mapping[str, Any]) -> PartitionState:
    return PartitionState(
        index=int(told["index"]),
        leader=int(told["leader"]),
        leader_epoch=int(told["leader_epoch"]),
        replicas=tuple(map(int, told["replicas"])),
        isr=tuple(map(int, told["isr"])),
        is_leader=bool(told["is_leader"]),
        log_start_offset=_number(told["log_start_offset"]),
        log_end_offset=_number(told["log_end_offset"]),
        high_watermark=_number(told["high_watermark"]),
    )


def _number(told: Any) -> int | None:
    return None if told is None else int(told)
