"""A broker comes, goes, comes back, and loses disks: what clients and the controller see of it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from barnabas.runtime.channel import ChannelError
from barnabas.storage.partition_metadata import write_partition_metadata
from tests.broker.apis.directories import places, with_two_directories
from tests.broker.apis.rig import Rig, batch_of, on_cluster, values_in


@pytest.mark.feature("MB-05", "RE-14")
@on_cluster(brokers=3)
async def test_a_broker_that_stops_hands_over_first(rig: Rig) -> None:
    """Clients see nothing but NOT_LEADER, and find the new leader by it."""
    await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="2")
    codes: list[int] = []
    acked: list[str] = []
    stopped = trio.Event()

    async def write() -> None:
        leader, number = 1, 0
        while not (stopped.is_set() and number > 20):
            answer = await rig.produce("t", batch_of(f"{number}"), node=leader)
            codes.append(answer.error_code)
            if answer.error_code == 0:
                acked.append(f"{number}")
                number += 1
            elif answer.current_leader.leader_id > 0:
                leader = answer.current_leader.leader_id
            await trio.sleep(0.005)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await rig.until(lambda: len(acked) > 10)
        await rig.cluster.stop("broker-1")
        stopped.set()
    assert set(codes) <= {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    partition = rig.placed(2, "t")
    assert partition.leader in (2, 3) and sorted(partition.isr) == [2, 3]
    assert rig.broker(2).metadata.image.cluster.brokers[1].fenced
    # A record whose leader stopped before it was replicated is there, and was sent again.
    assert list(dict.fromkeys(values_in(await rig.fetch("t")))) == acked
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    await rig.until(lambda: sorted(rig.placed(2, "t").isr) == [1, 2, 3])


@pytest.mark.feature("MB-05", "ST-10")
@on_cluster(brokers=3)
async def test_a_broker_knows_at_its_start_whether_it_lost_anything(rig: Rig) -> None:
    disk = rig.universe.disk("broker-2")
    marker = "/broker-2/data/.kafka_cleanshutdown"
    epoch = rig.broker(2).lifecycle.broker_epoch
    await rig.cluster.stop("broker-2")
    assert f'"brokerEpoch":{epoch}' in bytes(disk.file(marker).cached).decode().replace(" ", "")
    rig.cluster.start("broker-2")
    await rig.cluster.wait_ready()
    assert disk.find(marker) is None, "a crash from now on is no clean stop"
    assert rig.broker(2).lifecycle.registration.previous_broker_epoch == epoch
    epoch = rig.broker(2).lifecycle.broker_epoch
    rig.cluster.kill("broker-2")
    await trio.sleep(1)
    rig.cluster.start("broker-2")
    await rig.cluster.wait_ready()
    assert rig.broker(2).lifecycle.registration.previous_broker_epoch == epoch, "the machine was not booted"
    rig.cluster.power_cut("broker-2")
    await trio.sleep(1)
    rig.cluster.start("broker-2")
    await rig.cluster.wait_ready()
    assert rig.broker(2).lifecycle.registration.previous_broker_epoch == -1


@pytest.mark.feature("RE-09", "FI-04")
@on_cluster(brokers=3)
async def test_killed_brokers_stay_eligible_and_one_without_power_does_not(rig: Rig) -> None:
    """Seed 910026: a broker lost power, and was in the ISR when all others were killed. One that stopped uncleanly was
    no longer eligible, so the last of them led: the one that had lost its records."""
    await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="2")
    acked = []
    for number in range(20):
        answer = await rig.produce("t", batch_of(f"{number}"), node=rig.placed(1, "t").leader)
        assert answer.error_code == 0
        acked.append(f"{number}")
    rig.cluster.power_cut("broker-1")
    for name in ("broker-2", "broker-3", "controller-101"):
        rig.cluster.kill(name)
    await trio.sleep(1)
    for name in ("controller-101", "broker-3", "broker-2", "broker-1"):
        rig.cluster.start(name)
        await trio.sleep(1)
    await rig.cluster.wait_ready()
    await rig.until(lambda: rig.placed(2, "t").leader > 0)
    assert values_in(await rig.fetch("t", node=rig.placed(2, "t").leader)) == acked


@pytest.mark.feature("MB-08", "ST-19", "MB-04")
@on_cluster(brokers=3)
async def test_logs_of_deleted_topics_are_not_served(rig: Rig) -> None:
    """While a broker is away, topics are deleted and one is created again: old bytes are moved away, not served."""
    await rig.create("gone", replicas=[1, 2])
    await rig.create("again", replicas=[1, 2])
    await rig.produce("gone", batch_of("old"))
    await rig.produce("again", batch_of("old"))
    await rig.cluster.stop("broker-2")
    for name in ("gone", "again"):
        await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
    await rig.until(lambda: not rig.broker(1).metadata.image.topics.by_name)
    topic_id = await rig.create("again", replicas=[1, 2])
    await rig.produce("again", batch_of("new"))
    rig.cluster.start("broker-2")
    await rig.cluster.wait_ready()
    await rig.until(lambda: sorted(rig.placed(1, "again").isr) == [1, 2])
    assert rig.partition(2, "again").topic_id == topic_id
    await rig.until(lambda: rig.partition(2, "again").log.high_watermark == 1)
    names = {path.split("/")[3] for path, _ in rig.universe.disk("broker-2").files("/broker-2/data")}
    assert {name.split(".")[0] for name in names if name.endswith("-stray")} == {"gone-0", "again-0"}
    assert rig.broker(2).partitions.find("gone", 0) is None


@pytest.mark.feature("ST-19")
@on_cluster(brokers=3)
async def test_a_directory_that_names_another_topic(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    await rig.produce("t", batch_of("right"))
    await rig.cluster.stop("broker-2")

    async def tamper(world: Any) -> None:
        write_partition_metadata(world.disk, "/broker-2/data/t-0", bytes(15) + b"\x09")

    await rig.universe.run_node("broker-2", tamper)
    rig.cluster.start("broker-2")
    await rig.cluster.wait_ready()
    await rig.until(lambda: sorted(rig.placed(1, "t").isr) == [1, 2])
    assert values_in(await rig.fetch("t")) == ["right"]
    names = {path.split("/")[3] for path, _ in rig.universe.disk("broker-2").files("/broker-2/data")}
    assert [name for name in names if name.startswith("t-0.") and name.endswith("-stray")]


@pytest.mark.feature("MB-18", "ST-17")
@on_cluster(brokers=3)
async def test_partitions_are_spread_over_directories_and_the_controller_knows(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", partitions=6, replicas=[1, 2])
    # A topic is announced at once, before its logs are created.
    await rig.until(lambda: len(places(rig, 1)) == 6)
    counts = list(places(rig, 1).values())
    assert (counts.count("a"), counts.count("b")) == (3, 3), "none where only the metadata log belongs"
    ids = {each.path.split("/")[2]: each.directory_id for each in rig.broker(1).store.directories.directories}

    def is_announced() -> bool:
        partitions = rig.broker(2).metadata.image.topics.by_name["t"].partitions
        return all(partitions[index].directory_of(1) == ids[name] for index, name in places(rig, 1).items())

    await rig.until(is_announced)
    described = (await rig.ask(1, DescribeLogDirsRequest(topics=None))).results
    assert {it.log_dir for it in described} == {"/broker-1/a", "/broker-1/b"}
    assert set(rig.broker(2).metadata.image.cluster.brokers[1].log_directories) == {ids["a"], ids["b"]}
    before = places(rig, 1)
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    assert places(rig, 1) == before


@pytest.mark.feature("MB-18", "ST-17")
@on_cluster(brokers=3)
async def test_replicas_that_an_older_version_placed_beside_the_metadata_log_go_on(rig: Rig) -> None:
    """They are served where they are until they are deleted; new ones do not join them."""
    await rig.create("t", replicas=[1])
    await rig.produce("t", batch_of("old"))
    await with_two_directories(rig, 1)
    assert places(rig, 1) == {0: "data"}
    assert values_in(await rig.fetch("t", node=1)) == ["old"]
    await rig.produce("t", batch_of("new"), node=1)
    assert values_in(await rig.fetch("t", node=1)) == ["old", "new"]
    assert rig.broker(2).metadata.offline_replicas(rig.placed(2, "t"), "PLAINTEXT") == []
    await rig.create("u", partitions=4, replicas=[1])
    await rig.until(lambda: all(rig.broker(1).partitions.find("u", index) for index in range(4)))
    where = [rig.partition(1, "u", index).log.directory.split("/")[2] for index in range(4)]
    assert sorted(where) == ["a", "a", "b", "b"]
    assert {it.log_dir.split("/")[2] for it in await log_dirs(rig)} == {"a", "b", "data"}
    await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000))
    await rig.until(lambda: rig.broker(1).partitions.find("t", 0) is None)
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    assert {it.log_dir.split("/")[2] for it in await log_dirs(rig)} == {"a", "b"}, "it is empty now"


async def log_dirs(rig: Rig) -> list[DescribeLogDirsResult]:
    return list((await rig.ask(1, DescribeLogDirsRequest(topics=None))).results)


@pytest.mark.feature("RE-18", "ST-17", "MB-07")
@on_cluster(brokers=3)
async def test_one_disk_fails_and_the_other_goes_on(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("t", partitions=6, replicas=[1, 2])
    for index in range(6):
        assert (await rig.produce("t", batch_of(f"{index}"), index=index)).error_code == 0
    where = places(rig, 1)
    lost = [index for index, name in where.items() if name == "a"]
    kept = [index for index, name in where.items() if name != "a"]
    assert lost and kept
    rig.universe.disk("broker-1").fail("write", "sync", prefix="/broker-1/a/")
    failed = await rig.produce("t", index=lost[0], node=1)
    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def moved() -> bool:
        image = rig.broker(2).metadata.image.topics.by_name["t"]
        return all(image.partitions[index].leader == 2 for index in lost)

    await rig.until(moved, 10)
    for index in lost:
        assert (await rig.fetch("t", index=index, node=1)).error_code in (
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        assert values_in(await rig.fetch("t", index=index, node=2)) == [f"{index}"]
        image = rig.placed(2, "t", index)
        assert image.isr == (2,)
        assert rig.broker(2).metadata.offline_replicas(image, "PLAINTEXT") == [1]
    for index in kept:
        assert (await rig.produce("t", index=index, node=1)).error_code == 0
    results = {it.log_dir: it.error_code for it in (await rig.ask(1, DescribeLogDirsRequest(topics=None))).results}
    assert results["/broker-1/a"] == ErrorCode.KAFKA_STORAGE_ERROR and results["/broker-1/b"] == 0
    assert not rig.broker(2).metadata.image.cluster.brokers[1].fenced
    # New partitions go where there is a disk.
    await rig.create("t2", partitions=2, replicas=[1, 2])
    assert (await rig.produce("t2")).error_code == 0


@pytest.mark.feature("RE-18")
@on_cluster(brokers=3)
async def test_the_last_disk_ends_the_broker(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    await rig.produce("t", batch_of("kept"))
    failures: list[BaseException] = []
    rig.cluster.on_failure = lambda name, error: failures.append(error)
    rig.universe.disk("broker-1").fail("write", "sync", prefix="/broker-1/data/t-0")
    try:
        assert (await rig.produce("t", node=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    except ChannelError:
        pass  # it ended before it could say so
    await rig.cluster.node_of(1).ended.wait()
    assert failures and "CannotRun" in repr(failures)
    await rig.until(lambda: rig.leader("t") == 2)
    assert values_in(await rig.fetch("t")) == ["kept"]


@pytest.mark.feature("MB-01", "MB-02", "MB-03", "MB-21")
@on_cluster(brokers=3)
async def test_registrations_that_the_controller_refuses(rig: Rig) -> None:
    image = rig.broker(1).metadata.image
    own = image.cluster.brokers[2]
    features = [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in own.features.items()
    ]

    async def register(**fields: Any) -> int:
        request = BrokerRegistrationRequest(
            **{
                "broker_id": 9,
                "cluster_id": rig.broker(1).metadata.cluster_id,
                "incarnation_id": bytes(range(16)),
                "features": features,
                "log_dirs": [bytes([7] * 16)],
                "rack": None,
                **fields,
            }
        )
        return int((await rig.ask(101, request)).error_code)

    assert await register(cluster_id="another") == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert await register(broker_id=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert await register(log_dirs=[]) == ErrorCode.INVALID_REGISTRATION
    assert await register(log_dirs=[bytes([7] * 16)] * 2) == ErrorCode.INVALID_REGISTRATION
    assert await register(log_dirs=[own.log_directories[0]]) == ErrorCode.INVALID_REGISTRATION
    assert await register(features=[]) == ErrorCode.INVALID_REGISTRATION
    too_old = [Feature(name="metadata.version", min_supported_version=1, max_supported_version=2)]
    assert await register(features=too_old) == ErrorCode.UNSUPPORTED_VERSION
    for broker_id, epoch, code in (
        (2, own.epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
        (77, 1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        for request in (
            BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch),
            AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch),
            AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch),
        ):
            answer = await rig.ask(101, request)
            assert answer.error_code in (code, ErrorCode.BROKER_ID_NOT_REGISTERED), (broker_id, answer)
    first = await rig.ask(101, AllocateProducerIdsRequest(broker_id=2, broker_epoch=own.epoch))
    second = await rig.ask(101, AllocateProducerIdsRequest(broker_id=2, broker_epoch=own.epoch))
    assert (first.producer_id_len, second.producer_id_start) == (1000, first.producer_id_start + 1000)
    assert await register() == 0
    await rig.until(lambda: 9 in rig.broker(1).metadata.image.cluster.brokers)
    assert rig.broker(1).metadata.image.cluster.brokers[9].fenced, "nobody serves before it has caught up"
    assert 9 not in rig.broker(1).metadata.alive_nodes("PLAINTEXT")
