"""The APIs: their keys, the versions a node serves, and where.

A message class may cover more versions than are served (`VERSIONS` of the class); the ranges here are those of Kafka
4.3. Message modules are imported when a type is first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from importlib import import_module
from types import MappingProxyType

from barnabas.protocol.schema import Message


class ApiKey(IntEnum):
    """Every live API. Keys 4 to 7 were retired with ZooKeeper."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


NEVER_FLEXIBLE = 1 << 15
"""Above all versions."""


class ApiSpec:
    """Facts about one API that a node needs before it reads a body."""

    __slots__ = (
        "cluster_action",
        "flexible_from",
        "flexible_header_from",
        "forwardable",
        "key",
        "listeners",
        "loaded_request_type",
        "loaded_response_type",
        "max_version",
        "min_version",
        "name",
        "unstable_version",
    )

    def __init__(  # noqa: PLR0913 - made in one table
        self,
        key: ApiKey,
        versions: tuple[int, int],
        flexible_from: int | None,
        listeners: frozenset[str],
        *,
        cluster_action: bool = False,
        forwardable: bool = False,
        unstable_version: int | None = None,
    ) -> None:
        self.key = key
        self.name = key.name.title().replace("_", "")
        """Kafka's name of the API, such as `FindCoordinator`."""
        self.min_version, self.max_version = versions
        self.unstable_version = unstable_version
        """A version that Kafka 4.3 defines but does not call stable: nodes serve it only if a setting says so, and
        clients use it only if a caller asks for it. None if there is none.
        """
        self.flexible_from = flexible_from
        """First flexible version of the request and the response, or None."""
        self.flexible_header_from = NEVER_FLEXIBLE
        """First version whose response has a header of version 1, which may have tagged fields.

        That of ApiVersions stays at 0: its caller may not know yet which versions the node speaks (KIP-511).
        """
        if flexible_from is not None and key is not ApiKey.API_VERSIONS:
            self.flexible_header_from = flexible_from
        self.listeners = listeners
        """Kinds of listener that serve it: "broker", "controller"."""
        self.cluster_action = cluster_action
        """True if only nodes of the cluster may call it."""
        self.forwardable = forwardable
        """True if brokers forward it to the active controller."""
        self.loaded_request_type: type[Message] | None = None
        """None until `request_type` was called."""
        self.loaded_response_type: type[Message] | None = None

    @property
    def advertised_min_version(self) -> int:
        """The lowest version in an ApiVersions response: below `min_version` for Produce alone. librdkafka takes a
        missing version 0 as "no Produce" (KAFKA-18659)."""
        return 0 if self.key is ApiKey.PRODUCE else self.min_version

    def request_type(self) -> type[Message]:
        if self.loaded_request_type is None:
            self._load()
            assert self.loaded_request_type is not None
        return self.loaded_request_type

    def response_type(self) -> type[Message]:
        if self.loaded_response_type is None:
            self._load()
            assert self.loaded_response_type is not None
        return self.loaded_response_type

    def request_header_version(self, version: int) -> int:
        """Version of the header of a request of `version`."""
        return 2 if self.flexible_from is not None and version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """Version of the header of a response of `version`."""
        return 1 if version >= self.flexible_header_from else 0

    def down_to(self, version: int) -> ApiSpec:
        """The same API, served from a lower version on."""
        return ApiSpec(
            self.key,
            (version, self.max_version),
            self.flexible_from,
            self.listeners,
            cluster_action=self.cluster_action,
            forwardable=self.forwardable,
            unstable_version=self.unstable_version,
        )

    def serves(self, version: int) -> bool:
        """True if requests of `version` are answered."""
        return self.min_version <= version <= self.max_version

    def __repr__(self) -> str:
        return f"{self.name} {self.min_version}-{self.max_version}"

    def _load(self) -> None:
        module = import_module(f"barnabas.protocol.messages.{self.key.name.lower()}")
        self.loaded_request_type = getattr(module, self.name + "Request")
        self.loaded_response_type = getattr(module, self.name + "Response")


_B = frozenset({"broker"})
_C = frozenset({"controller"})
_BC = frozenset({"broker", "controller"})


def _specs() -> tuple[ApiSpec, ...]:
    # key, lowest and highest version served, first flexible version, listeners
    # fmt: off
    return (
        ApiSpec(ApiKey.PRODUCE, (3, 13), 9, _B),
        ApiSpec(ApiKey.FETCH, (4, 18), 12, _BC),
        ApiSpec(ApiKey.LIST_OFFSETS, (1, 11), 6, _B),
        ApiSpec(ApiKey.METADATA, (0, 13), 9, _B),
        ApiSpec(ApiKey.OFFSET_COMMIT, (2, 10), 8, _B),
        ApiSpec(ApiKey.OFFSET_FETCH, (1, 10), 6, _B),
        ApiSpec(ApiKey.FIND_COORDINATOR, (0, 6), 3, _B),
        ApiSpec(ApiKey.JOIN_GROUP, (0, 9), 6, _B),
        ApiSpec(ApiKey.HEARTBEAT, (0, 4), 4, _B),
        ApiSpec(ApiKey.LEAVE_GROUP, (0, 5), 4, _B),
        ApiSpec(ApiKey.SYNC_GROUP, (0, 5), 4, _B),
        ApiSpec(ApiKey.DESCRIBE_GROUPS, (0, 6), 5, _B),
        ApiSpec(ApiKey.LIST_GROUPS, (0, 5), 3, _B),
        ApiSpec(ApiKey.SASL_HANDSHAKE, (0, 1), None, _BC),
        ApiSpec(ApiKey.API_VERSIONS, (0, 4), 3, _BC),
        ApiSpec(ApiKey.CREATE_TOPICS, (2, 7), 5, _BC, forwardable=True),
        ApiSpec(ApiKey.DELETE_TOPICS, (1, 6), 4, _BC, forwardable=True),
        ApiSpec(ApiKey.DELETE_RECORDS, (0, 2), 2, _B),
        ApiSpec(ApiKey.INIT_PRODUCER_ID, (0, 5), 2, _B, unstable_version=6),
        ApiSpec(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4, _B),
        ApiSpec(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), 3, _B),
        ApiSpec(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3, _B),
        ApiSpec(ApiKey.END_TXN, (0, 5), 3, _B),
        ApiSpec(ApiKey.WRITE_TXN_MARKERS, (1, 2), 1, _B, cluster_action=True),
        ApiSpec(ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3, _B),
        ApiSpec(ApiKey.DESCRIBE_ACLS, (1, 3), 2, _BC),
        ApiSpec(ApiKey.CREATE_ACLS, (1, 3), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.DELETE_ACLS, (1, 3), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.DESCRIBE_CONFIGS, (1, 4), 4, _BC),
        ApiSpec(ApiKey.ALTER_CONFIGS, (0, 2), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), 2, _B),
        ApiSpec(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), 2, _B),
        ApiSpec(ApiKey.SASL_AUTHENTICATE, (0, 2), 2, _BC),
        ApiSpec(ApiKey.CREATE_PARTITIONS, (0, 3), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.CREATE_DELEGATION_TOKEN, (1, 3), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.DESCRIBE_DELEGATION_TOKEN, (1, 3), 2, _BC),
        ApiSpec(ApiKey.DELETE_GROUPS, (0, 2), 2, _B),
        ApiSpec(ApiKey.ELECT_LEADERS, (0, 2), 2, _BC, forwardable=True),
        ApiSpec(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1, _BC, forwardable=True),
        ApiSpec(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), 0, _BC, forwardable=True),
        ApiSpec(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), 0, _BC, forwardable=True),
        ApiSpec(ApiKey.OFFSET_DELETE, (0, 0), None, _B),
        ApiSpec(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), 1, _B),
        ApiSpec(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), 1, _BC, forwardable=True),
        ApiSpec(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), 0, _BC),
        ApiSpec(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), 0, _BC, forwardable=True),
        ApiSpec(ApiKey.VOTE, (0, 2), 0, _C, cluster_action=True),
        ApiSpec(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1), 1, _C, cluster_action=True),
        ApiSpec(ApiKey.END_QUORUM_EPOCH, (0, 1), 1, _C, cluster_action=True),
        ApiSpec(ApiKey.DESCRIBE_QUORUM, (0, 2), 0, _BC, cluster_action=True, forwardable=True),
        ApiSpec(ApiKey.ALTER_PARTITION, (2, 3), 0, _C, cluster_action=True),
        ApiSpec(ApiKey.UPDATE_FEATURES, (0, 2), 0, _BC, cluster_action=True, forwardable=True),
        ApiSpec(ApiKey.ENVELOPE, (0, 0), 0, _C, cluster_action=True),
        ApiSpec(ApiKey.FETCH_SNAPSHOT, (0, 1), 0, _C),
        ApiSpec(ApiKey.DESCRIBE_CLUSTER, (0, 2), 0, _BC),
        ApiSpec(ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0, _B),
        ApiSpec(ApiKey.BROKER_REGISTRATION, (0, 4), 0, _C, cluster_action=True),
        ApiSpec(ApiKey.BROKER_HEARTBEAT, (0, 2), 0, _C, cluster_action=True),
        ApiSpec(ApiKey.UNREGISTER_BROKER, (0, 0), 0, _BC, forwardable=True),
        ApiSpec(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0, _B),
        ApiSpec(ApiKey.LIST_TRANSACTIONS, (0, 2), 0, _B),
        ApiSpec(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), 0, _C, cluster_action=True, forwardable=True),
        ApiSpec(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), 0, _B),
        ApiSpec(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), 0, _B),
        ApiSpec(ApiKey.CONTROLLER_REGISTRATION, (0, 0), 0, _C),
        ApiSpec(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, (0, 0), 0, _B),
        ApiSpec(ApiKey.PUSH_TELEMETRY, (0, 0), 0, _B),
        ApiSpec(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), 0, _C),
        ApiSpec(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), 0, _B),
        ApiSpec(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), 0, _B),
        ApiSpec(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), 0, _B),
        ApiSpec(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), 0, _B),
        ApiSpec(ApiKey.SHARE_FETCH, (1, 2), 0, _B),
        ApiSpec(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), 0, _B),
        ApiSpec(ApiKey.ADD_RAFT_VOTER, (0, 1), 0, _BC, forwardable=True),
        ApiSpec(ApiKey.REMOVE_RAFT_VOTER, (0, 0), 0, _BC, forwardable=True),
        ApiSpec(ApiKey.UPDATE_RAFT_VOTER, (0, 0), 0, _C),
        ApiSpec(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0), 0, _B, cluster_action=True),
        ApiSpec(ApiKey.READ_SHARE_GROUP_STATE, (0, 0), 0, _B, cluster_action=True),
        ApiSpec(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), 0, _B, cluster_action=True),
        ApiSpec(ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0), 0, _B, cluster_action=True),
        ApiSpec(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), 0, _B, cluster_action=True),
        ApiSpec(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 0), 0, _B),
        ApiSpec(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), 0, _B),
        ApiSpec(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), 0, _B),
        ApiSpec(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), 0, _B),
        ApiSpec(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), 0, _B),
    )
    # fmt: on


API_SPECS: Mapping[ApiKey, ApiSpec] = MappingProxyType({spec.key: spec for spec in _specs()})

LEGACY_VERSIONS: Mapping[ApiKey, int] = MappingProxyType(
    {ApiKey.PRODUCE: 0, ApiKey.FETCH: 0, ApiKey.LIST_OFFSETS: 0, ApiKey.OFFSET_COMMIT: 1}
)
"""The lowest versions that clients before Kafka 0.11 need; Kafka 4.0 dropped them (KIP-896)."""
