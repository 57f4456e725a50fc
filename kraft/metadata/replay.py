"""`ImageReplay`: carries a run of metadata records into the next image, noting what changed.

Each dict of the image is copied the first time a record touches it and written in place from then on, so a
run of records costs one copy of what it touches, however long it is. Replaying is the only way state changes,
on every node and at every time: live, at start, from a snapshot.

Knows nothing of offsets (except the one the finished image carries), of transactions (`loader.py`), or of why
a record was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.features import KRAFT_VERSION, METADATA_VERSION
from barnabas.kraft.metadata.image import (
    LEADER_RECOVERY_NO_CHANGE,
    MIGRATING_DIRECTORY,
    NO_LEADER_CHANGE,
    TOPIC_RESOURCE,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    Endpoint,
    FeatureRange,
    FeaturesImage,
    MetadataImage,
    OthersImage,
    PartitionImage,
    ProducerIdsImage,
    QuotaEntity,
    TopicImage,
    TopicsImage,
    acl_key,
)
from barnabas.protocol.broker_hosts import named_host
from barnabas.protocol.messages import metadata_log as log

K = TypeVar("K")
V = TypeVar("V")

STEP_RECORDS = 100
"""Records that are replayed in one step. Between steps other tasks run."""

SEEN_PER_RECORD = 10
"""Partitions that are looked at, and do not change, cost as much as one record."""


class ReplayError(Exception):
    """A record contradicts the image it is applied to: the log is damaged, or its writer has a bug."""


class _Shared(Generic[K, V]):
    """A dict of the old image until it is first written, a copy of it from then on."""

    __slots__ = ("_copied", "current")

    def __init__(self, original: dict[K, V]) -> None:
        self.current = original
        self._copied = False

    def writable(self) -> dict[K, V]:
        if not self._copied:
            self.current = dict(self.current)
            self._copied = True
        return self.current


class ImageReplay:
    """One run of records. Use once: `replay` each record in order, or take its `steps`, then `finish`."""

    def __init__(self, before: MetadataImage) -> None:
        self.replayed = 0
        """Number of records that were replayed."""
        self._work = 0
        """Records of the current step."""
        self._before = before
        self._delta = MetadataDelta(before=before, after=before)
        self._metadata_version = before.features.metadata_version
        self._finalized = _Shared(before.features.finalized)
        self._brokers = _Shared(before.cluster.brokers)
        self._controllers = _Shared(before.cluster.controllers)
        self._topics_by_name = _Shared(before.topics.by_name)
        self._topics_by_id = _Shared(before.topics.by_id)
        self._configs = _Shared(before.configs)
        self._overrides: dict[ConfigResource, dict[str, str]] = {}
        """Overrides that were copied already, by resource."""
        self._next_producer_id = before.producer_ids.next_producer_id
        self._acls = _Shared(before.others.acls)
        self._acl_ids = _Shared(before.others.acl_ids)
        self._scram = _Shared(before.others.scram)
        self._quotas = _Shared(before.others.quotas)
        self._delegation_tokens = _Shared(before.others.delegation_tokens)

    def replay(self, record: object) -> None:
        """Raises `ReplayError` if the record does not fit; this run must then be thrown away."""
        for _ in self.steps(record):
            pass

    def steps(self, record: object) -> Iterator[None]:
        """Replay a record in steps: each ends when the run has done the work of `STEP_RECORDS` records since the last
        one. Raises `ReplayError` as `replay` does."""
        if type(record) is log.ClearElrRecord:
            yield from self._clear_elr(record)
        else:
            handler = _HANDLERS.get(type(record))
            if handler is None:
                raise ReplayError(f"no rule to replay a {type(record).__name__}")
            handler(self, record)
        self.replayed += 1
        if self._is_step_full(1):
            yield

    def _is_step_full(self, records: int) -> bool:
        self._work += records
        if self._work < STEP_RECORDS:
            return False
        self._work = 0
        return True

    def finish(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        """The delta whose `after` is the image at `offset`, the offset of the last record."""
        before, delta = self._before, self._delta
        features, cluster, topics = before.features, before.cluster, before.topics
        producer_ids, others = before.producer_ids, before.others
        if delta.changed_features:
            features = FeaturesImage(self._metadata_version, self._finalized.current)
        if delta.changed_brokers or delta.changed_controllers:
            cluster = ClusterImage(self._brokers.current, self._controllers.current)
        if delta.changed_topics or delta.deleted_topics or self._topics_by_id.current is not topics.by_id:
            topics = TopicsImage(self._topics_by_name.current, self._topics_by_id.current)
        if delta.producer_ids_changed:
            producer_ids = ProducerIdsImage(self._next_producer_id)
        if delta.others_changed:
            others = OthersImage(
                self._acls.current,
                self._acl_ids.current,
                self._scram.current,
                self._quotas.current,
                self._delegation_tokens.current,
            )
        delta.after = MetadataImage(
            offset,
            epoch,
            timestamp_ms,
            features,
            cluster,
            topics,
            self._configs.current,
            producer_ids,
            others,
        )
        return delta

    # Features

    def _feature_level(self, record: log.FeatureLevelRecord) -> None:
        """Any level: a later record may lower it. Nodes check the levels before they act on an image."""
        if record.name == KRAFT_VERSION:
            return  # control records hold it (KAFKA-18979)
        if record.name == METADATA_VERSION:
            self._metadata_version = record.feature_level
        elif record.feature_level == 0:
            self._finalized.writable().pop(record.name, None)
        else:
            self._finalized.writable()[record.name] = record.feature_level
        self._delta.changed_features[record.name] = record.feature_level

    # Brokers and controllers

    def _register_broker(self, record: log.RegisterBrokerRecord) -> None:
        self._put_broker(
            BrokerImage(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                listeners=_listeners(record.end_points),
                features=_feature_ranges(record.features),
                rack=record.rack,
                host=named_host(record),
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_directories=tuple(sorted(record.log_dirs)),
                cordoned_log_directories=tuple(sorted(record.cordoned_log_dirs or ())),
            )
        )

    def _put_broker(self, broker: BrokerImage) -> None:
        self._brokers.writable()[broker.id] = broker
        self._delta.changed_brokers[broker.id] = broker

    def _broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self._brokers.current.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise ReplayError(f"broker {broker_id} is not registered with epoch {broker_epoch}")
        return broker

    def _unregister_broker(self, record: log.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._brokers.writable()[record.broker_id]
        self._delta.changed_brokers[record.broker_id] = None

    def _fence_broker(self, record: log.FenceBrokerRecord) -> None:
        self._put_broker(replace(self._broker(record.id, record.epoch), fenced=True))
        self._delta.fenced_on_evidence[record.id] = None

    def _unfence_broker(self, record: log.UnfenceBrokerRecord) -> None:
        self._put_broker(replace(self._broker(record.id, record.epoch), fenced=False))

    def _broker_registration_change(self, record: log.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = replace(broker, fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, log_directories=tuple(sorted(record.log_dirs)))
        if record.cordoned_log_dirs is not None:
            broker = replace(broker, cordoned_log_directories=tuple(sorted(record.cordoned_log_dirs)))
        self._put_broker(broker)

    def _register_controller(self, record: log.RegisterControllerRecord) -> None:
        controller = ControllerImage(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            listeners=_listeners(record.end_points),
            features=_feature_ranges(record.features),
        )
        self._controllers.writable()[controller.id] = controller
        self._delta.changed_controllers[controller.id] = controller

    # Topics and partitions

    def _topic(self, topic_id: bytes) -> TopicDelta:
        """The delta of a topic, open for changes of its partitions."""
        change = self._delta.changed_topics.get(topic_id)
        if change is None:
            before = self._topics_by_id.current.get(topic_id)
            if before is None:
                raise ReplayError(f"there is no topic with id {topic_id.hex()}")
            change = self._open_topic(before.name, topic_id, before)
        return change

    def _open_topic(self, name: str, topic_id: bytes, before: TopicImage | None) -> TopicDelta:
        after = TopicImage(name, topic_id, {} if before is None else dict(before.partitions))
        self._topics_by_id.writable()[topic_id] = after
        self._topics_by_name.writable()[name] = after
        change = TopicDelta(id=topic_id, name=name, before=before, after=after)
        self._delta.changed_topics[topic_id] = change
        return change

    def _put_partition(self, change: TopicDelta, partition_id: int, partition: PartitionImage) -> None:
        change.after.partitions[partition_id] = partition
        change.changed_partitions[partition_id] = partition

    def _create_topic(self, record: log.TopicRecord) -> None:
        if record.name in self._topics_by_name.current or record.topic_id in self._topics_by_id.current:
            raise ReplayError(f"topic {record.name} ({record.topic_id.hex()}) exists already")
        self._open_topic(record.name, record.topic_id, None)

    def _partition(self, record: log.PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        partition = PartitionImage(
            replicas=replicas,
            directories=_directories(replicas, tuple(record.directories)),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )
        self._put_partition(self._topic(record.topic_id), record.partition_id, partition)

    def _partition_change(self, record: log.PartitionChangeRecord) -> None:
        change = self._topic(record.topic_id)
        partition = change.after.partitions.get(record.partition_id)
        if partition is None:
            raise ReplayError(f"there is no partition {change.name}-{record.partition_id}")
        self._put_partition(change, record.partition_id, merge_change(partition, record))

    def _remove_topic(self, record: log.RemoveTopicRecord) -> None:
        topic = self._topics_by_id.writable().pop(record.topic_id, None)
        if topic is None:
            raise ReplayError(f"there is no topic with id {record.topic_id.hex()}")
        del self._topics_by_name.writable()[topic.name]
        self._delta.changed_topics.pop(record.topic_id, None)
        before = self._before.topics.by_id.get(record.topic_id)
        if before is not None:
            self._delta.deleted_topics[record.topic_id] = before
        # A later topic of the same name starts without the configs of this one.
        resource = (TOPIC_RESOURCE, topic.name)
        overrides = self._configs.writable().pop(resource, None)
        self._overrides.pop(resource, None)
        if overrides:
            self._changed_config(resource).update(dict.fromkeys(overrides))

    def _clear_elr(self, record: log.ClearElrRecord) -> Iterator[None]:
        """Clear the ELRs of a topic, or of all."""
        by_name = self._topics_by_name.current
        if record.topic_name and record.topic_name not in by_name:
            raise ReplayError(f"there is no topic {record.topic_name}")
        topics = [by_name[record.topic_name]] if record.topic_name else list(by_name.values())
        seen = 0
        for topic in topics:
            for partition_id, partition in list(topic.partitions.items()):
                seen += 1
                if seen % SEEN_PER_RECORD == 0 and self._is_step_full(1):
                    yield
                if partition.elr or partition.last_known_elr:
                    cleared = replace(
                        partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    self._put_partition(self._topic(topic.id), partition_id, cleared)
                    if self._is_step_full(1):
                        yield

    # Configs, producer ids

    def _changed_config(self, resource: ConfigResource) -> dict[str, str | None]:
        return self._delta.changed_configs.setdefault(resource, {})

    def _config(self, record: log.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        changed = self._changed_config(resource)
        configs = self._configs.writable()
        overrides = self._overrides.get(resource)
        if overrides is None:
            overrides = self._overrides[resource] = dict(configs.get(resource, {}))
        if record.value is None:
            overrides.pop(record.name, None)
        else:
            overrides[record.name] = record.value
        if overrides:
            configs[resource] = overrides
        else:
            configs.pop(resource, None)
        changed[record.name] = record.value

    def _producer_ids(self, record: log.ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise ReplayError(f"next producer id {record.next_producer_id} would go back from {self._next_producer_id}")
        self._next_producer_id = record.next_producer_id
        self._delta.producer_ids_changed = True

    # Access rights, users, quotas

    def _access_control_entry(self, record: log.AccessControlEntryRecord) -> None:
        self._acls.writable()[record.id] = self._delta.changed_acls[record.id] = record
        self._acl_ids.writable()[acl_key(record)] = record.id
        self._delta.others_changed = True

    def _remove_access_control_entry(self, record: log.RemoveAccessControlEntryRecord) -> None:
        removed = self._acls.writable().pop(record.id, None)
        if removed is not None and self._acl_ids.current.get(acl_key(removed)) == record.id:
            del self._acl_ids.writable()[acl_key(removed)]
        self._delta.changed_acls[record.id] = None
        self._delta.others_changed = True

    def _user_scram_credential(self, record: log.UserScramCredentialRecord) -> None:
        self._scram.writable()[(record.name, record.mechanism)] = record
        self._delta.others_changed = True

    def _remove_user_scram_credential(self, record: log.RemoveUserScramCredentialRecord) -> None:
        self._scram.writable().pop((record.name, record.mechanism), None)
        self._delta.others_changed = True

    def _client_quota(self, record: log.ClientQuotaRecord) -> None:
        entity = quota_entity(record)
        values = dict(self._quotas.current.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._quotas.writable()[entity] = values
        else:
            self._quotas.writable().pop(entity, None)
        self._delta.changed_quotas[entity] = values or None
        self._delta.others_changed = True

    def _delegation_token(self, record: log.DelegationTokenRecord) -> None:
        self._delegation_tokens.writable()[record.token_id] = record
        self._delta.others_changed = True

    def _remove_delegation_token(self, record: log.RemoveDelegationTokenRecord) -> None:
        self._delegation_tokens.writable().pop(record.token_id, None)
        self._delta.others_changed = True

    def _nothing(self, record: object) -> None:
        """Records that only move the log on, or speak of a migration that is over."""


def merge_change(partition: PartitionImage, record: log.PartitionChangeRecord) -> PartitionImage:
    """The partition after `record`: every field it names is replaced, the partition epoch grows by one, and
    the leader epoch does too if a leader is named, even the same one."""
    replicas, directories = partition.replicas, partition.directories
    if record.replicas is not None or record.directories is not None:
        replicas = _merged(replicas, record.replicas)
        directories = directories if record.directories is None else tuple(record.directories)
        directories = _directories(replicas, directories)
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, leader_epoch = record.leader, leader_epoch + 1
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        directories=directories,
        isr=_merged(partition.isr, record.isr),
        removing_replicas=_merged(partition.removing_replicas, record.removing_replicas),
        adding_replicas=_merged(partition.adding_replicas, record.adding_replicas),
        elr=_merged(partition.elr, record.eligible_leader_replicas),
        last_known_elr=_merged(partition.last_known_elr, record.last_known_elr),
        leader=leader,
        leader_recovery_state=(partition.leader_recovery_state if recovery == LEADER_RECOVERY_NO_CHANGE else recovery),
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
    )


def _merged(before: tuple[int, ...], change: list[int] | None) -> tuple[int, ...]:
    return before if change is None else tuple(change)


def _directories(replicas: tuple[int, ...], directories: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """One directory for each replica; records of before KIP-858 name none."""
    if all(directory == MIGRATING_DIRECTORY for directory in directories):
        return (MIGRATING_DIRECTORY,) * len(replicas)
    if len(directories) != len(replicas):
        raise ReplayError(f"{len(replicas)} replicas, but {len(directories)} directories")
    return directories


def _listeners(endpoints: list[log.BrokerEndpoint] | list[log.ControllerEndpoint]) -> dict[str, Endpoint]:
    return {it.name: Endpoint(it.host, it.port, it.security_protocol) for it in endpoints}


def _feature_ranges(
    features: list[log.BrokerFeature] | list[log.ControllerFeature],
) -> dict[str, FeatureRange]:
    return {it.name: (it.min_supported_version, it.max_supported_version) for it in features}


def quota_entity(record: log.ClientQuotaRecord) -> QuotaEntity:
    """The entity of a quota as a key: its parts in a fixed order."""
    parts = [(it.entity_type, it.entity_name) for it in record.entity]
    return tuple(sorted(parts, key=quota_part_order))


def quota_part_order(part: tuple[str, str | None]) -> tuple[str, bool, str]:
    """Sort key of one part of a quota's entity: the default entity comes before those with a name."""
    return part[0], part[1] is not None, part[1] or ""


_HANDLERS: dict[type, Callable[[ImageReplay, Any], None]] = {
    log.FeatureLevelRecord: ImageReplay._feature_level,
    log.RegisterBrokerRecord: ImageReplay._register_broker,
    log.UnregisterBrokerRecord: ImageReplay._unregister_broker,
    log.FenceBrokerRecord: ImageReplay._fence_broker,
    log.UnfenceBrokerRecord: ImageReplay._unfence_broker,
    log.BrokerRegistrationChangeRecord: ImageReplay._broker_registration_change,
    log.RegisterControllerRecord: ImageReplay._register_controller,
    log.TopicRecord: ImageReplay._create_topic,
    log.PartitionRecord: ImageReplay._partition,
    log.PartitionChangeRecord: ImageReplay._partition_change,
    log.RemoveTopicRecord: ImageReplay._remove_topic,
    log.ConfigRecord: ImageReplay._config,
    log.ProducerIdsRecord: ImageReplay._producer_ids,
    log.AccessControlEntryRecord: ImageReplay._access_control_entry,
    log.RemoveAccessControlEntryRecord: ImageReplay._remove_access_control_entry,
    log.UserScramCredentialRecord: ImageReplay._user_scram_credential,
    log.RemoveUserScramCredentialRecord: ImageReplay._remove_user_scram_credential,
    log.ClientQuotaRecord: ImageReplay._client_quota,
    log.DelegationTokenRecord: ImageReplay._delegation_token,
    log.RemoveDelegationTokenRecord: ImageReplay._remove_delegation_token,
    log.NoOpRecord: ImageReplay._nothing,
    log.ZkMigrationStateRecord: ImageReplay._nothing,
}
