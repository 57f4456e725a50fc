"""Dynamic configs and feature levels."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller.configs import MOST_OVERRIDES
from barnabas.kraft.controller.controller import COMMANDS, LATE_COMMANDS
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, RequestEntryData
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from barnabas.protocol.messages.broker_registration import Feature
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.refusals import refusal_of
from barnabas.protocol.schema import decode, encode

SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(cluster: Any, resource: tuple[int, str], *changes: tuple[str, int, str | None], **fields: Any) -> int:
    wanted = AlterConfigsResource(
        resource_type=resource[0],
        resource_name=resource[1],
        configs=[
            AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes
        ],
    )
    (answer,) = cluster.send(IncrementalAlterConfigsRequest(resources=[wanted], **fields)).responses
    assert (answer.resource_type, answer.resource_name) == resource
    assert (answer.error_message is None) == (answer.error_code == 0)
    return int(answer.error_code)


@pytest.mark.feature("AD-02", "MB-20")
def test_single_keys_are_set_deleted_extended_and_reduced(cluster: Any) -> None:
    cluster.create_topic("t", [1])
    topic = (TOPIC_RESOURCE, "t")
    assert alter(cluster, topic, ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == 0
    assert cluster.image.config(*topic) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert alter(cluster, topic, ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert cluster.image.config(*topic) == {"cleanup.policy": "compact"}
    before = len(cluster.log)
    assert alter(cluster, topic, ("cleanup.policy", SET, "compact")) == 0
    assert len(cluster.log) == before, "what holds already is not written again"
    assert alter(cluster, topic, ("retention.ms", SET, "9"), validate_only=True) == 0
    assert len(cluster.log) == before


@pytest.mark.feature("TS-01")
def test_topics_are_tiered_only_in_a_cluster_with_tiered_storage(cluster: Any, make_cluster: Any) -> None:
    cluster.create_topic("t", [1])
    topic = (TOPIC_RESOURCE, "t")
    tiered = ("remote.storage.enable", SET, "true")
    assert alter(cluster, topic, tiered) == ErrorCode.INVALID_CONFIG

    with_tiers = make_cluster(raw={"remote.log.storage.system.enable": "true"})
    with_tiers.start(1)
    with_tiers.create_topic("t", [1])
    assert alter(with_tiers, topic, tiered, ("cleanup.policy", SET, "compact")) == ErrorCode.INVALID_CONFIG
    assert alter(with_tiers, topic, tiered, ("local.retention.ms", SET, "1000")) == 0
    assert alter(with_tiers, topic, ("remote.storage.enable", DELETE, None)) == ErrorCode.INVALID_CONFIG
    on_disable = ("remote.log.delete.on.disable", SET, "true")
    assert alter(with_tiers, topic, ("remote.storage.enable", SET, "false"), on_disable) == 0


@pytest.mark.feature("TS-01", "CR-02")
def test_leaders_begin_a_new_epoch_when_a_compacted_topic_becomes_tiered(make_cluster: Any) -> None:
    both = {"remote.log.storage.system.enable": "true", "barnabas.remote.storage.compacted.enable": "true"}
    cluster = make_cluster(raw=both)
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2], [2, 1])
    cluster.create_topic("kept", [1, 2])
    topic, kept = (TOPIC_RESOURCE, "t"), (TOPIC_RESOURCE, "kept")

    def leaders(name: str) -> list[tuple[int, int]]:
        return [(it.leader, it.leader_epoch) for it in cluster.image.topics.by_name[name].partitions.values()]

    assert alter(cluster, topic, ("cleanup.policy", SET, "compact")) == 0
    before = leaders("t")
    tiered = ("remote.storage.enable", SET, "true")
    assert alter(cluster, topic, tiered, validate_only=True) == 0
    assert leaders("t") == before
    assert alter(cluster, topic, tiered) == 0
    assert leaders("t") == [(leader, epoch + 1) for leader, epoch in before]
    assert alter(cluster, topic, tiered, ("segment.ms", SET, "9")) == 0
    assert leaders("t") == [(leader, epoch + 1) for leader, epoch in before], "it was tiered already"

    before = leaders("kept")
    assert alter(cluster, kept, tiered) == 0
    assert alter(cluster, kept, ("cleanup.policy", SET, "compact")) == 0
    assert leaders("kept") == before, "no replica has removed a tombstone by itself"


@pytest.mark.feature("AD-02")
@pytest.mark.parametrize(
    ("resource", "change", "code"),
    [
        ((TOPIC_RESOURCE, "t"), ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        ((TOPIC_RESOURCE, "t"), ("retention.hours", SET, "1"), ErrorCode.INVALID_CONFIG),
        ((TOPIC_RESOURCE, "t"), ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ((TOPIC_RESOURCE, "t"), ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        ((TOPIC_RESOURCE, "t"), ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        ((TOPIC_RESOURCE, "t"), ("cleanup.policy", SET, "x" * 40000), ErrorCode.INVALID_CONFIG),
        ((TOPIC_RESOURCE, "u"), ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC_RESOURCE, ""), ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        ((BROKER_RESOURCE, "nine"), ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        ((BROKER_RESOURCE, "9"), ("log.retention.ms", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        ((BROKER_RESOURCE, "1"), ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        ((BROKER_RESOURCE, "1"), ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
        ((BROKER_RESOURCE, "1"), ("min.insync.replicas", SET, "1"), ErrorCode.INVALID_CONFIG),
        ((BROKER_RESOURCE, ""), ("min.insync.replicas", DELETE, None), ErrorCode.INVALID_CONFIG),
        ((8, "1"), ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ((3, "x"), ("a", SET, "1"), ErrorCode.UNSUPPORTED_VERSION),
        ((32, "group"), ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        ((16, "subscription"), ("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
        ((16, "subscription"), ("interval.ms", SET, "bbb"), ErrorCode.INVALID_CONFIG),
        ((16, "subscription"), ("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        ((16, "subscription"), ("metrics", SET, "a,b,a"), ErrorCode.INVALID_CONFIG),
        ((32, ""), ("consumer.session.timeout.ms", SET, "45000"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_cannot_be(cluster: Any, resource: Any, change: Any, code: ErrorCode) -> None:
    cluster.create_topic("t", [1])
    before = len(cluster.log)
    assert alter(cluster, resource, change) == code
    assert len(cluster.log) == before


@pytest.mark.feature("MB-20", "AD-02")
def test_brokers_all_brokers_groups_and_client_metrics_have_configs(cluster: Any) -> None:
    assert alter(cluster, (BROKER_RESOURCE, "1"), ("log.retention.ms", SET, "1000")) == 0
    assert alter(cluster, (BROKER_RESOURCE, ""), ("log.retention.ms", SET, "2000")) == 0
    assert alter(cluster, (BROKER_RESOURCE, "100"), ("log.retention.ms", SET, "3000")) == 0, "a controller"
    assert alter(cluster, (32, "group"), ("consumer.session.timeout.ms", SET, "45000")) == 0
    assert alter(cluster, (16, "s"), ("interval.ms", SET, "1000")) == 0
    before = len(cluster.log)
    assert alter(cluster, (BROKER_RESOURCE, "1"), ("log.retention.ms", SET, "1000")) == 0
    assert len(cluster.log) == before + 1, "setting a broker's key again makes it reload files"
    topic = cluster.create_topic("t", [1])
    reported = {it.name: (it.value, it.config_source) for it in topic.configs}
    assert reported["retention.ms"] == ("3000", 2)


@pytest.mark.feature("AD-02", "MB-20")
@pytest.mark.parametrize("name", ["1", ""])
def test_an_unknown_broker_config_is_accepted_and_noted_as_without_effect(cluster: Any, name: str) -> None:
    """Kafka accepts it, too: it may belong to a plug-in. But Kafka is silent about it, and a typo goes unnoticed."""
    resource = (BROKER_RESOURCE, name)
    assert alter(cluster, resource, ("log.cleaner.threadzz", SET, "9"), ("log.retention.ms", SET, "1000")) == 0
    assert cluster.image.config(*resource) == {"log.cleaner.threadzz": "9", "log.retention.ms": "1000"} | (
        {} if name else {"min.insync.replicas": "2"}
    )
    (noted,) = [it for it in cluster.story(f"broker {name}" if name else "all brokers") if "configs" in it]
    assert "log.cleaner.threadzz is not a broker config and has no effect; did you mean log.cleaner.threads?" in noted
    assert "threadzz=[hidden]" in noted, "it may be a password"


@pytest.mark.feature("AD-02", "RP-02")
def test_a_resource_has_a_bounded_number_of_configs(cluster: Any) -> None:
    """Brokers take any name, and every node keeps them."""
    broker = (BROKER_RESOURCE, "1")
    assert alter(cluster, broker, *((f"mine.{it}", SET, "1") for it in range(MOST_OVERRIDES - 1))) == 0
    assert alter(cluster, broker, ("one.more", SET, "1"), ("two.more", SET, "1")) == ErrorCode.POLICY_VIOLATION
    assert alter(cluster, broker, ("one.more", SET, "1"), ("mine.0", SET, "2")) == 0
    assert alter(cluster, broker, ("two.more", SET, "1"), ("mine.0", DELETE, None)) == 0
    assert len(cluster.image.config(*broker)) == MOST_OVERRIDES


@pytest.mark.feature("AD-02")
def test_lists_of_client_metrics_are_appended_to(cluster: Any) -> None:
    metrics = (16, "s")
    assert alter(cluster, metrics, ("metrics", SET, "a.,b.")) == 0
    assert alter(cluster, metrics, ("metrics", APPEND, "c.")) == 0
    assert cluster.image.config(*metrics) == {"metrics": "a.,b.,c."}


@pytest.mark.feature("AD-02")
def test_the_older_request_replaces_everything(cluster: Any) -> None:
    cluster.create_topic("t", [1], configs={"retention.ms": "5", "segment.ms": "1000"})

    def replace(configs: dict[str, str | None], **fields: Any) -> list[int]:
        resource = legacy.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name="t",
            configs=[legacy.AlterableConfig(name=name, value=value) for name, value in configs.items()],
        )
        response = cluster.send(legacy.AlterConfigsRequest(resources=[resource] * fields.pop("times", 1), **fields))
        return [it.error_code for it in response.responses]

    assert replace({"segment.ms": "2000"}) == [0]
    assert cluster.image.config(TOPIC_RESOURCE, "t") == {"segment.ms": "2000"}
    assert replace({"segment.ms": None}) == [ErrorCode.INVALID_REQUEST]
    assert replace({"segment.ms": "0"}) == [ErrorCode.INVALID_CONFIG]
    assert replace({}, times=2) == [ErrorCode.INVALID_REQUEST] * 2
    assert replace({}, validate_only=True) == [0]
    assert cluster.image.config(TOPIC_RESOURCE, "t") == {"segment.ms": "2000"}


# Features


def update(cluster: Any, name: str, level: int, upgrade_type: int = 1, version: int = 2, **fields: Any) -> int:
    key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return int(cluster.send(UpdateFeaturesRequest(feature_updates=[key], **fields), version).error_code)


ELR = "eligible.leader.replicas.version"


@pytest.mark.feature("MB-15")
def test_eligible_leader_replicas_can_be_turned_off_and_on(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.die(3)
    cluster.die(2)
    assert cluster.partition("t").elr == (2,)
    assert update(cluster, ELR, 0) == ErrorCode.INVALID_UPDATE_VERSION, "a downgrade has to be called one"
    assert update(cluster, ELR, 0, upgrade_type=2, validate_only=True) == 0
    assert cluster.image.features.elr_enabled
    assert update(cluster, ELR, 0, upgrade_type=2) == 0
    assert not cluster.image.features.elr_enabled
    assert cluster.partition("t").elr == ()
    assert alter(cluster, (BROKER_RESOURCE, "1"), ("min.insync.replicas", SET, "1")) == 0
    assert alter(cluster, (BROKER_RESOURCE, ""), ("min.insync.replicas", DELETE, None)) == 0
    assert update(cluster, ELR, 1) == 0
    assert cluster.image.config(BROKER_RESOURCE, "") == {"min.insync.replicas": "2"}
    assert cluster.image.config(BROKER_RESOURCE, "1") == {}, "one value for all, from here on"


def test_an_upgrade_to_the_level_that_there_is_changes_nothing(cluster: Any) -> None:
    assert update(cluster, ELR, cluster.image.features.level(ELR)) == 0


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type"),
    [
        ("metadata.version", 31, 1),
        ("metadata.version", 6, 2),
        ("metadata.version", 16, 2),
        ("metadata.version", 16, 3),
        ("metadata.version", 29, 1),
        ("teleportation", 1, 1),
        (ELR, 2, 1),
        (ELR, -1, 2),
        (ELR, 0, 1),
        (ELR, 1, 9),
        ("kraft.version", 1, 1),
    ],
)
def test_levels_that_cannot_be(cluster: Any, name: str, level: int, upgrade_type: int) -> None:
    before = len(cluster.log)
    assert update(cluster, name, level, upgrade_type) == ErrorCode.INVALID_UPDATE_VERSION
    assert len(cluster.log) == before


def test_an_upgrade_waits_for_the_last_broker(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"metadata.version": 23, ELR: 0, "group.version": 0, "transaction.version": 0})
    cluster.start(1)
    old = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)]
    cluster.register(2, features=old)
    assert update(cluster, "metadata.version", 30) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, "metadata.version", 29) == 0
    assert update(cluster, "metadata.version", 24, upgrade_type=2) == 0, "nothing is lost between 29 and 24"
    assert update(cluster, ELR, 1) == ErrorCode.INVALID_UPDATE_VERSION, "broker 2 does not know it"
    cluster.restart(2, clean=True)
    assert update(cluster, ELR, 1) == 0
    assert update(cluster, "metadata.version", 30) == 0


def test_all_updates_of_a_request_happen_or_none(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"metadata.version": 29, ELR: 0})
    keys = [
        FeatureUpdateKey(feature="metadata.version", max_version_level=30),
        FeatureUpdateKey(feature=ELR, max_version_level=7),
    ]
    response = cluster.send(UpdateFeaturesRequest(feature_updates=keys), 1)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert {it.feature for it in response.results} == {"metadata.version", ELR}
    assert cluster.image.features.metadata_version == 29
    keys[1].max_version_level = 1
    assert [it.error_code for it in cluster.send(UpdateFeaturesRequest(feature_updates=keys), 1).results] == [
        0,
        0,
    ]
    assert cluster.image.features.elr_enabled
    keys[1].feature = "metadata.version"
    assert cluster.send(UpdateFeaturesRequest(feature_updates=keys)).error_code == ErrorCode.INVALID_REQUEST


# Refusals


FILLED: dict[str, Any] = {
    "CreateTopicsRequest": CreateTopicsRequest(topics=[CreatableTopic(name="t")]),
    "DeleteTopicsRequest": DeleteTopicsRequest(topic_names=["t"]),
    "CreatePartitionsRequest": CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", assignments=None)]),
    "AlterConfigsRequest": legacy.AlterConfigsRequest(
        resources=[legacy.AlterConfigsResource(resource_type=2, resource_name="t")]
    ),
    "IncrementalAlterConfigsRequest": IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name="t")]
    ),
    "AlterUserScramCredentialsRequest": AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u")]),
    "AlterClientQuotasRequest": AlterClientQuotasRequest(entries=[RequestEntryData()]),
    "CreateAclsRequest": CreateAclsRequest(creations=[AclCreation()]),
    "DeleteAclsRequest": DeleteAclsRequest(filters=[DeleteAclsFilter()]),
    "ElectLeadersRequest": ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])]),
}
"""Requests whose answers have an error for each item and none for the whole."""


@pytest.mark.feature("KR-16", "MB-22")
@pytest.mark.parametrize("key", [ApiKey(key) for key in (*COMMANDS, *LATE_COMMANDS)], ids=lambda it: it.name)
def test_a_standby_controller_refuses_with_not_controller_in_every_version(key: ApiKey) -> None:
    """The code that makes clients look for another controller is in each answer, where its version has
    room."""
    spec = API_SPECS[key]
    request = FILLED.get(spec.request_type().__name__) or spec.request_type()()
    for version in range(spec.min_version, spec.max_version + 1):
        refusal = refusal_of(request, version, ErrorCode.NOT_CONTROLLER, "elsewhere")
        again = decode(spec.response_type(), encode(refusal, version), version)
        assert type(again) is type(refusal)
        assert f"error_code={ErrorCode.NOT_CONTROLLER.value}" in repr(again)
