"""Partitions on the command line: `flights`, `flights:0`, `flights:0,2-4`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.cluster import TopicPartition

T = TypeVar("T")

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
MOST = 100_000
"""Limit of partitions in one range, against typing errors."""


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Partitions of one topic, or all of them."""

    topic: str
    partitions: tuple[int, ...] | None
    """None for all partitions."""

    @classmethod
    def parse(cls, option: str, text: str) -> PartitionChoice:
        """Raises `WrongArgument`."""
        topic, colon, rest = text.partition(":")
        if not topic or (colon and not rest):
            raise WrongArgument(f"{option} {text}: must be TOPIC or TOPIC:PARTITIONS, e.g. flights:0,2-4")
        if not colon:
            return cls(topic, None)
        found: dict[int, None] = {}
        for part in rest.split(","):
            match = _RANGE.fullmatch(part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if first > last or last - first >= MOST:
                raise WrongArgument(f"{option} {text}: {part} is not a partition or range of partitions")
            found.update(dict.fromkeys(range(first, last + 1)))
        return cls(topic, tuple(found))


def by_name(outcomes: Mapping[TopicPartition, T]) -> dict[str, T]:
    """Keys the outcomes by the text form of the partition, `flights:0`."""
    return {f"{partition.topic}:{partition.partition}": outcome for partition, outcome in outcomes.items()}
