"""An image as a list of records and back (KIP-630), and the difference between any two images.

The list is canonical: equal images give equal lists, hence equal bytes, whatever order their history had.
Knows nothing of files or of the snapshot's header and footer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.features import DIRECTORIES_SINCE, METADATA_VERSION
from barnabas.kraft.metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    FeatureRange,
    MetadataImage,
    OthersImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
    TopicsImage,
)
from barnabas.protocol.broker_hosts import name_host
from barnabas.protocol.messages.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise, at_once
from barnabas.runtime.sorting import sorted_in_steps

K = TypeVar("K")
V = TypeVar("V")

STEP_COMPARISONS = 100
"""Partitions, configs and the like that are compared in one step."""


def image_to_records(image: MetadataImage) -> Iterator[Message]:
    """Records that rebuild `image` from nothing, features first, so that a reader knows the level of the
    rest."""
    return (record for record in image_to_records_in_steps(image) if record is not None)


def image_to_records_in_steps(image: MetadataImage) -> Generator[Message | None, None, None]:
    """`image_to_records`, with None where a step ends that yields no record."""
    metadata_version = image.features.metadata_version
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version)
    for name, level in sorted(image.features.finalized.items()):
        yield FeatureLevelRecord(name=name, feature_level=level)
    yield from (broker_record(broker) for _, broker in sorted(image.cluster.brokers.items()))
    yield from (_controller_record(controller) for _, controller in sorted(image.cluster.controllers.items()))
    for name in (yield from sorted_in_steps(image.topics.by_name)):
        topic = image.topics.by_name[name]
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for partition_id, partition in sorted(topic.partitions.items()):
            yield partition_record(topic.id, partition_id, partition, metadata_version)
    for resource_type, resource_name in (yield from sorted_in_steps(image.configs)):
        for key, value in sorted(image.configs[resource_type, resource_name].items()):
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value)
    others = image.others
    for entity in sorted(others.quotas, key=repr):
        for key, quota in sorted(others.quotas[entity].items()):
            yield quota_record(entity, key, quota)
    if image.producer_ids.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.producer_ids.next_producer_id)
    for acl_id in (yield from sorted_in_steps(others.acls)):
        yield others.acls[acl_id]
    for user in (yield from sorted_in_steps(others.scram)):
        yield others.scram[user]
    for token_id in (yield from sorted_in_steps(others.delegation_tokens)):
        yield others.delegation_tokens[token_id]


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """The record that sets one quota of an entity, or removes it (None)."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """The record that registers `broker` just as it is."""
    record = RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=name, host=it.host, port=it.port, security_protocol=it.security_protocol)
            for name, it in _sorted_listeners(broker.listeners)
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in _sorted_features(broker.features)
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_directories),
        cordoned_log_dirs=list(broker.cordoned_log_directories) or None,
    )
    name_host(record, broker.host)
    return record


def _controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(name=name, host=it.host, port=it.port, security_protocol=it.security_protocol)
            for name, it in _sorted_listeners(controller.listeners)
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in _sorted_features(controller.features)
        ],
    )


def partition_record(
    topic_id: bytes, partition_id: int, partition: PartitionImage, metadata_version: int
) -> PartitionRecord:
    """The record of all fields of `partition` that this level has."""
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if metadata_version >= DIRECTORIES_SINCE else [],
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _sorted_listeners(listeners: dict[str, Endpoint]) -> list[tuple[str, Endpoint]]:
    return sorted(listeners.items(), key=lambda item: item[0])


def _sorted_features(features: dict[str, FeatureRange]) -> list[tuple[str, FeatureRange]]:
    return sorted(features.items())


def difference(before: MetadataImage, loaded: MetadataImage) -> MetadataDelta:
    """All steps of `difference_in_steps` at once."""
    return at_once(difference_in_steps(before, loaded))


def difference_in_steps(before: MetadataImage, loaded: MetadataImage) -> Stepwise[MetadataDelta]:
    """The delta from `before` to `loaded`, an image that was built independently.

    The `after` of the delta is `loaded` with the topics that are equal taken from `before`. Each step compares at most
    `STEP_COMPARISONS` things.
    """
    delta = MetadataDelta(before=before, after=loaded)
    topics = yield from _difference_of_topics(before.topics, loaded.topics, delta)
    delta.changed_brokers = yield from _changed(before.cluster.brokers, loaded.cluster.brokers)
    delta.changed_controllers = yield from _changed(before.cluster.controllers, loaded.cluster.controllers)
    for resource, new in (yield from _changed(before.configs, loaded.configs)).items():
        changed = yield from _changed(before.configs.get(resource, {}), new or {})
        delta.changed_configs[resource] = changed
    if before.features.metadata_version != loaded.features.metadata_version:
        delta.changed_features[METADATA_VERSION] = loaded.features.metadata_version
    for name in dict.fromkeys([*before.features.finalized, *loaded.features.finalized]):
        if before.features.level(name) != loaded.features.level(name):
            delta.changed_features[name] = loaded.features.level(name)
    delta.producer_ids_changed = before.producer_ids != loaded.producer_ids
    yield from _compare_others(before.others, loaded.others, delta)
    delta.after = replace(loaded, topics=topics)
    return delta


def _compare_others(before: OthersImage, loaded: OthersImage, delta: MetadataDelta) -> Stepwise[None]:
    delta.changed_acls = yield from _changed(before.acls, loaded.acls)
    delta.changed_quotas = yield from _changed(before.quotas, loaded.quotas)
    changed_credentials = yield from _changed(before.scram, loaded.scram)
    changed_tokens = yield from _changed(before.delegation_tokens, loaded.delegation_tokens)
    delta.others_changed = bool(delta.changed_acls or delta.changed_quotas or changed_credentials or changed_tokens)


def _changed(before: dict[K, V], after: dict[K, V]) -> Stepwise[dict[K, V | None]]:
    """Entries that are new or different, and None for those that are gone."""
    changed: dict[K, V | None] = {}
    if before is after:
        return changed
    for compared, key in enumerate(dict.fromkeys(chain(before, after)), 1):
        new = after.get(key)
        if before.get(key) != new:
            changed[key] = new
        if compared % STEP_COMPARISONS == 0:
            yield
    return changed


def _difference_of_topics(before: TopicsImage, loaded: TopicsImage, delta: MetadataDelta) -> Stepwise[TopicsImage]:
    by_name: dict[str, TopicImage] = {}
    by_id: dict[bytes, TopicImage] = {}
    compared = 0
    for topic_id, topic in before.by_id.items():
        if topic_id not in loaded.by_id:
            delta.deleted_topics[topic_id] = topic
    for topic_id, topic in loaded.by_id.items():
        old = before.by_id.get(topic_id)
        kept = topic
        known = {} if old is None else old.partitions
        changed: dict[int, PartitionImage] = {}
        compared += 1
        for partition_id, partition in topic.partitions.items():
            if known.get(partition_id) != partition:
                changed[partition_id] = partition
            compared += 1
            if compared >= STEP_COMPARISONS:
                compared = 0
                yield
        if old is not None and not changed and len(known) == len(topic.partitions) and old.name == topic.name:
            kept = old
        else:
            delta.changed_topics[topic_id] = TopicDelta(topic_id, topic.name, old, topic, changed)
        by_name[kept.name] = by_id[topic_id] = kept
    return TopicsImage(by_name, by_id)
