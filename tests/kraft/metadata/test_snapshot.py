"""A snapshot is the canonical list of records of an image."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kraft.metadata.bootstrap import UnknownLevel, bootstrap_records, metadata_version_level
from barnabas.kraft.metadata.features import (
    SUPPORTED_FEATURES,
    default_levels,
    unsupported_reason,
)
from barnabas.kraft.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata.record_versions import encode_records
from barnabas.kraft.metadata.snapshot import difference, image_to_records
from barnabas.protocol.messages.metadata_log import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from barnabas.protocol.records.metadata import decode_metadata_record
from barnabas.protocol.schema import Message
from tests.kraft.metadata.replaying import applied

GROUPS: list[list[Message]] = [
    [FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)],
    [
        RegisterBrokerRecord(
            broker_id=7,
            broker_epoch=3,
            rack="r",
            incarnation_id=b"i" * 16,
            end_points=[
                BrokerEndpoint(name="B", host="h", port=1),
                BrokerEndpoint(name="A", host="h", port=2),
            ],
            features=[BrokerFeature(name="z", max_supported_version=1), BrokerFeature(name="y")],
            log_dirs=[b"2" * 16, b"1" * 16],
        ),
        BrokerRegistrationChangeRecord(
            broker_id=7, broker_epoch=3, fenced=-1, in_controlled_shutdown=1, cordoned_log_dirs=[b"1" * 16]
        ),
    ],
    [RegisterBrokerRecord(broker_id=2, broker_epoch=9, rack=None)],
    [RegisterControllerRecord(controller_id=101), RegisterControllerRecord(controller_id=100)],
    [
        TopicRecord(name="b", topic_id=b"b" * 16),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=b"b" * 16,
                replicas=[7, 2],
                isr=[7],
                leader=7,
                leader_epoch=4,
                partition_epoch=5,
                directories=[b"1" * 16, b"2" * 16],
            )
            for index in (3, 0, 2, 1)
        ),
        PartitionChangeRecord(
            partition_id=3,
            topic_id=b"b" * 16,
            isr=[],
            leader=-1,
            eligible_leader_replicas=[2],
            last_known_elr=[7],
        ),
        PartitionChangeRecord(
            partition_id=0,
            topic_id=b"b" * 16,
            adding_replicas=[2],
            removing_replicas=[7],
            leader_recovery_state=1,
        ),
    ],
    [TopicRecord(name="a", topic_id=b"a" * 16)],
    [
        ConfigRecord(resource_type=2, resource_name="b", name="y", value="1"),
        ConfigRecord(resource_type=2, resource_name="b", name="x", value=""),
    ],
    [ConfigRecord(resource_type=4, resource_name="", name="x", value="1")],
    [
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=1.5
        ),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name="u")], key="producer_byte_rate", value=2.5
        ),
    ],
    [ProducerIdsRecord(broker_id=7, broker_epoch=3, next_producer_id=2000)],
    [AccessControlEntryRecord(id=b"2" * 16), AccessControlEntryRecord(id=b"1" * 16)],
    [UserScramCredentialRecord(name="u", mechanism=2), UserScramCredentialRecord(name="u", mechanism=1)],
]
"""Pieces of a history that do not depend on each other."""


def bytes_of(image: MetadataImage) -> list[bytes]:
    return list(encode_records(image_to_records(image), 7))


def image_of(groups: list[list[Message]]) -> MetadataImage:
    first = FeatureLevelRecord(name="metadata.version", feature_level=30)
    return applied(EMPTY_IMAGE, [first, *(record for group in groups for record in group)], 99, 7, 5)


@pytest.mark.feature("MB-06")
def test_a_snapshot_read_back_is_the_image_it_was_taken_of() -> None:
    image = image_of(GROUPS)
    read = [decode_metadata_record(written)[0] for written in bytes_of(image)]
    again = applied(EMPTY_IMAGE, read, 99, 7, 5)
    assert again == image
    assert bytes_of(again) == bytes_of(image)
    assert applied(EMPTY_IMAGE, image_to_records(EMPTY_IMAGE), -1, -1, -1) == EMPTY_IMAGE


@given(st.randoms(use_true_random=False))
def test_equal_images_give_equal_bytes_whatever_their_history(shuffle: random.Random) -> None:
    groups = list(GROUPS)
    shuffle.shuffle(groups)
    detour: list[Message] = [
        TopicRecord(name="gone", topic_id=b"g" * 16),
        RemoveTopicRecord(topic_id=b"g" * 16),
        ConfigRecord(resource_type=2, resource_name="b", name="z", value="1"),
        ConfigRecord(resource_type=2, resource_name="b", name="z", value=None),
    ]
    groups.insert(shuffle.randrange(len(groups)), detour)
    assert bytes_of(image_of(groups)) == bytes_of(image_of(GROUPS))


@given(st.sets(st.integers(0, len(GROUPS) - 1)), st.sets(st.integers(0, len(GROUPS) - 1)))
def test_the_difference_of_two_images_leads_to_the_second_and_names_the_changes(
    first: set[int], second: set[int]
) -> None:
    before = image_of([GROUPS[index] for index in sorted(first)])
    loaded = image_of([GROUPS[index] for index in sorted(second)])
    delta = difference(before, loaded)
    assert delta.after == loaded
    assert delta.is_empty == before.same_content(loaded)
    for topic_id, topic in delta.after.topics.by_id.items():
        if topic_id in before.topics.by_id:
            assert topic is before.topics.by_id[topic_id], "equal topics stay the same object"
            assert topic_id not in delta.changed_topics
        else:
            assert delta.changed_topics[topic_id].before is None
    assert set(delta.deleted_topics) == set(before.topics.by_id) - set(loaded.topics.by_id)


def test_a_loaded_snapshot_replaces_everything_even_an_open_transaction() -> None:
    from barnabas.protocol.messages.metadata_log import BeginTransactionRecord

    loader = MetadataLoader(image_of(GROUPS[:5]))
    loader.handle_commit(100, 7, 5, [BeginTransactionRecord()])
    before = loader.image
    records = list(image_to_records(image_of(GROUPS)))
    delta = loader.handle_snapshot(records, 200, 8, 6)
    assert delta.before is before
    assert not loader.in_transaction
    assert loader.image is delta.after
    assert (loader.last_offset, loader.image.offset, loader.image.epoch) == (200, 200, 8)
    assert list(delta.changed_topics) == [b"a" * 16]
    assert delta.producer_ids_changed
    assert delta.changed_features == {}


def test_a_formatted_cluster_starts_with_the_highest_levels() -> None:
    records = bootstrap_records()
    assert {it.name: it.feature_level for it in records} == default_levels(30)
    assert records[0].name == "metadata.version"
    assert records[0].feature_level == 30
    image = applied(EMPTY_IMAGE, records, 1, 1, 0)
    assert image.features.elr_enabled
    without_elr = {it.name for it in bootstrap_records({"eligible.leader.replicas.version": 0})}
    assert without_elr == default_levels(30).keys() - {"eligible.leader.replicas.version"}


@pytest.mark.parametrize(
    "levels",
    [
        {"metadata.version": 31},
        {"nonsense": 1},
        {"metadata.version": 22, "eligible.leader.replicas.version": 1},
        {"share.version": 99},
    ],
)
def test_levels_that_cannot_be_are_refused_at_format(levels: dict[str, int]) -> None:
    with pytest.raises(UnknownLevel):
        bootstrap_records(levels)


@pytest.mark.parametrize(("text", "level"), [("30", 30), ("4.3-IV0", 30), ("4.0", 25), ("3.3-IV3", 7)])
def test_metadata_versions_have_names(text: str, level: int) -> None:
    assert metadata_version_level(text) == level


def test_unknown_metadata_versions_are_refused() -> None:
    with pytest.raises(UnknownLevel, match=r"3\.3-IV3|7 to 30"):
        metadata_version_level("5.0")


def test_which_levels_this_software_works_with() -> None:
    assert unsupported_reason("metadata.version", 30) is None
    assert unsupported_reason("unheard.of", 0) is None
    assert unsupported_reason("unheard.of", 1) is not None
    assert all(lowest <= highest for lowest, highest in SUPPORTED_FEATURES.values())
