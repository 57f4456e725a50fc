"""Core: tasks of a streams group. A task is a subtopology and a partition of its source topics (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Tasks = Mapping[str, frozenset[int]]
"""Partitions by subtopology id; no entry is empty."""


@dataclass(frozen=True, slots=True)
class TaskSet:
    """All tasks of one member."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)
    """Always empty when assigned by this release, as in Kafka 4.3; members may report some."""
