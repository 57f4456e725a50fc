"""Cordoned log directories: they keep what they have and get nothing new (KIP-1066)."""

from __future__ import annotations

import pytest

from barnabas.broker.cordoned_directories import cordoned_paths, refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.apis.directories import places, with_two_directories
from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.apis.test_log_dir_moves import move

pytestmark = pytest.mark.feature("AD-06", "MB-18")
BROKER = 4


async def cordon(rig: Rig, value: str, node: int = 1, through: int | None = None) -> tuple[int, str | None]:
    """Set the cordoned directories of broker `node`, by a request to `through`."""
    change = AlterableConfig(name="cordoned.log.dirs", value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(node), configs=[change])
    response = await rig.ask(through or node, IncrementalAlterConfigsRequest(resources=[resource]))
    return response.responses[0].error_code, response.responses[0].error_message


async def cordoned(rig: Rig, version: int = 5) -> dict[str, bool]:
    response = await rig.ask(1, DescribeLogDirsRequest(topics=None), version)
    return {result.log_dir: result.is_cordoned for result in response.results}


@on_cluster(brokers=3)
async def test_a_cordoned_directory_gets_no_new_replicas(rig: Rig) -> None:
    await with_two_directories(rig, 1)
    await rig.create("old", partitions=2, replicas=[1])
    assert await cordon(rig, "/broker-1/a") == (0, None)
    ids = {it.path: it.directory_id for it in rig.broker(1).store.directories.directories}
    await rig.until(
        lambda: rig.broker(2).metadata.image.cluster.brokers[1].cordoned_log_directories == (ids["/broker-1/a"],)
    )
    assert await cordoned(rig) == {"/broker-1/a": True, "/broker-1/b": False}
    assert await cordoned(rig, 4) == {"/broker-1/a": False, "/broker-1/b": False}, "older clients are not shown it"
    await rig.create("t", partitions=5, replicas=[1])
    await rig.until(lambda: len(places(rig, 1)) == 5)
    assert set(places(rig, 1).values()) == {"b"}
    assert await move(rig, "a", 0) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    # Restarted, it reports them again; removed, the directory takes replicas.
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    await rig.until(lambda: rig.broker(2).metadata.image.cluster.brokers[1].cordoned_log_directories != ())
    assert await cordon(rig, "") == (0, None)
    await rig.until(lambda: rig.broker(2).metadata.image.cluster.brokers[1].cordoned_log_directories == ())
    assert await move(rig, "a", 0) == [0]
    await rig.until(lambda: places(rig, 1)[0] == "a")


@on_cluster(brokers=3)
async def test_a_broker_with_all_directories_cordoned_gets_no_replicas(rig: Rig) -> None:
    assert await cordon(rig, "*") == (0, None)
    await rig.until(lambda: rig.broker(2).metadata.image.cluster.brokers[1].cordoned_log_directories != ())
    for number in range(5):
        await rig.create(f"t{number}", replicas=2)
        assert sorted(rig.placed(2, f"t{number}").replicas) == [2, 3]
    topic = CreatableTopic(name="wide", num_partitions=1, replication_factor=3)
    answer = await rig.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


@on_cluster()
async def test_a_broker_refuses_to_cordon_directories_that_it_does_not_have(rig: Rig) -> None:
    code, message = await cordon(rig, "/elsewhere")
    assert code == ErrorCode.INVALID_REQUEST and message is not None and "/elsewhere" in message
    code, _ = await cordon(rig, "*,/broker-1/data")
    assert code == ErrorCode.INVALID_REQUEST


@on_cluster()
async def test_a_controller_itself_only_takes_directories_off_the_list(rig: Rig) -> None:
    code, message = await cordon(rig, "*", through=101)
    assert code == ErrorCode.INVALID_CONFIG and message is not None and "must be a subset" in message
    assert await cordon(rig, "*") == (0, None)
    assert await cordon(rig, "*", through=101) == (0, None)
    assert await cordon(rig, "", through=101) == (0, None)


def test_names_of_directories() -> None:
    assert cordoned_paths(["*"], ["/a", "/b"]) == {"/a", "/b"}
    assert cordoned_paths(["/b", "/c"], ["/a", "/b"]) == {"/b"}
    assert refusal(["/a"], ["/a"]) is None and refusal(["*"], []) is None
    assert refusal(["/c"], ["/a"]) is not None and refusal(["*", "/a"], ["/a"]) is not None
