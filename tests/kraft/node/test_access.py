"""Controllers with an authorizer: what a client may not do is refused as Kafka refuses it, and found in `why`."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.runtime.identity import Principal
from barnabas.runtime.simulated.work import WorkCounter
from barnabas.settings.authorization import STANDARD_AUTHORIZER
from tests.kraft.node.test_long_decisions import MOST_CALLS

BOB = Principal("bob")
GUARDED = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:root;User:ANONYMOUS"}
THREE = (101, 102, 103)
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def acl(
    operation: AclOperation,
    name: str,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    *,
    resource_type: int = AclResourceType.TOPIC,
    pattern: int = PatternType.LITERAL,
) -> AclCreation:
    return AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal="User:bob",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=it, num_partitions=1, replication_factor=1) for it in names])


ANY: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ANY_ACL, EVERYTHING = DescribeAclsRequest(**ANY), DeleteAclsFilter(**ANY)


async def granted(client: Any, *acls: AclCreation) -> None:
    """Create ACLs, as a super user."""
    count = len(client.image.others.acls)
    answer = await client.active(CreateAclsRequest(creations=list(acls)))
    assert [(it.error_code, it.error_message) for it in answer.results] == [(0, None)] * len(acls)
    await client.until(lambda image: len(image.others.acls) > count)


@pytest.mark.feature("SE-08", "SE-09", "MB-22")
def test_a_client_creates_and_deletes_the_topics_that_it_may(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        leader = await client.leader()
        await granted(
            client,
            acl(AclOperation.CREATE, "bob-", pattern=PatternType.PREFIXED),
            acl(AclOperation.DESCRIBE, "seen"),
            acl(AclOperation.DELETE, "bob-1"),
            acl(AclOperation.DESCRIBE_CONFIGS, "bob-2"),
        )
        await client.active(create("seen", "hidden"))

        _, answer = await client.enveloped(leader, create("bob-1", "bob-2", "other"), principal=BOB)
        by_name = {it.name: it for it in answer.topics}
        assert {name: it.error_code for name, it in by_name.items()} == {"bob-1": 0, "bob-2": 0, "other": TOPIC_DENIED}
        assert by_name["other"].error_message == "Authorization failed."
        hidden, shown = by_name["bob-1"], by_name["bob-2"]
        assert (hidden.topic_config_error_code, hidden.num_partitions, hidden.configs) == (TOPIC_DENIED, -1, None)
        assert (shown.topic_config_error_code, shown.num_partitions) == (0, 1)
        assert shown.configs
        await client.until(lambda image: {"bob-1", "bob-2"} <= set(image.topics.by_name))
        assert "other" not in client.image.topics.by_name

        ids = {name: topic.id for name, topic in client.image.topics.by_name.items()}
        named = [DeleteTopicState(name=it) for it in ("bob-1", "seen", "hidden", "gone", "seen-not")]
        by_id = [DeleteTopicState(topic_id=ids["bob-2"])]
        _, answer = await client.enveloped(leader, DeleteTopicsRequest(topics=[*named, *by_id]), principal=BOB)
        assert {it.name: it.error_code for it in answer.responses} == {
            "bob-1": 0,
            "seen": TOPIC_DENIED,
            "hidden": TOPIC_DENIED,
            "gone": TOPIC_DENIED,
            "seen-not": TOPIC_DENIED,
            None: TOPIC_DENIED,
        }, "a hidden topic looks like none, and one that was named by id keeps its name"
        await client.until(lambda image: "bob-1" not in image.topics.by_name)
        assert {"seen", "hidden", "bob-2"} <= set(client.image.topics.by_name)

    simulate(11, THREE, story, **GUARDED)


@pytest.mark.feature("SE-08", "SE-09")
def test_rights_are_checked_for_each_topic_and_each_resource_of_configs(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        leader = await client.leader()
        await client.active(create("mine", "other"))
        await granted(client, acl(AclOperation.ALTER, "mine"), acl(AclOperation.ALTER_CONFIGS, "mine"))

        more = [CreatePartitionsTopic(name=it, count=2, assignments=None) for it in ("mine", "other")]
        _, answer = await client.enveloped(leader, CreatePartitionsRequest(topics=more), principal=BOB)
        assert {it.name: it.error_code for it in answer.results} == {"mine": 0, "other": TOPIC_DENIED}

        change = AlterableConfig(name="retention.ms", value="1000")
        resources = [(2, "mine"), (2, "other"), (4, "1")]
        altered = [
            AlterConfigsResource(resource_type=kind, resource_name=it, configs=[change]) for kind, it in resources
        ]
        _, answer = await client.enveloped(leader, IncrementalAlterConfigsRequest(resources=altered), principal=BOB)
        found = {it.resource_name: (it.error_code, it.error_message) for it in answer.responses}
        assert found["mine"][0] == 0
        assert found["other"] == (TOPIC_DENIED, "Topic authorization failed.")
        assert found["1"] == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        await client.until(lambda image: image.config(2, "mine") == {"retention.ms": "1000"})
        assert not client.image.config(2, "other")

        asked = [DescribeConfigsResource(resource_type=kind, resource_name=it) for kind, it in resources]
        _, answer = await client.enveloped(leader, DescribeConfigsRequest(resources=asked), principal=BOB)
        found = {it.resource_name: (it.error_code, len(it.configs) > 0) for it in answer.results}
        assert found["mine"] == (0, True), "ALTER_CONFIGS implies DESCRIBE_CONFIGS"
        assert found["other"] == (TOPIC_DENIED, False)
        assert found["1"] == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False)

    simulate(12, THREE, story, **GUARDED)


@pytest.mark.feature("SE-08", "AD-07")
def test_only_those_who_may_alter_the_cluster_alters_acls(simulate: Any) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    async def story(quorum: Any, client: Any) -> None:
        leader = await client.leader()
        mine = CreateAclsRequest(creations=[acl(AclOperation.ALL, "kafka-cluster", resource_type=4)])
        _, answer = await client.enveloped(leader, mine, principal=BOB)
        assert [it.error_code for it in answer.results] == [denied]
        _, answer = await client.enveloped(leader, ANY_ACL, principal=BOB)
        assert (answer.error_code, answer.resources) == (denied, [])
        _, answer = await client.enveloped(leader, ElectLeadersRequest(), principal=BOB)
        assert answer.error_code == denied

        await granted(client, *mine.creations)
        # Every controller follows, so that the next leader knows the ACLs, too.
        for node_id in THREE:
            with trio.fail_after(10):
                while True:
                    answer = await client.ask(node_id, ANY_ACL)
                    if answer.resources:
                        break
                    await trio.sleep(0.01)
        [resource] = answer.resources
        assert (resource.resource_type, resource.resource_name) == (AclResourceType.CLUSTER, "kafka-cluster")
        [found] = resource.acls
        assert (found.principal, found.host, found.operation) == ("User:bob", "*", AclOperation.ALL)

        _, answer = await client.enveloped(leader, DeleteAclsRequest(filters=[EVERYTHING]), principal=BOB)
        assert [len(it.matching_acls) for it in answer.filter_results] == [1]
        await client.until(lambda image: not image.others.acls)
        _, answer = await client.enveloped(leader, mine, principal=BOB)
        assert [it.error_code for it in answer.results] == [denied], "the right is gone with its ACL"

    simulate(13, THREE, story, **GUARDED)


@pytest.mark.feature("SE-08")
def test_a_restarted_controller_knows_the_acls_before_it_decides(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        await granted(client, acl(AclOperation.CREATE, "*"), acl(AclOperation.CREATE, "x", AclPermissionType.DENY))
        leader = await client.leader()
        quorum.power_cut(leader)
        await trio.sleep(1)
        await quorum.start(leader, formatted=False, **GUARDED)
        for node_id in THREE:
            quorum.kill(node_id)
            await quorum.start(node_id, formatted=False, **GUARDED)
            active = await client.leader()
            _, answer = await client.enveloped(active, create("x", f"y-{node_id}"), principal=BOB)
            assert {it.name: it.error_code for it in answer.topics} == {"x": TOPIC_DENIED, f"y-{node_id}": 0}

    simulate(14, THREE, story, **GUARDED)


@pytest.mark.feature("SE-08", "SE-09")
def test_nodes_need_cluster_action(simulate: Any) -> None:
    """Nobody is a super user: one controller leads alone, and knows that there are no ACLs, so that all is allowed.
    Then an ACL reserves the cluster for somebody else."""

    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        reserved = acl(AclOperation.CLUSTER_ACTION, "kafka-cluster", resource_type=4)
        created = await client.active(CreateAclsRequest(creations=[reserved]))
        assert [it.error_code for it in created.results] == [0]
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await client.enveloped(101, create("t")) == (denied, None)
        assert (await client.ask(101, BrokerHeartbeatRequest(broker_id=1))).error_code == denied
        assert (await client.ask(101, FetchRequest())).error_code == denied
        assert (await client.ask(101, ANY_ACL)).error_code == denied

    simulate(15, (101,), story, authorizer_class_name=STANDARD_AUTHORIZER, allow_everyone_if_no_acl_found="true")


@pytest.mark.feature("SE-08", "MB-22")
def test_a_forwarded_request_is_judged_by_the_address_of_its_client(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await quorum.add_broker(1)
        here, elsewhere = acl(AclOperation.CREATE, "here"), acl(AclOperation.CREATE, "elsewhere")
        here.host, elsewhere.host = "127.0.0.1", "10.0.0.1"
        await granted(client, here, elsewhere)
        # The envelope names the address 127.0.0.1; it comes from the host `client`.
        _, answer = await client.enveloped(await client.leader(), create("here", "elsewhere"), principal=BOB)
        assert {it.name: it.error_code for it in answer.topics} == {"here": 0, "elsewhere": TOPIC_DENIED}

    simulate(18, THREE, story, **GUARDED)


@pytest.mark.feature("SE-08", "MB-16")
def test_ten_thousand_acls_are_created_described_and_deleted_in_short_steps(simulate: Any) -> None:
    longest: dict[str, int] = {}

    def took(name: str, calls: int) -> None:
        longest[name] = max(longest.get(name, 0), calls)

    async def story(quorum: Any, client: Any) -> None:
        quorum.kill(101)
        quorum.universe.count_work = WorkCounter(took)
        await quorum.start(101, formatted=False, **GUARDED)
        many = [acl(AclOperation.READ, f"topic-{number}") for number in range(10_000)]
        created = await client.active(CreateAclsRequest(creations=many))
        assert {it.error_code for it in created.results} == {0}
        await client.until(lambda image: len(image.others.acls) == 10_000)
        described = await client.active(ANY_ACL)
        assert len(described.resources) == 10_000
        deleted = await client.active(DeleteAclsRequest(filters=[EVERYTHING]))
        assert [len(it.matching_acls) for it in deleted.filter_results] == [10_000]
        await client.until(lambda image: not image.others.acls)
        assert {"CreateAcls", "DescribeAcls", "DeleteAcls"} <= longest.keys()
        assert max(longest.values()) <= MOST_CALLS, longest

        _, refused = await client.enveloped(101, CreateAclsRequest(creations=many), principal=BOB)
        assert {it.error_code for it in refused.results} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        _, refused = await client.enveloped(101, create(*(f"t{number}" for number in range(2000))), principal=BOB)
        assert {it.error_code for it in refused.topics} == {TOPIC_DENIED}
        assert max(longest.values()) <= MOST_CALLS, longest

    simulate(16, (101,), story, **GUARDED)


@pytest.mark.feature("SE-08")
def test_one_controller_may_wait_for_its_acls_before_it_listens(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        assert await client.leader() == 101
        await granted(client, acl(AclOperation.CREATE, "t"))
        quorum.kill(101)
        await quorum.start(101, formatted=False, **late)
        assert len((await client.active(ANY_ACL)).resources) == 1

    late = {**GUARDED, "early_start_listeners": ""}
    simulate(17, (101,), story, **late)
