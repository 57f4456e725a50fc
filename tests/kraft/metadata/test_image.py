"""Records become images: each image stays as it was, and shares what the records did not touch."""

from __future__ import annotations

import pytest

from barnabas.kraft.metadata.image import (
    BROKER_RESOURCE,
    EMPTY_IMAGE,
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    TOPIC_RESOURCE,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    directory_is_reserved,
)
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata.replay import ImageReplay, ReplayError
from barnabas.protocol.messages.metadata_log import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from barnabas.protocol.schema import Message
from tests.kraft.metadata import replaying

TOPIC = b"T" * 16
OTHER = b"O" * 16
DIRECTORY = b"D" * 16


def applied(image: MetadataImage, *records: Message) -> MetadataImage:
    return replaying.applied(image, records, image.offset + len(records), 1, 0)


def broker(broker_id: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=bytes([broker_id]) * 16,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
        features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack=None,
        log_dirs=[DIRECTORY],
    )


def partition(index: int, *replicas: int, topic: bytes = TOPIC) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY] * len(replicas),
    )


@pytest.fixture
def image() -> MetadataImage:
    """Two topics on two brokers."""
    return applied(
        EMPTY_IMAGE,
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        broker(1, 1),
        broker(2, 2),
        TopicRecord(name="orders", topic_id=TOPIC),
        partition(0, 1, 2),
        partition(1, 2, 1),
        TopicRecord(name="other", topic_id=OTHER),
        partition(0, 1, topic=OTHER),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="orders", name="retention.ms", value="1000"),
    )


@pytest.mark.feature("MB-06")
def test_an_image_holds_the_state_of_its_records(image: MetadataImage) -> None:
    assert (image.offset, image.epoch) == (8, 1)
    assert image.features.metadata_version == image.features.level("metadata.version") == 30
    assert image.cluster.brokers[2].listeners["PLAINTEXT"].port == 9002
    assert image.cluster.brokers[2].fenced, "a broker is fenced until a record unfences it"
    assert image.topics.by_id[TOPIC] is image.topics.by_name["orders"]
    assert image.topics.by_id[TOPIC].partitions[1].replicas == (2, 1)
    assert image.config(TOPIC_RESOURCE, "orders") == {"retention.ms": "1000"}
    assert image.config(TOPIC_RESOURCE, "other") == {}


@pytest.mark.feature("MB-06")
def test_a_later_image_leaves_the_earlier_as_it_was_and_shares_the_rest(image: MetadataImage) -> None:
    later = applied(image, PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2, isr=[2]))
    changed, before = later.topics.by_id[TOPIC].partitions[0], image.topics.by_id[TOPIC].partitions[0]
    assert (before.leader, before.isr, before.leader_epoch, before.partition_epoch) == (1, (1, 2), 0, 0)
    assert (changed.leader, changed.isr, changed.leader_epoch, changed.partition_epoch) == (2, (2,), 1, 1)
    assert later.topics.by_name["orders"] is later.topics.by_id[TOPIC]
    assert later.topics.by_id[OTHER] is image.topics.by_id[OTHER]
    assert later.topics.by_id[TOPIC].partitions[1] is image.topics.by_id[TOPIC].partitions[1]
    assert later.cluster is image.cluster
    assert later.configs is image.configs


def test_a_change_that_names_the_same_leader_still_begins_an_epoch(image: MetadataImage) -> None:
    later = applied(image, PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1))
    assert later.topics.by_id[TOPIC].partitions[0].leader_epoch == 1
    later = applied(later, PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1]))
    assert later.topics.by_id[TOPIC].partitions[0].leader_epoch == 1
    assert later.topics.by_id[TOPIC].partitions[0].partition_epoch == 2


@pytest.mark.feature("MB-08")
def test_a_topic_that_is_made_again_is_another_and_starts_without_settings(image: MetadataImage) -> None:
    new_id = b"N" * 16
    replay = ImageReplay(image)
    replay.replay(RemoveTopicRecord(topic_id=TOPIC))
    replay.replay(TopicRecord(name="orders", topic_id=new_id))
    replay.replay(partition(0, 2, topic=new_id))
    delta = replay.finish(20, 1, 0)
    assert list(delta.deleted_topics) == [TOPIC]
    assert list(delta.changed_topics) == [new_id]
    assert delta.changed_topics[new_id].before is None
    assert delta.changed_configs == {(TOPIC_RESOURCE, "orders"): {"retention.ms": None}}
    assert delta.after.topics.by_name["orders"].id == new_id
    assert TOPIC not in delta.after.topics.by_id
    assert image.topics.by_name["orders"].id == TOPIC


def test_a_topic_made_and_removed_in_one_run_leaves_no_trace(image: MetadataImage) -> None:
    replay = ImageReplay(image)
    replay.replay(TopicRecord(name="brief", topic_id=b"B" * 16))
    replay.replay(RemoveTopicRecord(topic_id=b"B" * 16))
    delta = replay.finish(20, 1, 0)
    assert delta.is_empty
    assert delta.after.same_content(image)


@pytest.mark.feature("MB-04")
def test_brokers_change_state_by_records_of_their_own_epoch_only(image: MetadataImage) -> None:
    unfenced = applied(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1))
    assert unfenced.cluster.brokers[1].active
    leaving = applied(unfenced, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1))
    assert not leaving.cluster.brokers[1].active
    assert not leaving.cluster.brokers[1].fenced
    old_kind = applied(image, UnfenceBrokerRecord(id=1, epoch=1))
    assert applied(old_kind, FenceBrokerRecord(id=1, epoch=1)).cluster.brokers[1].fenced
    with pytest.raises(ReplayError, match="epoch 7"):
        applied(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    gone = applied(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=1))
    assert list(gone.cluster.brokers) == [2]
    assert gone.topics.by_id[TOPIC].partitions[0].replicas == (1, 2), "it stays in replica lists"


@pytest.mark.feature("MB-15")
def test_clearing_eligible_replicas_is_a_change_of_the_partitions_that_had_some(image: MetadataImage) -> None:
    some = applied(
        image,
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[2], eligible_leader_replicas=[1]),
        PartitionChangeRecord(partition_id=0, topic_id=OTHER, isr=[], leader=-1, last_known_elr=[1]),
    )
    one = applied(some, ClearElrRecord(topic_name="orders"))
    assert one.topics.by_id[TOPIC].partitions[0].elr == ()
    assert one.topics.by_id[TOPIC].partitions[0].partition_epoch == 2
    assert one.topics.by_id[TOPIC].partitions[1].partition_epoch == 0
    assert one.topics.by_id[OTHER].partitions[0].last_known_elr == (1,)
    every = applied(some, ClearElrRecord())
    assert every.topics.by_id[OTHER].partitions[0].last_known_elr == ()


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="orders", topic_id=b"x" * 16),
        TopicRecord(name="new", topic_id=TOPIC),
        partition(0, 1, topic=b"x" * 16),
        PartitionChangeRecord(partition_id=9, topic_id=TOPIC, leader=1),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2, 3]),
        RemoveTopicRecord(topic_id=b"x" * 16),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=2),
        UnregisterBrokerRecord(broker_id=9, broker_epoch=2),
        ClearElrRecord(topic_name="nowhere"),
        ProducerIdsRecord(next_producer_id=-1),
    ],
)
def test_a_record_that_contradicts_the_image_is_an_error(image: MetadataImage, record: Message) -> None:
    with pytest.raises(ReplayError):
        applied(image, record)


def test_records_from_before_directories_mean_an_unknown_directory(image: MetadataImage) -> None:
    old = PartitionRecord(partition_id=2, topic_id=TOPIC, replicas=[1, 2], isr=[1], leader=1)
    later = applied(image, old)
    assert later.topics.by_id[TOPIC].partitions[2].directories == (MIGRATING_DIRECTORY,) * 2
    grown = applied(later, PartitionChangeRecord(partition_id=2, topic_id=TOPIC, replicas=[1, 2, 3]))
    assert grown.topics.by_id[TOPIC].partitions[2].directories == (MIGRATING_DIRECTORY,) * 3


@pytest.mark.feature("MB-18")
def test_which_directories_count_as_online() -> None:
    one = BrokerImage(1, 1, bytes(16), {}, {}, log_directories=(DIRECTORY,))
    assert one.has_online_directory(DIRECTORY)
    assert one.has_online_directory(UNASSIGNED_DIRECTORY)
    assert one.has_online_directory(MIGRATING_DIRECTORY)
    assert not one.has_online_directory(LOST_DIRECTORY)
    assert not one.has_online_directory(b"E" * 16)
    assert directory_is_reserved((99).to_bytes(16, "big"))
    assert not directory_is_reserved((100).to_bytes(16, "big"))


def test_acls_users_quotas_and_tokens_are_kept_and_removed(image: MetadataImage) -> None:
    acl = AccessControlEntryRecord(id=b"A" * 16, principal="User:a", host="*")
    quota = ClientQuotaRecord(
        entity=[
            EntityData(entity_type="user", entity_name=None),
            EntityData(entity_type="ip", entity_name="x"),
        ],
        key="producer_byte_rate",
        value=10.0,
    )
    later = applied(
        image,
        acl,
        quota,
        UserScramCredentialRecord(name="u", mechanism=1),
        DelegationTokenRecord(token_id="t"),
        NoOpRecord(),
        ZkMigrationStateRecord(),
    )
    assert later.others.acls == {b"A" * 16: acl}
    assert later.others.quotas == {(("ip", "x"), ("user", None)): {"producer_byte_rate": 10.0}}
    assert list(later.others.scram) == [("u", 1)]
    quota_gone = ClientQuotaRecord(entity=quota.entity[::-1], key="producer_byte_rate", remove=True)
    gone = applied(later, RemoveAccessControlEntryRecord(id=b"A" * 16), quota_gone)
    assert gone.others.acls == {}
    assert gone.others.quotas == {}
    assert later.others.acls, "the earlier image still has it"


@pytest.mark.feature("MB-20")
def test_configs_come_and_go_by_single_keys(image: MetadataImage) -> None:
    both = applied(image, ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name="a", value="1"))
    assert both.config(BROKER_RESOURCE, "") == {"a": "1"}
    none = applied(both, ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name="a", value=None))
    assert (BROKER_RESOURCE, "") not in none.configs


def test_controllers_register_their_endpoints(image: MetadataImage) -> None:
    later = applied(image, RegisterControllerRecord(controller_id=100, incarnation_id=b"C" * 16))
    assert later.cluster.controllers[100].incarnation_id == b"C" * 16
    assert later.cluster.brokers is image.cluster.brokers


def test_a_control_batch_of_the_log_moves_the_image_on(image: MetadataImage) -> None:
    loader = MetadataLoader(image)
    (delta,) = loader.handle_commit(9, 4, 77, [])
    assert delta.is_empty
    assert (loader.image.offset, loader.image.epoch, loader.last_offset) == (9, 4, 9)
    assert loader.image.topics is image.topics


def test_a_control_batch_ends_at_its_last_record(image: MetadataImage) -> None:
    """A snapshot was cut in the middle of the first batch of a quorum with dynamic voters, and lacked the voters."""
    loader = MetadataLoader(image)
    (delta,) = loader.handle_commit(9, 4, 77, [], last_offset=11)
    assert (delta.after.offset, loader.last_offset) == (11, 11)


def test_a_log_is_empty_until_a_record_is_visible() -> None:
    loader = MetadataLoader()
    loader.handle_commit(0, 1, 0, [])
    loader.handle_commit(1, 1, 0, [BeginTransactionRecord(), TopicRecord(name="t", topic_id=TOPIC)])
    loader.handle_commit(3, 2, 0, [AbortTransactionRecord()])
    assert loader.is_empty
    loader.handle_commit(4, 2, 0, [NoOpRecord()])
    assert not loader.is_empty
    restored = MetadataLoader()
    restored.handle_snapshot([], 9, 1, 0)
    assert not restored.is_empty


# Transactions


@pytest.mark.feature("KR-12")
def test_a_metadata_transaction_becomes_visible_at_once_when_it_ends(image: MetadataImage) -> None:
    loader = MetadataLoader(image)
    assert [d.after.offset for d in loader.handle_commit(9, 2, 5, [NoOpRecord()])] == [9]
    begun = loader.handle_commit(
        10,
        2,
        5,
        [NoOpRecord(), BeginTransactionRecord(name="big"), TopicRecord(name="t", topic_id=b"1" * 16)],
    )
    assert [delta.after.offset for delta in begun] == [10], "what came before it is visible"
    assert loader.in_transaction
    assert loader.transaction_name == "big"
    assert loader.last_offset == 12
    assert loader.handle_commit(13, 2, 5, [partition(0, 1, topic=b"1" * 16)]) == []
    assert "t" not in loader.image.topics.by_name
    (ended,) = loader.handle_commit(14, 2, 5, [EndTransactionRecord(), NoOpRecord()])
    assert ended.after is loader.image
    assert ended.after.offset == 15
    assert list(ended.changed_topics[b"1" * 16].changed_partitions) == [0]
    assert not loader.in_transaction


@pytest.mark.feature("KR-12")
def test_an_aborted_metadata_transaction_never_happened(image: MetadataImage) -> None:
    loader = MetadataLoader(image)
    assert loader.handle_commit(9, 2, 5, [BeginTransactionRecord(), RemoveTopicRecord(topic_id=TOPIC)]) == []
    (delta,) = loader.handle_commit(
        11, 3, 5, [AbortTransactionRecord(reason="failover"), TopicRecord(name="t", topic_id=b"1" * 16)]
    )
    assert loader.image.topics.by_id[TOPIC] is image.topics.by_id[TOPIC]
    assert list(delta.changed_topics) == [b"1" * 16]
    assert loader.image.offset == 12


@pytest.mark.feature("KR-12")
def test_transactions_do_not_nest_nor_end_before_they_begin(image: MetadataImage) -> None:
    with pytest.raises(ReplayError, match="none began"):
        MetadataLoader(image).handle_commit(9, 2, 5, [EndTransactionRecord()])
    with pytest.raises(ReplayError, match="inside another"):
        MetadataLoader(image).handle_commit(9, 2, 5, [BeginTransactionRecord(), BeginTransactionRecord()])
