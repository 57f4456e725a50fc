"""The number of things that a request names, beside a plain count of them, and the limit of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.kraft.controller import request_limits
from barnabas.kraft.controller.request_limits import COUNTED_PER_ITEM, MAX_LISTED, count_named
from barnabas.kraft.controller.state import STEP_ITEMS, Pace
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.messages.controller_registration import Feature as ControllerFeature
from barnabas.protocol.schema import Message
from tests.kraft.controller.conftest import finish

MOST = 12
Made = tuple[Message, int]
"""A request, and how many things it names."""


def wholes(items: list[int]) -> int:
    """An item without parts counts as one."""
    return sum(max(1, it) for it in items)


def topics_to_create(parts: list[int]) -> Made:
    topics = [create_topics.CreatableTopic(configs=[create_topics.CreatableTopicConfig()] * it) for it in parts]
    return create_topics.CreateTopicsRequest(topics=topics), sum(parts) + len(parts)


def topics_to_delete(parts: list[int]) -> Made:
    wanted = [delete_topics.DeleteTopicState()] * len(parts)
    names = ["t"] * sum(parts)
    return delete_topics.DeleteTopicsRequest(topics=wanted, topic_names=names), sum(parts) + len(parts)


def elections(parts: list[int]) -> Made:
    topics = [elect_leaders.TopicPartitions(partitions=[0] * it) for it in parts]
    return elect_leaders.ElectLeadersRequest(topic_partitions=topics), wholes(parts)


def reassignments(parts: list[int]) -> Made:
    partition = alter_partition_reassignments.ReassignablePartition()
    topics = [alter_partition_reassignments.ReassignableTopic(partitions=[partition] * it) for it in parts]
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics), wholes(parts)


def configs(parts: list[int]) -> Made:
    resources = [alter_configs.AlterConfigsResource(configs=[alter_configs.AlterableConfig()] * it) for it in parts]
    return alter_configs.AlterConfigsRequest(resources=resources), wholes(parts)


def config_changes(parts: list[int]) -> Made:
    module = incremental_alter_configs
    resources = [module.AlterConfigsResource(configs=[module.AlterableConfig()] * it) for it in parts]
    return module.IncrementalAlterConfigsRequest(resources=resources), wholes(parts)


def credentials(parts: list[int]) -> Made:
    module = alter_user_scram_credentials
    request = module.AlterUserScramCredentialsRequest(
        deletions=[module.ScramCredentialDeletion()] * sum(parts),
        upsertions=[module.ScramCredentialUpsertion()] * len(parts),
    )
    return request, sum(parts) + len(parts)


def quotas(parts: list[int]) -> Made:
    module = alter_client_quotas
    entries = [
        module.RequestEntryData(ops=[module.OpData()] * it, entity=[module.EntityData()] * (place % 3))
        for place, it in enumerate(parts)
    ]
    return module.AlterClientQuotasRequest(entries=entries), sum(
        max(1, it, place % 3) for place, it in enumerate(parts)
    )


NAMING: dict[str, Callable[[list[int]], Made]] = {
    "topics, partitions or configs (created)": topics_to_create,
    "topics, partitions or configs (deleted)": topics_to_delete,
    "topics, partitions or configs (elected)": elections,
    "topics, partitions or configs (reassigned)": reassignments,
    "topics, partitions or configs (configs)": configs,
    "topics, partitions or configs (changes)": config_changes,
    "topics, partitions or configs (grown)": lambda parts: (
        create_partitions.CreatePartitionsRequest(topics=[create_partitions.CreatePartitionsTopic()] * len(parts)),
        len(parts),
    ),
    "topics, partitions or configs (ACLs)": lambda parts: (
        create_acls.CreateAclsRequest(creations=[create_acls.AclCreation()] * len(parts)),
        len(parts),
    ),
    "topics, partitions or configs (filters)": lambda parts: (
        delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter()] * len(parts)),
        len(parts),
    ),
    "credentials": credentials,
    "quotas": quotas,
    "renewers": lambda parts: (
        create_delegation_token.CreateDelegationTokenRequest(
            renewers=[create_delegation_token.CreatableRenewers()] * len(parts)
        ),
        len(parts),
    ),
}


@pytest.mark.feature("AD-01")
@pytest.mark.parametrize("name", NAMING)
def test_a_request_names_as_many_things_as_a_plain_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_RECORDS_PER_OPERATION", MOST)
    chance = random.Random(name)
    seen = set()
    for _ in range(200):
        request, named = NAMING[name]([chance.choice([0, 1, 1, 2, 3]) for _ in range(chance.randrange(0, MOST + 2))])
        seen.add(min(named, MOST + 1))
        if named <= MOST:
            assert finish(count_named(request, Pace())) == named
            continue
        with pytest.raises(KafkaError) as refused:
            finish(count_named(request, Pace()))
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert refused.value.message == f"the request names more than {MOST} {name.partition(' (')[0]}"
    assert {0, MOST, MOST + 1} <= seen
    assert finish(count_named(elect_leaders.ElectLeadersRequest(topic_partitions=None), Pace())) == 0


@pytest.mark.parametrize("count", [1, COUNTED_PER_ITEM * STEP_ITEMS - 1, COUNTED_PER_ITEM * STEP_ITEMS])
def test_a_long_request_is_counted_in_steps(count: int) -> None:
    pace = Pace()
    request, _ = configs([1] * count)
    steps: list[int] = []
    assert finish(count_named(request, pace), lambda: steps.append(1)) == count
    assert len(steps) - 1 == pace.steps == count // (COUNTED_PER_ITEM * STEP_ITEMS)


@pytest.mark.feature("MB-02")
@pytest.mark.parametrize("field", ["listeners", "features", "log_dirs"])
@pytest.mark.parametrize("kind", [BrokerRegistrationRequest, ControllerRegistrationRequest])
def test_a_node_lists_at_most_a_thousand_of_each_kind(kind: type[Any], field: str) -> None:
    feature = Feature() if kind is BrokerRegistrationRequest else ControllerFeature()
    one = {"listeners": Listener(), "features": feature, "log_dirs": bytes(16)}[field]
    if not hasattr(kind(), field):
        return
    assert finish(count_named(kind(**{field: [one] * MAX_LISTED}), Pace())) == 0
    with pytest.raises(KafkaError) as refused:
        finish(count_named(kind(**{field: [one] * (MAX_LISTED + 1)}), Pace()))
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    assert refused.value.message is not None and refused.value.message.endswith(f"got {MAX_LISTED + 1} of one kind")
