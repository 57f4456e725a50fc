"""The view "Topics" of a real broker: its answers about topics."""

from __future__ import annotations

import pytest

from barnabas import Admin, NewTopic, Producer
from barnabas.client.admin import TopicDescription, TopicPartitionInfo
from barnabas.client.cluster import TopicPartition
from barnabas.dev.embedded import EmbeddedServers
from barnabas.page.access_tables import Filter
from barnabas.page.asking import Asker
from barnabas.page.topics import Topics, topic_row

pytestmark = pytest.mark.feature("OB-03")


def partition(number: int, leader: int | None, isr: tuple[int, ...]) -> TopicPartitionInfo:
    return TopicPartitionInfo(number, leader, 0, (1, 2), isr, (), None, None)


@pytest.mark.parametrize(
    ("partitions", "state"),
    [
        ((partition(0, 1, (1, 2)),), "healthy"),
        ((partition(0, 1, (1, 2)), partition(1, 2, (2,))), "under-replicated"),
        ((partition(0, None, (2,)), partition(1, 2, (2,))), "offline"),
        ((), "healthy"),
    ],
)
def test_the_state_is_that_of_the_worst_partition(partitions: tuple[TopicPartitionInfo, ...], state: str) -> None:
    row = topic_row(TopicDescription("t", None, False, partitions, None), {TopicPartition("t", 1): 7})
    assert row["state"] == state
    assert row["size_bytes"] == (7 if len(partitions) == 2 else 0)
    assert "moving" not in row["resource"]
    moving = topic_row(TopicDescription("t", None, False, partitions, None), {}, 1)
    assert (moving["state"], moving["moving"], "moving" in moving["resource"]) == (state, 1, True)


async def test_topics_are_listed_and_described(barnabas_broker: EmbeddedServers) -> None:
    async with Admin(bootstrap_servers=barnabas_broker) as admin:
        new = NewTopic("viewed", num_partitions=2, configs={"retention.ms": "60000"})
        await admin.create_topics([new])
        async with Producer(bootstrap_servers=barnabas_broker) as producer:
            await producer.send("viewed", b"x" * 1000, partition=1)
        topics = Topics(Asker(lambda: {"bootstrap_servers": barnabas_broker}), has_records=True)
        listing = await topics.listing(Filter("VIEW", "healthy"))
        assert listing["problem"] == ""
        [row] = listing["rows"]
        assert (row["who"], row["partitions"], row["replicas"], row["is_internal"]) == ("viewed", 2, 1, False)
        assert row["size_bytes"] > 1000
        shown = await topics.describe("viewed")
        assert (shown["problem"], shown["has_records"], shown["state"]) == ("", True, "healthy")
        assert [(it["partition"], it["start"], it["end"]) for it in shown["rows"]] == [(0, 0, 0), (1, 0, 1)]
        [retention] = [it for it in shown["configs"] if it["name"] == "retention.ms"]
        assert (retention["value"], retention["is_default"]) == ("60000", False)
        assert (listing["moving"], row["moving"], shown["moving"]) == (0, 0, 0)
        assert {(*it["joining"], *it["leaving"]) for it in shown["rows"]} == {()}
        assert "missing" in (await topics.describe("missing"))["problem"]
