"""Replicas that move between the log directories of a broker, under load, faults and crashes (KIP-113)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsRequest
from barnabas.runtime.channel import ChannelError
from tests.broker.apis.directories import places, with_two_directories
from tests.broker.apis.rig import Rig, batch_of, on_cluster

BROKER = 4
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


async def move(rig: Rig, directory: str, *partitions: int, topic: str = "t", node: int = 1) -> list[int]:
    """Error codes of a request to move partitions to the directory a or b, or to a path."""
    path = directory if directory.startswith("/") else f"/broker-{node}/{directory}"
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])])
    response = await rig.ask(node, request)
    return [it.error_code for it in response.results[0].partitions]


async def described(rig: Rig, node: int = 1) -> dict[tuple[str, int, bool], DescribeLogDirsPartition]:
    """By the last part of the directory, partition, and whether it is a future log."""
    response = await rig.ask(node, DescribeLogDirsRequest(topics=None))
    return {
        (Path(result.log_dir).name, each.partition_index, each.is_future_key): each
        for result in response.results
        for topic in result.topics
        if topic.name == "t"
        for each in topic.partitions
    }


def content(partition: Partition) -> bytes:
    return b"".join(partition.log.batches(partition.log.log_start_offset))


def other(directory: str) -> str:
    return "b" if directory == "a" else "a"


async def fill(rig: Rig, count: int, index: int = 0, size: int = 1000) -> None:
    for number in range(count):
        answer = await rig.produce("t", batch_of(f"{number}-".ljust(size, "x")), index=index)
        assert answer.error_code == 0


@pytest.mark.feature("RE-19", "AD-05")
@on_cluster(brokers=3, log__segment__bytes="1048576")
async def test_a_replica_moves_to_another_disk_under_load(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", partitions=2, replicas=[1, 2])
    await rig.until(lambda: len(places(rig, 1)) == 2)
    await fill(rig, 100, size=30_000)
    source = places(rig, 1)[0]
    acked: list[int] = []

    async def load() -> None:
        while places(rig, 1)[0] == source or len(acked) < 50:
            answer = await rig.produce("t", batch_of("under load"))
            assert answer.error_code == 0
            acked.append(answer.base_offset)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        assert await move(rig, other(source), 0) == [0]
        assert (other(source), 0, True) in await described(rig)
        await rig.until(lambda: places(rig, 1)[0] == other(source))
    assert acked == list(range(100, 100 + len(acked)))
    await rig.until(lambda: rig.partition(2, "t").log.log_end_offset == 100 + len(acked))
    assert content(rig.partition(1, "t")) == content(rig.partition(2, "t")), "the bytes are identical"
    found = await described(rig)
    assert (other(source), 0, False) in found and not any(is_future for _, _, is_future in found)
    ids = {Path(it.path).name: it.directory_id for it in rig.broker(1).store.directories.directories}
    assert rig.placed(2, "t").directory_of(1) == ids[other(source)], "the controller knows"
    assert sorted(rig.placed(2, "t").isr) == [1, 2], "it was in sync all the time"
    before = content(rig.partition(1, "t"))
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    assert places(rig, 1)[0] == other(source)
    assert content(rig.partition(1, "t")) == before


@pytest.mark.feature("RE-19", "FI-06")
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("point", ["written", "copied", "accepted", "caught_up", "renamed", "swapped"])
def test_a_crash_at_any_step_of_a_move_loses_nothing(point: str, power_cut: bool) -> None:
    @on_cluster(brokers=3, log__segment__bytes="1048576")
    async def story(rig: Rig) -> None:
        await with_two_directories(rig, 1)
        await rig.create("t", replicas=[1, 2])
        await rig.until(lambda: len(places(rig, 1)) == 1)
        await fill(rig, 50, size=30_000)
        source = places(rig, 1)[0]
        node = rig.cluster.node_of(1)
        rig.universe.kill_at("broker-1", f"log_dir_move.{point}", power_cut=power_cut)
        await rig.create("u", replicas=[1, 2])
        rig.nursery.start_soon(_ask_and_be_cut_off, rig, other(source))
        await node.ended.wait()
        await rig.until(lambda: rig.leader("t") == 2)
        await fill(rig, 10, size=30_000)
        rig.cluster.start("broker-1")
        await rig.cluster.wait_ready()
        await rig.until(lambda: sorted(rig.placed(2, "t").isr) == [1, 2])
        # The move goes on by itself if its future log has survived.
        await rig.until(lambda: not rig.broker(1).store.directories.futures.logs)
        ids = {Path(it.path).name: it.directory_id for it in rig.broker(1).store.directories.directories}
        await rig.until(lambda: rig.placed(2, "t").directory_of(1) == ids[places(rig, 1)[0]])
        if not power_cut:
            assert places(rig, 1)[0] == other(source)
        assert content(rig.partition(1, "t")) == content(rig.partition(2, "t"))
        assert rig.partition(2, "t").log.log_end_offset == 60
        names = {path.split("/")[3] for path, _ in rig.universe.disk("broker-1").files("/broker-1")}
        assert len([name for name in names if name == "t-0"]) == 1

    story()


async def _ask_and_be_cut_off(rig: Rig, directory: str) -> None:
    try:
        await move(rig, directory, 0)
    except ChannelError:
        pass  # the broker was killed first


@pytest.mark.feature("RE-19")
@on_cluster(brokers=3)
async def test_a_move_is_cancelled_by_a_move_back(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", replicas=[1, 2])
    await rig.until(lambda: len(places(rig, 1)) == 1)
    await fill(rig, 100, size=30_000)
    await rig.configure(BROKER, "", **{RATE.replace(".", "_"): "100000"})
    source = places(rig, 1)[0]
    assert await move(rig, other(source), 0) == [0]
    assert await move(rig, other(source), 0) == [0], "asked again, it goes on"
    await trio.sleep(2)
    moving = (await described(rig))[other(source), 0, True]
    assert 0 < moving.offset_lag < 100
    assert await move(rig, source, 0) == [0]
    assert set(await described(rig)) == {(source, 0, False)}
    await trio.sleep(40)
    assert places(rig, 1)[0] == source
    ids = {Path(it.path).name: it.directory_id for it in rig.broker(1).store.directories.directories}
    assert rig.placed(2, "t").directory_of(1) == ids[source]
    last = rig.broker(1).decisions.since(0, "t-0")[-1]
    assert last.sentence.endswith(f"stays in /broker-1/{source}: the move was cancelled")
    await rig.configure(BROKER, "", **{RATE.replace(".", "_"): "100000000"})
    assert await move(rig, other(source), 0) == [0]
    await rig.until(lambda: places(rig, 1)[0] == other(source))


@pytest.mark.feature("RE-19", "RE-20")
@on_cluster(brokers=3)
async def test_a_move_keeps_to_its_rate(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", replicas=[1, 2])
    await rig.until(lambda: len(places(rig, 1)) == 1)
    await fill(rig, 100, size=30_000)
    await rig.configure(BROKER, "", **{RATE.replace(".", "_"): "200000"})
    source = places(rig, 1)[0]
    began = trio.current_time()
    await move(rig, other(source), 0)
    await rig.until(lambda: places(rig, 1)[0] == other(source))
    assert 10 < trio.current_time() - began < 20, "3 MB at 200 kB a second"
    # Without a limit it is a matter of moments.
    await rig.configure(BROKER, "", **{RATE.replace(".", "_"): str(1 << 40)})
    began = trio.current_time()
    await move(rig, source, 0)
    await rig.until(lambda: places(rig, 1)[0] == source)
    assert trio.current_time() - began < 2


@pytest.mark.feature("RE-19", "MB-08")
@on_cluster(brokers=3)
async def test_a_topic_is_deleted_while_it_moves(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", replicas=[1, 2])
    await rig.until(lambda: len(places(rig, 1)) == 1)
    await fill(rig, 100, size=30_000)
    await rig.configure(BROKER, "", **{RATE.replace(".", "_"): "100000"})
    await move(rig, other(places(rig, 1)[0]), 0)
    await trio.sleep(1)
    await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000))
    await rig.until(lambda: rig.broker(1).partitions.find("t", 0) is None)
    assert not rig.broker(1).store.directories.futures.logs and not len(rig.broker(1).log_dir_moves)
    await rig.create("t", replicas=[1, 2])
    await fill(rig, 1)
    assert rig.partition(1, "t").log.log_end_offset == 1


@pytest.mark.feature("RE-19", "RE-18")
@on_cluster(brokers=3)
async def test_the_directory_that_takes_a_replica_fails(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", replicas=[1, 2])
    await rig.until(lambda: len(places(rig, 1)) == 1)
    await fill(rig, 100, size=30_000)
    source = places(rig, 1)[0]
    await rig.configure(BROKER, "", **{RATE.replace(".", "_"): "100000"})
    await move(rig, other(source), 0)
    await trio.sleep(1)
    rig.universe.disk("broker-1").fail("write", "sync", prefix=f"/broker-1/{other(source)}/")
    await rig.until(lambda: not len(rig.broker(1).log_dir_moves))
    await fill(rig, 1)
    assert sorted(rig.placed(2, "t").isr) == [1, 2], "the replica is where it was"
    assert await move(rig, other(source), 0) == [ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.feature("RE-19", "RE-18")
@on_cluster(brokers=3)
async def test_the_directory_of_a_moving_replica_fails(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", replicas=[1, 2])
    await rig.until(lambda: len(places(rig, 1)) == 1)
    await fill(rig, 100, size=30_000)
    source = places(rig, 1)[0]
    await rig.configure(BROKER, "", **{RATE.replace(".", "_"): "100000"})
    await move(rig, other(source), 0)
    await trio.sleep(1)
    rig.universe.disk("broker-1").fail("write", "sync", prefix=f"/broker-1/{source}/")
    assert (await rig.produce("t", node=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await rig.until(lambda: rig.leader("t") == 2 and rig.placed(2, "t").isr == (2,))
    await fill(rig, 1)
    assert not len(rig.broker(1).log_dir_moves)


@pytest.mark.feature("RE-19", "OP-06")
@on_cluster(brokers=3)
async def test_a_full_directory_holds_up_a_move(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", replicas=[1, 2])
    await rig.until(lambda: len(places(rig, 1)) == 1)
    await fill(rig, 20, size=30_000)
    source = places(rig, 1)[0]
    assert await move(rig, other(source), 0) == [0]
    target = rig.broker(1).log_dir_moves.target_of(("t", 0))
    assert target is not None
    directories = rig.broker(1).store.directories
    directories.close_for_room(target, True)
    await trio.sleep(5)
    assert places(rig, 1)[0] == source and len(rig.broker(1).log_dir_moves) == 1
    directories.close_for_room(target, False)
    await rig.until(lambda: places(rig, 1)[0] == other(source))
    assert content(rig.partition(1, "t")) == content(rig.partition(2, "t"))


@pytest.mark.feature("RE-19")
@on_cluster(brokers=3)
async def test_the_copy_of_a_follower_truncates_where_the_follower_does(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", replicas=[2, 1])
    await rig.until(lambda: len(places(rig, 1)) == 1)
    await fill(rig, 30, size=30_000)
    source = places(rig, 1)[0]
    # Held before its swap: the controller cannot record the new directory.
    rig.cluster.kill("controller-101")
    await move(rig, other(source), 0)
    future = rig.broker(1).store.directories.futures.logs["t", 0]
    await rig.until(lambda: future.log_end_offset == 30)
    partition = rig.partition(1, "t")
    partition.log.truncate_to(20)
    partition.follower.start(partition.leader_epoch)
    rig.broker(1).fetchers.metadata_changed()
    rig.cluster.start("controller-101")
    await rig.until(lambda: places(rig, 1)[0] == other(source))
    await rig.until(lambda: rig.partition(1, "t").log.log_end_offset == 30)
    assert content(rig.partition(1, "t")) == content(rig.partition(2, "t"))


@pytest.mark.feature("RE-19", "AD-05")
@on_cluster(brokers=3)
async def test_alter_replica_log_dirs_refuses_and_remembers(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("elsewhere", replicas=[2])
    for directory, topic, expected in (
        ("/nowhere", "t", ErrorCode.LOG_DIR_NOT_FOUND),
        ("/broker-1/data", "t", ErrorCode.LOG_DIR_NOT_FOUND),
        ("a", "x" * 249, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", "t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", "elsewhere", ErrorCode.REPLICA_NOT_AVAILABLE),
    ):
        assert await move(rig, directory, 0, 1, 2, topic=topic) in (
            [expected] * 3,
            [expected] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
        )
    # The replicas are created where they were asked for.
    await rig.create("t", partitions=3, replicas=[1])
    await rig.until(lambda: len(places(rig, 1)) == 3)
    assert places(rig, 1) == {0: "b", 1: "b", 2: "b"}
    assert await move(rig, "b", 0, 1, 2) == [0, 0, 0], "they are there"
    assert not len(rig.broker(1).log_dir_moves)
