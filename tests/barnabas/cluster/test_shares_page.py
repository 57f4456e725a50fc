"""The `/shares` pages of a whole simulated cluster, and what `barnabas why` makes of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas import Admin, AlterConfigOp, ConfigResource, Producer, ResourceType, ShareConsumer, TopicPartition
from barnabas.testing.simulated import SimulatedClusterForTests
from barnabas.why.node_addresses import NodeAddress
from barnabas.why.node_queries import ask_shares
from barnabas.why.share_delivery import why_group, why_partition, why_record
from barnabas.why.shares_view import SharesView, read_shares

pytestmark = [pytest.mark.feature("OB-07", "CG-18")]
HTTP_PORT = 9292
GROUP = "workers"
LOCK_MS = 20_000


def play(story: Callable[[SimulatedClusterForTests], Awaitable[None]]) -> None:
    cluster = SimulatedClusterForTests(seed=1)
    cluster.run(lambda: story(cluster))


async def view_of(cluster: SimulatedClusterForTests, **query: str) -> SharesView:
    addresses = [NodeAddress(name, name, HTTP_PORT) for name in (*cluster.brokers, *cluster.controllers)]
    return read_shares(GROUP, await ask_shares(cluster.world.network, addresses, {"group": GROUP, **query}, 5.0))


async def begin(cluster: SimulatedClusterForTests, records: int, **configs: str) -> None:
    await cluster.create_topic("flights")
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
    wanted = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
    wanted |= {name.replace("_", "."): value for name, value in configs.items()}
    async with Admin(**options) as admin:
        resource = ConfigResource(ResourceType.GROUP, GROUP)
        await admin.incremental_alter_configs({resource: [AlterConfigOp(*it) for it in wanted.items()]})
    async with Producer(**options) as producer:
        for number in range(records):
            await producer.send("flights", b"%d" % number)


async def first_records(consumer: ShareConsumer) -> list[int]:
    while True:
        records = await consumer.poll(timeout_ms=500)
        if records:
            return [record.offset for record in records]


def time(at_ms: int) -> str:
    assert at_ms > 0
    return "TIME"


def test_a_record_is_acquired_by_a_member_that_does_not_acknowledge_it() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await begin(cluster, 5)
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with ShareConsumer(
            "flights", group_id=GROUP, share_acknowledgement_mode="explicit", client_id="slow", **options
        ) as consumer:
            assert await first_records(consumer) == [0, 1, 2, 3, 4]
            view = await view_of(cluster, topic="flights", partition="0", offset="3")
            [member] = view.members.values()
            assert (member.client_id, member.assignment) == ("slow", {"flights": (0,)})
            found = view.partitions["flights", 0]
            assert found.node == await cluster.leader_of("flights", 0)
            assert (found.start_offset, found.end_offset, found.high_watermark) == (0, 5, 5)
            assert found.counts == {"acquired": 5}
            span = found.span_of(3)
            assert span is not None
            assert (span.member_id, span.delivery_count) == (member.member_id, 1)
            assert span.lock_ends_ms - span.since_ms == LOCK_MS
            first, *others = why_record(view, "flights", 0, 3, time)
            assert first == (
                f"offset 3: acquired by {member} since TIME; delivered once of 5; its lock ends at TIME"
            )
            assert f"flights-0 is assigned to {member}" in others
            assert why_record(view, "flights", 0, 9, time)[0] == "offset 9: not committed: the high watermark is 5"
            await trio.sleep(LOCK_MS / 1000 + 1)
            view = await view_of(cluster)
            assert view.partitions["flights", 0].counts == {"available": 5}
            lines = why_partition(view, "flights", 0, time)
            assert "offsets 0 to 4: available again; delivered once of 5, and released, or its lock expired" in lines

    play(story)


def test_records_wait_because_the_limit_in_flight_is_reached_and_others_are_done() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await begin(cluster, 300, share_partition_max_record_locks="100")
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with ShareConsumer(
            "flights", group_id=GROUP, share_acknowledgement_mode="explicit", max_poll_records=50, **options
        ) as consumer:
            records = await consumer.poll(timeout_ms=30_000)
            while not records:
                records = await consumer.poll(timeout_ms=30_000)
            for record in records:
                consumer.acknowledge(record)
            assert await consumer.commit() == {TopicPartition("flights", 0): None}
            held = len(await first_records(consumer))
            view = await view_of(cluster)
            found = view.partitions["flights", 0]
            assert found.start_offset == len(records)
            assert found.counts["acquired"] >= held
            assert why_record(view, "flights", 0, 0, time)[0].startswith("offset 0: done")
            lines = why_partition(view, "flights", 0, time)
            if not found.can_acquire:
                assert any("share.partition.max.record.locks allows 100 in flight" in line for line in lines)
            assert why_record(view, "flights", 0, 299, time)[0].startswith("offset 299: never acquired")
            assert why_group(view, time)[0].startswith(f"share group {GROUP} is Stable with 1 members")

    play(story)


def test_nobody_is_assigned_or_there_is_no_group() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await begin(cluster, 1)
        assert not (await view_of(cluster)).exists
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        await cluster.create_topic("other")
        async with ShareConsumer("other", group_id=GROUP, **options) as consumer:
            await consumer.poll(timeout_ms=8_000)
            view = await view_of(cluster)
            assert why_partition(view, "flights", 0, time) == [
                "flights-0 is assigned to nobody: no member subscribes to flights",
                "flights-0: no member fetches it from a leader that answers",
            ]
        view = await view_of(cluster)
        assert why_partition(view, "other", 0, time)[0] == f"share group {GROUP} has no members; it is Empty"

    play(story)


@pytest.mark.parametrize("query", [{}, {"group": GROUP, "offset": "x"}, {"group": GROUP, "partition": "-1"}])
def test_bad_queries_are_refused(query: dict[str, str]) -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        addresses = [NodeAddress(name, name, HTTP_PORT) for name in cluster.brokers]
        assert await ask_shares(cluster.world.network, addresses, query or {"other": "x"}, 5.0) == []

    play(story)
