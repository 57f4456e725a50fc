"""An administrator that is cancelled, at whatever point, works on and leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.client.admin import (
    AbortTransactionSpec,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclResourceType,
    Admin,
    ClientQuotaEntity,
    ConfigResource,
    ElectionType,
    FeatureUpdate,
    NewTopic,
    OffsetSpec,
    ResourceType,
    ScramMechanism,
    TopicPartitionReplica,
    UserScramCredentialDeletion,
)
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import delete_groups
from barnabas.runtime.simulated import Universe
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.client.admin.scripted_cluster import ScriptedCluster
from tests.barnabas.client.admin.stories import NO_SUCH_ID
from tests.barnabas.client.cancel_points import (
    Scene,
    cancel_each_life,
    cancel_in_a_row,
    nothing_is_left,
    tasks_of,
)

pytestmark = pytest.mark.feature("CL-04", "CL-02")

OURS = ("/barnabas/client/",)
"""Nodes have channels, too."""
TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)


def calls(admin: Admin) -> list[Callable[[], Awaitable[object]]]:
    """Every public coroutine."""
    topic, group = ConfigResource(ResourceType.TOPIC, TOPIC), "g"
    binding = AclBinding(AclResourceType.TOPIC, TOPIC, "User:a", AclOperation.READ)
    replica = TopicPartitionReplica(TOPIC, 0, 1)
    password = UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)
    return [
        lambda: admin.create_topics(NewTopic("new", 1, 3)),
        lambda: admin.delete_topics("new"),
        lambda: admin.create_partitions({TOPIC: 2}),
        admin.list_topics,
        lambda: admin.describe_topics(TOPIC),
        lambda: admin.list_offsets({PARTITION: OffsetSpec.latest()}),
        lambda: admin.delete_records({PARTITION: -1}),
        lambda: admin.elect_leaders(ElectionType.PREFERRED, PARTITION),
        lambda: admin.alter_partition_reassignments({PARTITION: None}),
        admin.list_partition_reassignments,
        lambda: admin.describe_configs(topic),
        lambda: admin.incremental_alter_configs({topic: {"retention.ms": "1000000"}}),
        lambda: admin.alter_configs({topic: {"retention.ms": "1000000"}}),
        admin.list_config_resources,
        admin.list_client_metrics_resources,
        admin.describe_cluster,
        admin.describe_metadata_quorum,
        admin.describe_features,
        lambda: admin.update_features({"metadata.version": FeatureUpdate(30)}, validate_only=True),
        lambda: admin.api_versions(1),
        lambda: admin.unregister_broker(77),
        admin.describe_log_dirs,
        lambda: admin.describe_replica_log_dirs([replica]),
        lambda: admin.alter_replica_log_dirs({replica: "/nowhere"}),
        lambda: admin.add_raft_voter(104, NO_SUCH_ID, []),
        lambda: admin.remove_raft_voter(104, NO_SUCH_ID),
        admin.list_groups,
        admin.list_consumer_groups,
        lambda: admin.describe_consumer_groups(group),
        lambda: admin.describe_classic_groups(group),
        lambda: admin.describe_share_groups(group),
        lambda: admin.describe_streams_groups(group),
        lambda: admin.remove_members_from_consumer_group(group, ["i"]),
        lambda: admin.alter_consumer_group_offsets(group, {PARTITION: 0}),
        lambda: admin.list_consumer_group_offsets(group),
        lambda: admin.delete_consumer_group_offsets(group, PARTITION),
        lambda: admin.delete_groups(group),
        lambda: admin.list_share_group_offsets(group),
        lambda: admin.alter_share_group_offsets(group, {PARTITION: 0}),
        lambda: admin.delete_share_group_offsets(group, TOPIC),
        admin.list_transactions,
        lambda: admin.describe_transactions("x"),
        lambda: admin.describe_producers(PARTITION),
        lambda: admin.abort_transaction(AbortTransactionSpec(PARTITION, 1, 0, 0)),
        lambda: admin.fence_producers("x"),
        lambda: admin.force_terminate_transaction("x"),
        admin.describe_acls,
        lambda: admin.create_acls(binding),
        lambda: admin.delete_acls(AclBindingFilter()),
        admin.create_delegation_token,
        lambda: admin.renew_delegation_token(b"hmac"),
        lambda: admin.expire_delegation_token(b"hmac"),
        admin.describe_delegation_token,
        admin.describe_user_scram_credentials,
        lambda: admin.alter_user_scram_credentials([password]),
        admin.describe_client_quotas,
        lambda: admin.alter_client_quotas({ClientQuotaEntity.of(user="u"): {}}),
    ]


def test_every_call_can_be_cancelled_at_each_of_its_checkpoints() -> None:
    simulated = SimulatedClusterForTests()

    async def test() -> None:
        before = tasks_of(OURS)
        async with Admin(bootstrap_servers=simulated.bootstrap_servers, world=simulated.world) as admin:
            await admin.create_topics(NewTopic(TOPIC, 1, 3))
            for call in calls(admin):

                async def act(call: Callable[[], Awaitable[object]] = call) -> None:
                    try:
                        await call()
                    except KafkaError:
                        # Nothing that could be refused is of interest here.
                        pass

                async def afterwards() -> None:
                    assert TOPIC in await admin.list_topics()

                await cancel_in_a_row(act, afterwards)
        await nothing_is_left(OURS, before)

    simulated.run(test)


SAME = {"delete_consumer_groups", "delete_share_groups", "client_instance_id"}
"""Other names of `delete_groups`, and a call that fails at once by default: this client pushes no metrics."""


def test_nothing_public_is_left_out() -> None:
    admin = Admin(bootstrap_servers="a:1")
    public = {name for name in dir(admin) if not name.startswith("_")} - {"over", "settings"} - SAME
    named = {name for call in calls(admin) for name in (getattr(call, "__name__", ""), *call.__code__.co_names)}
    assert public <= named


@asynccontextmanager
async def three_brokers(universe: Universe) -> AsyncIterator[ScriptedCluster]:
    scripted = ScriptedCluster(universe)
    scripted.coordinators = {"g": 2}
    scripted.answers[ApiKey.DELETE_GROUPS] = lambda broker, request: delete_groups.DeleteGroupsResponse(
        results=[delete_groups.DeletableGroupResult(group_id="g")]
    )
    async with trio.open_nursery() as nursery:
        for broker in (1, 2, 3):
            scripted.start(nursery, broker)
        await trio.sleep(0.1)
        yield scripted
        nursery.cancel_scope.cancel()


def test_its_life_can_be_cancelled_at_each_checkpoint() -> None:
    async def act(admin: Admin) -> None:
        await admin.delete_groups("g")

    assert (
        cancel_each_life(
            Scene(three_brokers, lambda it: Admin(bootstrap_servers="b1:9092,b2:9092", world=it.client), act, act)
        )
        > 3
    )
