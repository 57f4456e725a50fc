"""Keys land where Kafka's clients put them; keyless records stick for a batch, and avoid those who are slow."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from barnabas.client.producer.partitioner import (
    QueueSizes,
    RoundRobinPartitioner,
    StickyPartitioner,
    murmur2,
    partition_for_key,
)

pytestmark = pytest.mark.feature("PR-02")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected % 2**32


def test_every_partition_is_some_keys_home() -> None:
    homes = {partition_for_key(b"key-%d" % number, 7) for number in range(200)}
    assert homes == set(range(7))


def visits(sizes: QueueSizes, switches: int = 3000) -> Counter[int]:
    """Chosen partitions, a batch at a time, with constant queue sizes."""
    partitioner = StickyPartitioner(100, Random(7))
    seen: Counter[int] = Counter()
    for _ in range(switches):
        partition = partitioner.current(lambda: sizes)
        seen[partition] += 1
        partitioner.appended(partition, 100, lambda: sizes, batch_is_full=True)
    return seen


def test_equal_queues_are_visited_equally() -> None:
    seen = visits([(0, 2), (1, 2), (2, 2)])
    assert all(900 < seen[partition] < 1100 for partition in range(3))


def test_the_longer_a_queue_the_rarer_it_is_chosen() -> None:
    seen = visits([(4, 0), (5, 3), (6, 1)])
    assert seen[4] / 3000 == pytest.approx(4 / 8, abs=0.04)
    assert seen[5] / 3000 == pytest.approx(1 / 8, abs=0.04)
    assert seen[6] / 3000 == pytest.approx(3 / 8, abs=0.04)


def test_it_stays_until_a_batch_is_full_or_two_are_written() -> None:
    choices = [(partition, 0) for partition in range(1000)]
    partitioner = StickyPartitioner(100, Random(1))
    first = partitioner.current(lambda: choices)
    partitioner.appended(first, 60, lambda: choices, batch_is_full=False)
    partitioner.appended(first, 60, lambda: choices, batch_is_full=False)
    assert partitioner.current(lambda: choices) == first, "leaving now would leave a small batch behind"
    partitioner.appended(first, 5, lambda: choices, batch_is_full=True)
    second = partitioner.current(lambda: choices)
    assert second != first
    partitioner.appended(second, 200, lambda: choices, batch_is_full=False)
    assert partitioner.current(lambda: choices) != second, "keyed records may keep its last batch from being full"


def test_bytes_of_a_record_that_came_too_late_do_not_count() -> None:
    choices = [(partition, 0) for partition in range(1000)]
    partitioner = StickyPartitioner(100, Random(1))
    current = partitioner.current(lambda: choices)
    partitioner.appended(current + 1, 1000, lambda: choices, batch_is_full=True)
    assert partitioner.current(lambda: choices) == current


def test_round_robin_takes_turns_among_those_with_a_leader() -> None:
    partitioner = RoundRobinPartitioner()
    chosen = [partitioner("t", b"key", b"value", [0, 1, 2], [0, 2]) for _ in range(4)]
    assert chosen == [0, 2, 0, 2]
    assert partitioner("t", None, None, [0, 1], []) == 0
    assert partitioner("other", None, None, [0, 1], [0, 1]) == 0
