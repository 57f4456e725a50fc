"""Controllers as nodes: they elect one of them, serve on a port, and take over from each other."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.kraft.metadata.image import NO_LEADER, MetadataImage
from barnabas.kraft.principals import LOOPBACK, written_principal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.broker_registration import Listener
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.runtime.channel import NotSent
from barnabas.runtime.identity import ANONYMOUS
from barnabas.settings.errors import SettingsError

THREE = (101, 102, 103)


def create(name: str, *replicas: int) -> CreateTopicsRequest:
    """A topic of one partition on these brokers."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    return CreateTopicsRequest(topics=[topic])


def describe_quorum() -> DescribeQuorumRequest:
    partition = RequestPartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])])


def fenced(image: MetadataImage) -> set[int]:
    return {broker.id for broker in image.cluster.brokers.values() if broker.fenced}


@pytest.mark.feature("MB-22", "AD-03")
def test_a_quorum_elects_begins_the_log_and_registers_its_controllers(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        leader = await client.leader()
        await client.until(lambda image: set(image.cluster.controllers) == set(THREE))
        assert client.image.features.metadata_version == 30
        assert client.image.features.elr_enabled
        assert client.image.config(4, "") == {"min.insync.replicas": "2"}
        ask = DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True)
        response = await client.ask(leader, ask)
        assert [(it.broker_id, it.host, it.port) for it in response.brokers] == [
            (node_id, f"controller-{node_id}", 9093) for node_id in THREE
        ]
        assert response.controller_id == leader
        assert response.cluster_authorized_operations > 0
        wrong = await client.ask(leader, DescribeClusterRequest(endpoint_type=1))
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        unknown = await client.ask(leader, DescribeClusterRequest(endpoint_type=9))
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        quorum_state = await client.ask(leader, describe_quorum())
        assert quorum_state.topics[0].partitions[0].leader_id == leader

    simulate(1, THREE, story)


@pytest.mark.feature("MB-22")
def test_a_controller_advertises_the_requests_that_it_serves(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        leader = await client.leader()
        who = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        versions = await client.ask(leader, who)
        served = {it.api_key for it in versions.api_keys}
        assert {1, 18, 19, 20, 29, 32, 33, 37, 43, 44, 46, 52, 53, 54, 55, 56, 57, 58, 59, 60} <= served
        assert {62, 63, 64, 67, 70, 73} <= served
        assert not {0, 3, 10} & served, "a controller serves no records and no groups"
        assert {it.name: it.max_version_level for it in versions.finalized_features} == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "transaction.version": 2,
            "share.version": 1,
            "streams.version": 1,
        }
        assert ("eligible.leader.replicas.version", 0, 1) in [
            (it.name, it.min_version, it.max_version) for it in versions.supported_features
        ]
        nameless = await client.ask(leader, ApiVersionsRequest())
        assert nameless.error_code == ErrorCode.INVALID_REQUEST
        assert (await client.ask(leader, DescribeAclsRequest())).error_code == ErrorCode.SECURITY_DISABLED
        created = await client.ask(leader, CreateAclsRequest(creations=[AclCreation()] * 2))
        assert [it.error_code for it in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        deleted = await client.ask(leader, DeleteAclsRequest(filters=[DeleteAclsFilter()]))
        assert deleted.filter_results[0].error_code == ErrorCode.SECURITY_DISABLED
        listed = await client.ask(leader, ListPartitionReassignmentsRequest(topics=None))
        assert (listed.error_code, listed.topics) == (0, [])

    simulate(2, (101,), story)


@pytest.mark.feature("MB-02", "MB-12", "KR-16")
def test_a_broker_process_that_dies_is_fenced_long_before_its_session_ends(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        for broker_id in (1, 2, 3):
            await quorum.add_broker(broker_id)
        created = await client.active(create("t", 2, 1, 3))
        assert created.topics[0].error_code == 0
        quorum.kill_broker(2)
        seconds = await client.until(lambda image: fenced(image) == {2})
        assert seconds < 0.1
        partition = client.image.topics.by_name["t"].partitions[0]
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 3), 1)
        began = trio.current_time()
        await quorum.add_broker(2)
        assert trio.current_time() - began < 1, "the id of a dead process is free at once"

    simulate(3, THREE, story)


@pytest.mark.feature("MB-02")
def test_a_broker_that_falls_silent_while_it_lives_keeps_its_whole_session(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        broker = await quorum.add_broker(1)
        await client.until(lambda image: 1 in image.cluster.brokers and not fenced(image))
        broker.pause = True
        began = trio.current_time()
        await client.until(lambda image: fenced(image) == {1})
        assert 8 < trio.current_time() - began < 10.5
        broker.pause = False
        await client.until(lambda image: fenced(image) == set())

    simulate(4, (101,), story)


@pytest.mark.feature("KR-16", "MB-02")
def test_another_controller_takes_over_and_looks_for_brokers_that_died_meanwhile(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        for broker_id in (1, 2, 3):
            await quorum.add_broker(broker_id)
        assert (await client.active(create("before", 1, 2, 3))).topics[0].error_code == 0
        first = await client.leader()
        quorum.kill(first)
        quorum.kill_broker(1)
        seconds = await client.until(lambda image: fenced(image) == {1})
        assert seconds < 4, "the new active controller dials every broker once"
        assert (await client.active(create("after", 2, 3))).topics[0].error_code == 0
        await client.until(lambda image: "after" in image.topics.by_name)
        assert client.image.topics.by_name["before"].partitions[0].leader == 2
        assert await client.leader() != first
        await quorum.start(first)
        refused = await client.ask(first, create("elsewhere", 2, 3))
        assert refused.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        refused = await client.ask(first, ListPartitionReassignmentsRequest(topics=None))
        assert refused.error_code == ErrorCode.NOT_CONTROLLER

    simulate(5, THREE, story)


@pytest.mark.feature("KR-16", "MB-02")
def test_a_listener_that_is_for_others_does_not_prove_a_broker_dead(simulate: Any) -> None:
    """The address that clients on a container's host dial, 127.0.0.1, is the controller itself when a controller dials
    it."""

    async def story(quorum: Any, client: Any) -> None:
        own_host = Listener(name="HOST", host="127.0.0.1", port=9093)
        elsewhere = Listener(name="ELSEWHERE", host="client", port=19092)
        for broker_id in (1, 2):
            await quorum.add_broker(broker_id, own_host, elsewhere)
        first = await client.leader()
        quorum.kill(first)
        while await client.leader() == first:
            await trio.sleep(0.1)
        with trio.move_on_after(2):
            await client.until(lambda image: fenced(image) != set())
        assert fenced(client.image) == set()
        quorum.kill_broker(2)
        assert await client.until(lambda image: fenced(image) == {2}) < 0.1, "now its own refuses, too"

    simulate(6, THREE, story)


@pytest.mark.feature("MB-22")
def test_brokers_forward_requests_in_envelopes(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        active = await client.leader()
        code, answer = await client.enveloped(active, create("t", 1))
        assert (code, answer.topics[0].error_code) == (0, 0)
        code, answer = await client.enveloped(active, create("t", 1))
        assert (code, answer.topics[0].error_code) == (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        code, answer = await client.enveloped(active, describe_quorum())
        assert (code, answer.topics[0].partitions[0].leader_id) == (0, active)
        standby = next(it for it in THREE if it != active)
        for request in (create("u", 1), ListPartitionReassignmentsRequest(topics=None)):
            code, answer = await client.enveloped(standby, request)
            assert (code, answer) == (ErrorCode.NOT_CONTROLLER, None), "the broker looks elsewhere by itself"
        code, answer = await client.enveloped(active, FetchRequest())
        assert (code, answer) == (ErrorCode.INVALID_REQUEST, None), "nobody forwards a fetch"

    simulate(6, THREE, story)


@pytest.mark.feature("MB-22")
def test_a_broken_request_in_an_envelope_harms_no_other(simulate: Any) -> None:
    from barnabas.protocol.messages.envelope import EnvelopeRequest

    async def story(quorum: Any, client: Any) -> None:
        active = await client.leader()
        for data in (b"", b"\0" * 7, b"\0\x13\0\x07\0\0\0\x01\xff\xff\0" + b"\xff" * 30):
            answer = await client.ask(
                active,
                EnvelopeRequest(
                    request_data=data, request_principal=written_principal(ANONYMOUS), client_host_address=LOOPBACK
                ),
            )
            assert (answer.error_code, answer.response_data) == (ErrorCode.INVALID_REQUEST, None)
        assert await client.leader() == active

    simulate(7, (101,), story)


@pytest.mark.feature("AD-02")
def test_a_controller_describes_configs_of_topics_and_its_own(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        await client.active(create("t", 1))
        change = AlterableConfig(name="retention.ms", config_operation=0, value="5000")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        await client.active(IncrementalAlterConfigsRequest(resources=[resource]))
        asked = [
            DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"]),
            DescribeConfigsResource(resource_type=2, resource_name="u", configuration_keys=None),
            DescribeConfigsResource(resource_type=4, resource_name="101", configuration_keys=["node.id"]),
            DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None),
            DescribeConfigsResource(resource_type=4, resource_name="7", configuration_keys=None),
            DescribeConfigsResource(resource_type=8, resource_name="101", configuration_keys=None),
        ]
        answer = await client.active(DescribeConfigsRequest(resources=asked, include_synonyms=True))
        topic, nowhere, own, every, other, loggers = answer.results
        assert [(it.name, it.value, it.config_source) for it in topic.configs] == [("retention.ms", "5000", 1)]
        assert topic.configs[0].synonyms[0].value == "5000"
        assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(it.name, it.value) for it in own.configs] == [("node.id", "101")]
        assert [(it.name, it.value) for it in every.configs] == [("min.insync.replicas", "2")]
        assert other.error_code == loggers.error_code == ErrorCode.INVALID_REQUEST

    simulate(8, (101,), story)


@pytest.mark.feature("KR-16")
def test_answered_changes_survive_the_kill_of_the_whole_quorum(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        for index in range(30):
            assert (await client.active(create(f"t{index}", 1))).topics[0].error_code == 0
        quorum.kill_broker(1)
        for node_id in THREE:
            quorum.power_cut(node_id)
        async with trio.open_nursery() as nursery:
            for node_id in THREE:
                nursery.start_soon(quorum.start, node_id)
        await client.leader()
        await client.until(lambda image: fenced(image) == {1})
        assert set(client.image.topics.by_name) == {f"t{index}" for index in range(30)}
        assert all(it.partitions[0].leader == NO_LEADER for it in client.image.topics.by_name.values())

    simulate(9, THREE, story)


@pytest.mark.feature("MB-06")
def test_controllers_write_snapshots_and_start_from_them(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        small = {"metadata_log_max_record_bytes_between_snapshots": "3000"}
        quorum.running[101].set()
        while 101 in quorum.running:
            await trio.sleep(0.01)
        await quorum.start(101, **small)
        await quorum.add_broker(1)
        for index in range(40):
            await client.active(create(f"t{index}", 1))
        written = [it for it in quorum.files(101) if "__cluster_metadata-0" in it and it.endswith(".checkpoint")]
        assert written, "a snapshot was written"
        quorum.kill(101)
        await quorum.start(101, **small)
        assert (await client.active(create("t0", 1))).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await client.active(create("t40", 1))).topics[0].error_code == 0

    simulate(10, (101,), story)


def test_a_controller_stops_in_good_order(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        first = await client.leader()
        began = trio.current_time()
        quorum.running[first].set()
        while first in quorum.running:
            await trio.sleep(0.005)
        assert trio.current_time() - began < 2
        while await client.leader() == first:
            await trio.sleep(0.01)
        assert trio.current_time() - began < 2, "a leader that resigns is replaced at once"
        with pytest.raises(NotSent):
            await client.ask(first, describe_quorum())

    simulate(11, THREE, story)


def test_directories_that_are_not_this_nodes_are_refused(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        quorum.ids = (101, 102)
        with pytest.raises((SettingsError, BaseExceptionGroup)) as refused:
            await quorum.start(102, formatted=False)
        assert "not formatted" in str(refused.value)

    simulate(12, (101,), story)
