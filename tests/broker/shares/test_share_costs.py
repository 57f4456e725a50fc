"""Each step of a ShareFetch or a ShareAcknowledge is short, whatever it names."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from simulation.invariants.work import MOST_CALLS
from tests.broker.apis.rig import Rig, batch_of, on_cluster
from tests.broker.shares.share_rig import ALONE, GROUP_RESOURCE, Member, begin, start_offset

pytestmark = pytest.mark.feature("CG-19", "RP-02")

ACCEPT, RELEASE = 1, 2


def largest_step(rig: Rig, api: str) -> int:
    return max(rig.steps[api])


@on_cluster(counts_work=True, **ALONE)
async def test_a_share_fetch_of_many_partitions_waits_for_records(rig: Rig) -> None:
    topic_id = await rig.create("t", 300)
    await begin(rig, topic_id, partitions=300)
    one = Member(rig, "one", topic_id)
    await one.ask(partitions=range(300), max_wait_ms=2_000)
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await one.ask(partitions=(), max_wait_ms=30_000))

    rig.nursery.start_soon(ask)
    await rig.until(lambda: rig.broker(1).shares.partitions.fetches.delayed)
    before = trio.current_time()
    await rig.produce("t", index=200)
    await rig.until(lambda: answers)
    assert trio.current_time() - before < 5, "the record ends the wait"
    (topic,) = answers[0].responses
    assert [it.partition_index for it in topic.partitions] == [200]
    assert largest_step(rig, "ShareFetch") < MOST_CALLS


@on_cluster(counts_work=True, **ALONE)
async def test_a_batch_of_many_records_is_acknowledged_one_by_one(rig: Rig) -> None:
    count = 4_000
    topic_id = await rig.create("t")
    await begin(rig, topic_id)
    await rig.configure(GROUP_RESOURCE, "work", share_delivery_count_limit="10")
    await rig.produce("t", batch_of(*[b""] * count))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken(max_records=1) == [(0, count - 1, 1)]
    assert await one.acknowledged((0, count - 1, [ACCEPT, RELEASE] * (count // 2))) == 0
    assert start_offset(rig.broker(1), topic_id) == 1
    again: list[tuple[int, int, int]] = []
    while more := await one.take(max_records=count):
        again += more
    assert again == [(each, each, 2) for each in range(1, count, 2)]
    assert largest_step(rig, "ShareAcknowledge") < MOST_CALLS
    assert largest_step(rig, "ShareFetch") < MOST_CALLS


@on_cluster(counts_work=True, **ALONE)
async def test_a_fetch_of_one_record_looks_at_one_of_many_partitions(rig: Rig) -> None:
    partitions = 40
    topic_id = await rig.create("t", partitions)
    await begin(rig, topic_id, partitions=partitions)
    for index in range(partitions):
        await rig.produce("t", index=index)
    one = Member(rig, "one", topic_id)
    await one.ask(partitions=range(partitions), max_records=0)
    await one.ask(partitions=(), max_records=1, share_acquire_mode=1, max_wait_ms=5_000)
    seen: list[int] = []
    rig.steps["ShareFetch"].clear()
    for _ in range(20):
        response = await one.ask(partitions=(), max_records=1, share_acquire_mode=1, max_wait_ms=5_000)
        seen += [data.partition_index for topic in response.responses for data in topic.partitions if data.records]
    assert len(set(seen)) == 20, "each has its turn"
    assert sum(rig.steps["ShareFetch"]) / 20 < 1_500
