"""The view "Groups" of a real cluster: its answers about groups of all types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import Admin, AlterConfigOp, ConfigResource, Consumer, Producer, ResourceType, ShareConsumer
from barnabas.cli.connection import Connection
from barnabas.client.admin import AdminSettings, GroupListing, GroupState, GroupType
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.group_views.kinds import GroupView, MemberView
from barnabas.group_views.progress import Progress
from barnabas.page.access_tables import Filter
from barnabas.page.asking import Asker
from barnabas.page.feed import Feed
from barnabas.page.groups import Groups, group_json, group_rows
from barnabas.page.show import addresses_of
from barnabas.page.watch import Watch
from barnabas.runtime.real import real_world

pytestmark = pytest.mark.feature("OB-03", "TO-05")


class Stage:
    def __init__(self, data: Path, cluster: LocalCluster) -> None:
        self.data = data
        self.bootstrap_servers = cluster.bootstrap_servers
        self._addresses = addresses_of(cluster.layout)

    def groups(self) -> Groups:
        settings = partial(Connection(data=self.data).settings, AdminSettings.model_fields)
        return Groups(Asker(settings), Watch(real_world(), Feed(), self._addresses).shares)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("data")
    cluster = LocalCluster(data, free_base_port())
    cluster.up()
    try:
        cluster.wait_ready()
        yield Stage(data, cluster)
    finally:
        cluster.down()


async def write(stage: Stage, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=stage.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)


def test_a_share_group_shows_who_has_which_records(stage: Stage) -> None:
    async def story() -> None:
        options: dict[str, Any] = {"bootstrap_servers": stage.bootstrap_servers}
        await write(stage, "jobs", 4)
        async with Admin(**options) as admin:
            resource = ConfigResource(ResourceType.GROUP, "workers")
            earliest = AlterConfigOp("share.auto.offset.reset", "earliest")
            await admin.incremental_alter_configs({resource: [earliest]})
        async with ShareConsumer(
            "jobs", group_id="workers", client_id="slow", share_acknowledgement_mode="explicit", **options
        ) as consumer:
            records = []
            while not records:
                records = await consumer.poll(timeout_ms=500)
            groups = stage.groups()
            [row] = (await groups.listing(Filter("work", "share")))["rows"]
            assert (row["who"], row["type"], row["state"]) == ("workers", "share", "Stable")
            shown = await groups.describe("workers")
            assert (shown["type"], shown["problem"], shown["not_loaded"]) == ("share", "", [])
            [member] = shown["members"]
            assert (member["client_id"], member["assignment"]) == ("slow", "jobs:0")
            [share] = shown["shares"]
            assert (share["topic"], share["start"], share["end"], share["counts"]) == ("jobs", 0, 4, {"acquired": 4})
            [span] = share["spans"]
            assert (span["first"], span["last"], span["state"], span["deliveries"]) == (0, 3, "acquired", 1)
            assert (span["member"], span["client"]) == (member["member_id"], "slow")
            assert span["since_ms"] < span["lock_ends_ms"]
            assert shown["lag"] == 4 and 0 <= shown["lag_seconds"] < 60

    trio.run(story)


def test_a_group_of_consumers_shows_its_lag_in_records_and_in_time(stage: Stage) -> None:
    async def story() -> None:
        options: dict[str, Any] = {"bootstrap_servers": stage.bootstrap_servers}
        await write(stage, "flights", 5)
        async with Consumer("flights", group_id="etl", auto_offset_reset="earliest", **options) as consumer:
            while not await consumer.poll(timeout_ms=200):
                pass
            await consumer.commit()
            await write(stage, "flights", 2)
            with trio.fail_after(20):
                while (shown := await stage.groups().describe("etl"))["lag"] != 2:
                    await trio.sleep(0.1)
            [partition] = shown["partitions"]
            assert (partition["committed"], partition["end"], partition["lag"]) == (5, 7, 2)
            assert 0 <= partition["lag_seconds"] < 60
            assert partition["member"] == shown["members"][0]["member_id"]

    trio.run(story)


def test_a_group_that_was_opened_is_followed_while_a_browser_is_connected(stage: Stage) -> None:
    async def story() -> None:
        options: dict[str, Any] = {"bootstrap_servers": stage.bootstrap_servers}
        await write(stage, "gates", 3)
        async with Consumer("gates", group_id="board", auto_offset_reset="earliest", **options) as consumer:
            while not await consumer.poll(timeout_ms=200):
                pass
            await consumer.commit()
        now_ms, watched = 1_763_750_000_000, True
        groups = stage.groups()
        groups.now_ms, groups.is_watched = lambda: now_ms, lambda: watched
        await groups.describe("board")
        await write(stage, "gates", 4)
        now_ms += 10_000
        await groups.follow()
        now_ms, watched = now_ms + 10_000, False
        await groups.follow()
        shown = (await groups.describe("board"))["history"]
        assert [it[0] - now_ms for it in shown["samples"]] == [-20_000, -10_000, 0]
        assert [it[1:] for it in shown["samples"]] == [[0, None, None], [4, 0.4, 0.0], [4, 0.0, 0.0]]
        [topic] = shown["topics"]
        assert (topic["topic"], topic["lag"], topic["written"]) == ("gates", 4, 0.0)

    trio.run(story)


def test_a_group_that_is_not_there_is_a_problem_in_one_line(stage: Stage) -> None:
    shown = trio.run(stage.groups().describe, "nobody")
    assert shown["group"] == "nobody" and "nobody" in shown["problem"] and "\n" not in shown["problem"]


def test_tasks_of_a_streams_group_are_texts_and_long_lists_are_cut() -> None:
    tasks = {"active": {"0": (0, 1), "1": (2,)}, "standby": {}, "warmup": {}}
    members = tuple(MemberView(f"m-{number}", "c", "h", process_id="p", tasks=tasks) for number in range(300))
    group = GroupView("app", GroupType.STREAMS, "Stable", 1, None, 3, 2, members, topology_epoch=1)
    shown = group_json(group, [Progress("orders", 0, 5, 7, 2, 1.5), Progress("orders", 1, None, 7, None)])
    assert (len(shown["members"]), shown["members_left_out"]) == (200, 100)
    assert shown["members"][0]["tasks"] == {"active": "0:0,1 1:2", "standby": "", "warmup": ""}
    assert (shown["lag"], shown["lag_seconds"], shown["topology_epoch"]) == (2, 1.5, 1)


def test_rows_are_searched_by_type_and_state() -> None:
    [row] = group_rows([GroupListing("a", "share", GroupState.EMPTY, GroupType.SHARE, 1)])
    assert row["resource"] == "share Empty"
