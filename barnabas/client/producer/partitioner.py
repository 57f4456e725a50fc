"""Core: partitioners: by key as in all Kafka clients, or sticky and adaptive without a key (KIP-794).

Records without a key stay with one partition until about a batch was written there, so that batches fill up. The next
partition is drawn at random, with less weight where batches queue up because a broker is slow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

from barnabas.protocol.murmur import murmur2

QueueSizes = Sequence[tuple[int, int]]
"""(partition, number of waiting batches) of the partitions to choose from."""


class Partitioner(Protocol):
    """A user's own partitioner."""

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        """Return one of `partitions`; `available` are those with a leader. Key and value are serialized."""


class RoundRobinPartitioner:
    """Partitions in turn, whatever the keys."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        count = self._counts.get(topic, 0)
        self._counts[topic] = count + 1
        among = available or partitions
        return among[count % len(among)]


class Chance(Protocol):
    def randrange(self, start: int, stop: int) -> int: ...


@dataclass(slots=True)
class _Sticky:
    partition: int
    produced_bytes: int = 0


class StickyPartitioner:
    """Partitions for the records of one topic that have no key."""

    def __init__(self, sticky_bytes: int, chance: Chance) -> None:
        """`sticky_bytes` is batch.size; at least 1."""
        self._sticky_bytes = max(1, sticky_bytes)
        self._chance = chance
        self._sticky: _Sticky | None = None

    def current(self, choices: Callable[[], QueueSizes]) -> int:
        """The current partition; `choices` is called if there is none yet."""
        if self._sticky is None:
            self._sticky = _Sticky(self._draw(choices()))
        return self._sticky.partition

    def appended(
        self, partition: int, size_bytes: int, choices: Callable[[], QueueSizes], *, batch_is_full: bool
    ) -> None:
        """Count bytes that went to `partition`. It is left when a batch is full, or after twice batch.size: a switch in
        the middle of a batch would leave a small one behind.
        """
        sticky = self._sticky
        if sticky is None or sticky.partition != partition:
            return
        sticky.produced_bytes += size_bytes
        enough = sticky.produced_bytes >= self._sticky_bytes
        if (enough and batch_is_full) or sticky.produced_bytes >= 2 * self._sticky_bytes:
            self._sticky = _Sticky(self._draw(choices()))

    def _draw(self, choices: QueueSizes) -> int:
        """Draw with weights: the longest queue + 1 - the partition's own queue."""
        longest = max(size for _, size in choices) + 1
        sums = list(accumulate(longest - size for _, size in choices))
        return choices[bisect_right(sums, self._chance.randrange(0, sums[-1]))][0]


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition that every Kafka client chooses for `key`."""
    hashed = _kept_hash(key) if len(key) <= _KEPT_KEY_BYTES else murmur2(key)
    return (hashed & 0x7FFF_FFFF) % partitions_count


_KEPT_KEY_BYTES = 64
_kept_hash = lru_cache(maxsize=4096)(murmur2)
"""Keys repeat, and hashing one costs as much as everything else up to its batch."""
