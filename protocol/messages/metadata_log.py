"""Records of the metadata log `__cluster_metadata`, framed by `protocol.records.metadata` (KIP-631)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class BrokerEndpoint(Struct):
    name: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)
    security_protocol: int = field(INT16, "0+", default=0)


class BrokerFeature(Struct):
    name: str = field(STRING, "0+", default="")
    min_supported_version: int = field(INT16, "0+", default=0)
    max_supported_version: int = field(INT16, "0+", default=0)


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    """A broker registered with a new epoch; it replaces an earlier registration (KIP-631, KIP-858).
    Versions 0 to 4; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    is_migrating_zk_broker: bool = field(BOOL, "2+", default=False)
    incarnation_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    broker_epoch: int = field(INT64, "0+", default=0)
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint), "0+", factory=list)
    features: list[BrokerFeature] = field(array(BrokerFeature), "0+", factory=list)
    rack: str | None = field(STRING, "0+", default="", nullable="0+")
    fenced: bool = field(BOOL, "0+", default=True)
    in_controlled_shutdown: bool = field(BOOL, "1+", default=False)
    log_dirs: list[bytes] = field(array(UUID), "3+", factory=list, tag=0)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "4+", default=None, nullable="4+", tag=1)


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    """A broker registration was removed for good. Version 0; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=0)


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    """A topic was created; its partitions follow as PartitionRecord. Version 0; flexible."""

    name: str = field(STRING, "0+", default="")
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    """A partition was created, or a snapshot has all of it (KIP-631, KIP-704, KIP-858, KIP-966).
    Versions 0 to 2; flexible."""

    partition_id: int = field(INT32, "0+", default=-1)
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    replicas: list[int] = field(array(INT32), "0+", factory=list)
    isr: list[int] = field(array(INT32), "0+", factory=list)
    removing_replicas: list[int] = field(array(INT32), "0+", factory=list)
    adding_replicas: list[int] = field(array(INT32), "0+", factory=list)
    leader: int = field(INT32, "0+", default=-1)
    leader_recovery_state: int = field(INT8, "0+", default=0, tag=0)
    leader_epoch: int = field(INT32, "0+", default=-1)
    partition_epoch: int = field(INT32, "0+", default=-1)
    directories: list[bytes] = field(array(UUID), "1+", factory=list)
    eligible_leader_replicas: list[int] | None = field(array(INT32), "2+", default=None, nullable="2+", tag=1)
    last_known_elr: list[int] | None = field(array(INT32), "2+", default=None, nullable="2+", tag=2)


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    """One dynamic configuration of a resource was set, or removed when the value is null. Version 0;
    flexible."""

    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    name: str = field(STRING, "0+", default="")
    value: str | None = field(STRING, "0+", default="", nullable="0+")


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    """A change of a partition; null or the default means unchanged (KIP-631, KIP-704, KIP-858,
    KIP-966). Versions 0 to 2; flexible."""

    partition_id: int = field(INT32, "0+", default=-1)
    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    isr: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+", tag=0)
    leader: int = field(INT32, "0+", default=-2, tag=1)
    replicas: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+", tag=2)
    removing_replicas: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+", tag=3)
    adding_replicas: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+", tag=4)
    leader_recovery_state: int = field(INT8, "0+", default=-1, tag=5)
    directories: list[bytes] | None = field(array(UUID), "1+", default=None, nullable="1+", tag=8)
    eligible_leader_replicas: list[int] | None = field(array(INT32), "2+", default=None, nullable="2+", tag=6)
    last_known_elr: list[int] | None = field(array(INT32), "2+", default=None, nullable="2+", tag=7)


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    """A broker was fenced; BrokerRegistrationChangeRecord took its place. Version 0; flexible."""

    id: int = field(INT32, "0+", default=0)
    epoch: int = field(INT64, "0+", default=0)


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    """A broker was unfenced; BrokerRegistrationChangeRecord took its place. Version 0; flexible."""

    id: int = field(INT32, "0+", default=0)
    epoch: int = field(INT64, "0+", default=0)


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    """A topic and all its partitions were removed. Version 0; flexible."""

    topic_id: bytes = field(UUID, "0+", default=ZERO_UUID)


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed (KIP-900). Version 0; flexible."""

    owner: str = field(STRING, "0+", default="")
    requester: str = field(STRING, "0+", default="")
    renewers: list[str] = field(array(STRING), "0+", factory=list)
    issue_timestamp: int = field(INT64, "0+", default=0)
    max_timestamp: int = field(INT64, "0+", default=0)
    expiration_timestamp: int = field(INT64, "0+", default=0)
    token_id: str = field(STRING, "0+", default="")


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    """A SCRAM credential was created or replaced (KIP-900). Version 0; flexible."""

    name: str = field(STRING, "0+", default="")
    mechanism: int = field(INT8, "0+", default=0)
    salt: bytes = field(BYTES, "0+", default=b"")
    stored_key: bytes = field(BYTES, "0+", default=b"")
    server_key: bytes = field(BYTES, "0+", default=b"")
    iterations: int = field(INT32, "0+", default=0)


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    """A feature was finalized at a level; 0 removes it (KIP-584, KIP-778). Version 0; flexible."""

    name: str = field(STRING, "0+", default="")
    feature_level: int = field(INT16, "0+", default=0)


class EntityData(Struct):
    entity_type: str = field(STRING, "0+", default="")
    entity_name: str | None = field(STRING, "0+", default="", nullable="0+")


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    """A quota of an entity was set or removed (KIP-546). Version 0; flexible."""

    entity: list[EntityData] = field(array(EntityData), "0+", factory=list)
    key: str = field(STRING, "0+", default="")
    value: float = field(FLOAT64, "0+", default=0.0)
    remove: bool = field(BOOL, "0+", default=False)


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    """A block of producer ids was given to a broker; the next block starts at next_producer_id (KIP-730).
    Version 0; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=-1)
    next_producer_id: int = field(INT64, "0+", default=0)


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    """Fencing, controlled shutdown or log directories of a registered broker changed (KIP-841, KIP-858,
    KIP-1066). Versions 0 to 3; flexible."""

    broker_id: int = field(INT32, "0+", default=0)
    broker_epoch: int = field(INT64, "0+", default=0)
    fenced: int = field(INT8, "0+", default=0, tag=0)
    in_controlled_shutdown: int = field(INT8, "1+", default=0, tag=1)
    log_dirs: list[bytes] = field(array(UUID), "2+", factory=list, tag=2)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "3+", default=None, nullable="3+", tag=3)


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    """An ACL binding was created (KIP-801). Version 0; flexible."""

    id: bytes = field(UUID, "0+", default=ZERO_UUID)
    resource_type: int = field(INT8, "0+", default=0)
    resource_name: str = field(STRING, "0+", default="")
    pattern_type: int = field(INT8, "0+", default=0)
    principal: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    operation: int = field(INT8, "0+", default=0)
    permission_type: int = field(INT8, "0+", default=0)


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    """An ACL binding was removed (KIP-801). Version 0; flexible."""

    id: bytes = field(UUID, "0+", default=ZERO_UUID)


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    """Moves the metadata log forward and changes nothing (KIP-835). Version 0; flexible."""


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+"):
    """The progress of a migration from ZooKeeper; only in logs from before 4.0 (KIP-866). Version 0;
    flexible."""

    zk_migration_state: int = field(INT8, "0+", default=0)


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    """A SCRAM credential was removed (KIP-900). Version 0; flexible."""

    name: str = field(STRING, "0+", default="")
    mechanism: int = field(INT8, "0+", default=0)


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+"):
    """Opens a run of records that take effect together at EndTransactionRecord (KIP-868). Version 0;
    flexible."""

    name: str | None = field(STRING, "0+", default=None, nullable="0+", tag=0)


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    """The records since BeginTransactionRecord take effect (KIP-868). Version 0; flexible."""


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+"):
    """Drops the records since BeginTransactionRecord (KIP-868). Version 0; flexible."""

    reason: str | None = field(STRING, "0+", default=None, nullable="0+", tag=0)


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    """A delegation token was removed (KIP-900). Version 0; flexible."""

    token_id: str = field(STRING, "0+", default="")


class ControllerEndpoint(Struct):
    name: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)
    security_protocol: int = field(INT16, "0+", default=0)


class ControllerFeature(Struct):
    name: str = field(STRING, "0+", default="")
    min_supported_version: int = field(INT16, "0+", default=0)
    max_supported_version: int = field(INT16, "0+", default=0)


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    """A controller reported its endpoints and features (KIP-919). Version 0; flexible."""

    controller_id: int = field(INT32, "0+", default=0)
    incarnation_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    zk_migration_ready: bool = field(BOOL, "0+", default=False)
    end_points: list[ControllerEndpoint] = field(array(ControllerEndpoint), "0+", factory=list)
    features: list[ControllerFeature] = field(array(ControllerFeature), "0+", factory=list)


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    """Forget the eligible leader replicas of one topic, or of all when the name is empty (KIP-966). Version
    0; flexible."""

    topic_name: str = field(STRING, "0+", default="")
