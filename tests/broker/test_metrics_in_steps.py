"""Partitions are counted for `/metrics` in steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.metrics import LOGS_IN_A_STEP, log_families, waiting_families
from barnabas.kraft.metadata.image import PartitionImage, TopicImage, TopicsImage
from barnabas.kraft.metrics import PARTITIONS_IN_A_STEP, _count_partitions
from barnabas.runtime.families import Family

pytestmark = pytest.mark.feature("OB-04", "OP-08")


def test_other_tasks_run_after_each_thousand() -> None:
    count = 2 * LOGS_IN_A_STEP + 500
    partitions: Any = [SimpleNamespace(topic="t", waiting_acks=2) for _ in range(count)]
    none: Any = SimpleNamespace(delayed=0)
    *steps, family = waiting_families(partitions, none, none)
    assert steps == [None, None] and family is not None
    assert dict(cast(Any, family.samples))["Produce",] == 2 * count


def test_samples_of_logs_are_made_while_they_are_rendered() -> None:
    taken: list[int] = []

    class Partitions:
        def __iter__(self) -> Any:
            for index in range(10):
                taken.append(index)
                log = SimpleNamespace(size_bytes=index, log_start_offset=0, log_end_offset=0, high_watermark=0)
                yield SimpleNamespace(topic="t", index=index, log=log, is_leader=False, replica=log)

    family = next(iter(log_families(cast(Any, Partitions()))))
    assert isinstance(family, Family) and taken == []
    assert next(iter(family.samples)) == (("t", "0"), 0) and taken == [0]


def test_a_controller_counts_in_steps() -> None:
    partition = PartitionImage((1, 2), (bytes(16),) * 2, (1, 2), leader=-1)
    topic = TopicImage("t", bytes(16), dict.fromkeys(range(PARTITIONS_IN_A_STEP * 2), partition))
    image: Any = SimpleNamespace(topics=TopicsImage({"t": topic}, {bytes(16): topic}))
    steps = _count_partitions(image)
    assert [next(steps), next(steps)] == [None, None]
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == (2 * PARTITIONS_IN_A_STEP, 2 * PARTITIONS_IN_A_STEP, 2 * PARTITIONS_IN_A_STEP, 0)
