"""Feature levels up and down, and what a cluster does at old levels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.kraft.metadata.features import METADATA_VERSION_NAMES
from barnabas.kraft.metadata.image import MIGRATING_DIRECTORY
from barnabas.kraft.metadata.record_versions import encode_records
from barnabas.kraft.metadata.snapshot import image_to_records
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.broker_registration import Feature
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.metadata_log import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ELR = "eligible.leader.replicas.version"
UP, SAFE, UNSAFE = 1, 2, 3


def update(cluster: Any, levels: dict[str, int], upgrade_type: int = UP, validate_only: bool = False) -> Any:
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        for name, level in levels.items()
    ]
    return cluster.send(UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only))


@pytest.mark.feature("OP-04")
@pytest.mark.parametrize("level", METADATA_VERSION_NAMES)
def test_a_cluster_works_at_each_level_and_goes_up_from_there(make_cluster: Any, level: int) -> None:
    cluster = make_cluster(levels={"metadata.version": level}, min_insync_replicas=1)
    cluster.start(1, 2, 3)
    assert cluster.create_topic("t", [1, 2, 3]).error_code == 0
    cluster.die(1)
    assert cluster.partition("t").leader == 2
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    assert cluster.propose_isr("t", [1, 2, 3]).error_code == 0
    known = cluster.partition("t").directories
    assert all(it == MIGRATING_DIRECTORY for it in known) == (level < 17)
    list(encode_records(image_to_records(cluster.image), 7))
    assert update(cluster, {"metadata.version": 30, ELR: 1}).error_code == 0
    cluster.die(2)
    assert cluster.partition("t").leader in (1, 3)
    list(encode_records(image_to_records(cluster.image), 7))


@pytest.mark.feature("OP-04")
def test_a_broker_registers_again_to_report_its_directories(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"metadata.version": 16})
    cluster.start(1)
    assert cluster.image.cluster.brokers[1].log_directories == ()
    assert update(cluster, {"metadata.version": 17}).error_code == 0
    epoch = cluster.epochs[1]
    assert cluster.register(1, incarnation_id=cluster.incarnations[1]).broker_epoch == epoch
    assert len(cluster.image.cluster.brokers[1].log_directories) == 1
    assert not cluster.image.cluster.brokers[1].fenced


@pytest.mark.feature("OP-04")
@pytest.mark.parametrize(
    ("levels", "upgrade_type", "message"),
    [
        (
            {"tiered.version": 1},
            UP,
            "Invalid update version 1 for feature tiered.version. Local controller 100 does not support this feature.",
        ),
        (
            {"metadata.version": 31},
            UP,
            "Invalid update version 31 for feature metadata.version. Local controller 100 only supports versions 7-30",
        ),
        (
            {"group.version": 0},
            UP,
            "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature without"
            " setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            {ELR: 0, "transaction.version": 9},
            SAFE,
            "Invalid update version 9 for feature transaction.version. Local controller 100 only supports versions 0-2",
        ),
        (
            {"metadata.version": 22},
            SAFE,
            f"Invalid update version 22 for feature metadata.version. {ELR} could not be set to 1 because it depends on"
            " metadata.version level 23",
        ),
        (
            {"metadata.version": 16, ELR: 0},
            UNSAFE,
            "Unsupported metadata.version downgrade from 30 to 16. Unsafe metadata downgrade is not supported in this"
            " version: it would lose the log directories of replicas.",
        ),
    ],
)
def test_refusals_are_in_kafkas_words(cluster: Any, levels: dict[str, int], upgrade_type: int, message: str) -> None:
    before = len(cluster.log)
    response = update(cluster, levels, upgrade_type)
    prefix = "The update failed for all features since the following feature had an error: "
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, prefix + message)
    assert len(cluster.log) == before


@pytest.mark.feature("OP-04")
def test_the_names_of_nodes_that_do_not_support_a_level(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"metadata.version": 29})
    ranges = {"metadata.version": (7, 29), "group.version": (0, 1), "transaction.version": (0, 2), ELR: (0, 1)}
    ranges["share.version"] = ranges["streams.version"] = (0, 1)
    old = [
        Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in ranges.items()
    ]
    assert cluster.register(2, features=old).error_code == 0
    message = update(cluster, {"metadata.version": 30}).error_message
    assert message.endswith("Broker 2 only supports versions 7-29")


@pytest.mark.feature("OP-04")
@pytest.mark.parametrize(("level", "refused"), [(14, False), (15, True), (25, True)])
def test_a_controller_that_has_not_registered_may_not_support_a_level(
    make_cluster: Any, level: int, refused: bool
) -> None:
    """Controllers register since level 15; before, nobody can know."""
    cluster = make_cluster(levels={"metadata.version": level}, quorum_ids=(100, 101))
    cluster.start(1)
    response = update(cluster, {"group.version": 1})
    reason = "controller 101 has not registered, and may not support this feature"
    assert (response.error_message or "").endswith(reason) == refused


@pytest.mark.feature("OP-04", "KR-14")
@pytest.mark.parametrize("upgrade_type", [SAFE, UNSAFE])
def test_kraft_version_never_goes_down(cluster: Any, upgrade_type: int) -> None:
    raised: list[int] = []
    quorum = SimpleNamespace(kraft_version=1, upgrade_kraft_version=lambda level, **_: raised.append(level))
    cluster.controller.quorum = quorum
    response = update(cluster, {"kraft.version": 0}, upgrade_type)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message.endswith("Can't downgrade the version of this feature.")
    assert raised == []
    assert update(cluster, {"kraft.version": 1}).error_code == 0


@pytest.mark.feature("OP-04")
def test_a_downgrade_that_loses_nothing_is_safe(cluster: Any) -> None:
    assert update(cluster, {"metadata.version": 23}, SAFE, validate_only=True).error_code == 0
    assert cluster.image.features.metadata_version == 30, "only validated"
    assert update(cluster, {"metadata.version": 23}, SAFE).error_code == 0
    assert cluster.image.features.metadata_version == 23
    cluster.restart(1, clean=True)
    registration = next(it for it in reversed(cluster.log) if isinstance(it, RegisterBrokerRecord))
    written = list(encode_records([registration], 23))
    assert written[0][:3] == b"\x01\x00\x03", "what an older release can read"


@pytest.mark.feature("OP-04")
def test_a_downgrade_that_would_lose_something_lists_it_and_needs_the_unsafe_flag(cluster: Any) -> None:
    cordoned = [bytes([2, 1]) * 8]
    cluster.heartbeat(2, cordoned_log_dirs=cordoned)
    response = update(cluster, {"metadata.version": 29}, SAFE)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message.endswith(
        "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade because it"
        " might delete metadata information: cordoned log directories of broker 2. An unsafe downgrade removes them."
    )
    assert cluster.image.cluster.brokers[2].cordoned_log_directories == tuple(cordoned)
    assert update(cluster, {"metadata.version": 29}, UNSAFE).error_code == 0
    removed, lowered = cluster.log[-2:]
    assert isinstance(removed, BrokerRegistrationChangeRecord) and isinstance(lowered, FeatureLevelRecord)
    assert cluster.image.cluster.brokers[2].cordoned_log_directories == ()
    list(encode_records(image_to_records(cluster.image), 7))


@pytest.mark.feature("OP-04")
def test_a_level_goes_down_with_the_feature_that_depends_on_it(cluster: Any) -> None:
    assert cluster.create_topic("t", [1, 2, 3]).error_code == 0
    cluster.die(1)
    cluster.die(2)
    assert cluster.partition("t").elr
    assert update(cluster, {"metadata.version": 22, ELR: 0}, SAFE).error_code == 0
    assert cluster.partition("t").elr == ()
    assert cluster.log[-1] == FeatureLevelRecord(name="metadata.version", feature_level=22), "after the others' records"
    list(encode_records(image_to_records(cluster.image), 7))


@pytest.mark.feature("OP-04", "SE-07", "AD-07")
def test_an_unsafe_downgrade_removes_tokens_and_users_and_keeps_quotas(make_cluster: Any) -> None:
    cluster = make_cluster(delegation_token_secret_key="key", levels={"metadata.version": 14})
    upsertion = ScramCredentialUpsertion(
        name="ann", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
    )
    cluster.send(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert cluster.send(CreateDelegationTokenRequest()).error_code == 0
    entry = RequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="ann")], ops=[OpData(key="producer_byte_rate", value=1.0)]
    )
    cluster.send(AlterClientQuotasRequest(entries=[entry]))
    refused = update(cluster, {"metadata.version": 10}, SAFE)
    assert "1 delegation token; SCRAM credentials of user ann" in refused.error_message
    assert update(cluster, {"metadata.version": 10}, UNSAFE).error_code == 0
    others = cluster.image.others
    assert (others.delegation_tokens, others.scram) == ({}, {})
    assert others.quotas == {(("user", "ann"),): {"producer_byte_rate": 1.0}}
    assert cluster.send(CreateDelegationTokenRequest()).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.feature("OP-04")
def test_credentials_are_named_before_they_are_lost(cluster: Any) -> None:
    from barnabas.kraft.metadata.downgrade import losses, removals

    names = ("ann", "bob", "cid", "dora", "emil", "fay")
    credentials = [UserScramCredentialRecord(name=name, mechanism=1) for name in names]
    image = cluster.controller.preview(credentials, len(cluster.log) + len(credentials) - 1, cluster.now_ms)
    from tests.kraft.controller.conftest import finish

    after = finish(image)
    assert losses(after, 10).removable == ["SCRAM credentials of users ann, bob, cid, dora, emil and 1 more"]
    assert len(removals(after, 10)) == len(names)
    assert losses(after, 11).removable == []
