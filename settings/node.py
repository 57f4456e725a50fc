"""The settings of all nodes: identity, listeners, voters, limits.

The attribute of a key is its name with underscores for dots. A key is a field here, in `broker.py` or in
`controller.py`, if and only if the code acts on it, or it is in `effects.py` (for defaults of topics see `topic.py`).
Defaults are Kafka's. Reads no file; `loading.py` fills these models.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from functools import cached_property

from barnabas.settings.definitions import without_listener
from barnabas.settings.effects import WITHOUT_EFFECT_IN_SECURITY, WITHOUT_EFFECT_YET
from barnabas.settings.errors import SettingsError
from barnabas.settings.listeners import Endpoint, Listener, Voter
from barnabas.settings.topic import BROKER_SYNONYMS, TopicConfig

_LONG_MAX = (1 << 63) - 1
_INT_MAX = (1 << 31) - 1
_HOUR_MS = 3600 * 1000


HTTP_LISTENER = "barnabas.http.listener"
"""A key that Kafka does not have: the `host:port` of health, metrics and decisions over HTTP. Kafka ignores it."""


HTTP_TOKEN_FILE = "barnabas.http.token.file"
"""A key that Kafka does not have: the file with the token that protects the pages of `HTTP_LISTENER`."""


MEMORY_LIMIT = "barnabas.memory.limit.bytes"
"""A key that Kafka does not have: bytes of memory that clients may make the node use, at least `LEAST_MEMORY_BYTES`."""

LEAST_MEMORY_BYTES = 64 << 20

QUOTA_SCOPE = "barnabas.quota.scope"
"""A key that Kafka does not have: quotas of bytes hold for each broker, as in Kafka, or for the whole cluster."""

LEGACY_CLIENTS = "barnabas.legacy.clients.enable"
"""A key that Kafka does not have: serve clients before Kafka 0.11, and convert records for them."""

BROKER_SCOPE, CLUSTER_SCOPE = "broker", "cluster"


ADVERTISED_AS_SEEN = "barnabas.advertised.as.seen"
"""A key that Kafka does not have: names of listeners whose clients get, as the address of this broker, the one that
they connected to."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """A node's settings. Times are milliseconds and sizes bytes unless the name says otherwise.

    Values are checked where they are parsed: those of one key by its `KeyDefinition`, rules between keys by `check`.
    """

    raw: dict[str, str] = field(default_factory=dict, repr=False)
    """The values of the file and the overrides, as text: DescribeConfigs distinguishes them from defaults."""
    not_acted_on: list[str] = field(default_factory=list)
    """Kafka's keys that were set but have no effect here; logged once when the node starts."""

    node_id: int
    process_roles: list[str]
    log_dirs: list[str] = field(default_factory=lambda: ["/tmp/kafka-logs"])
    """`log.dirs`, else `log.dir`."""
    metadata_log_dir: str | None = None
    """Use `metadata_directory`."""

    listeners: list[Listener]
    advertised_listeners: list[Listener] = field(default_factory=list)
    """The addresses for clients and other nodes; by default the listeners themselves."""
    http_listener: Endpoint | None = None
    """Address of health, metrics and decisions over HTTP; None: not served. Its key is `HTTP_LISTENER`."""
    http_token_file: str | None = None
    """The file with the token that protects these pages; None: everybody may read them. Its key is
    `HTTP_TOKEN_FILE`."""
    listener_security_protocol_map: dict[str, str] = field(default_factory=dict)
    controller_listener_names: list[str]
    socket_listen_backlog_size: int = 50
    socket_request_max_bytes: int = 104857600
    socket_connection_setup_timeout_ms: int = 10000
    max_connections: int = _INT_MAX
    max_connections_per_ip: int = _INT_MAX
    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = _INT_MAX
    connections_max_idle_ms: int = 600000
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    memory_limit_bytes: int | None = None
    """The memory that clients may make the node use; None: a quarter of the machine's, at most 1 GiB. Its key is
    `MEMORY_LIMIT`."""
    legacy_clients_enable: bool = False
    remote_storage_compacted_enable: bool = False
    """Its key is `LEGACY_CLIENTS`; only brokers act on it."""
    advertised_as_seen: list[str] = field(default_factory=list)
    """Names of listeners. Its key is `ADVERTISED_AS_SEEN`; only brokers act on it."""
    quota_scope: str = BROKER_SCOPE
    """`BROKER_SCOPE` or `CLUSTER_SCOPE`. Its key is `QUOTA_SCOPE`; only brokers act on it."""
    request_timeout_ms: int = 30000
    server_max_startup_time_ms: int = _LONG_MAX

    controller_quorum_voters: list[Voter] = field(default_factory=list)
    controller_quorum_bootstrap_servers: list[Endpoint] = field(default_factory=list)
    controller_quorum_append_linger_ms: int = 25
    controller_quorum_election_backoff_max_ms: int = 1000
    controller_quorum_election_timeout_ms: int = 1000
    controller_quorum_fetch_max_bytes: int = 1048576
    controller_quorum_fetch_snapshot_max_bytes: int = 1048576
    controller_quorum_fetch_timeout_ms: int = 2000
    controller_quorum_request_timeout_ms: int = 2000
    controller_quorum_retry_backoff_ms: int = 20
    controller_socket_timeout_ms: int = 30000

    metadata_log_max_record_bytes_between_snapshots: int = 20971520
    metadata_log_max_snapshot_interval_ms: int = _HOUR_MS
    metadata_log_segment_bytes: int = 1 << 30
    metadata_log_segment_ms: int = 7 * 24 * _HOUR_MS
    internal_metadata_log_segment_bytes: int | None = None
    internal_metadata_max_batch_size_in_bytes: int = 8388608
    internal_metadata_delete_delay_millis: int = 60000
    metadata_max_retention_bytes: int = 104857600
    metadata_max_retention_ms: int = 7 * 24 * _HOUR_MS
    metadata_max_idle_interval_ms: int = 500

    authorizer_class_name: str = ""
    """Empty: everybody may do everything."""
    super_users: list[str] = field(default_factory=list)
    """Principals as `Type:name`."""
    allow_everyone_if_no_acl_found: bool = False
    early_start_listeners: list[str] = field(default_factory=list)

    broker_session_timeout_ms: int = 9000
    broker_heartbeat_interval_ms: int = 2000
    default_replication_factor: int = 1
    num_partitions: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    max_request_partition_size_limit: int = 2000
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    remote_log_storage_system_enable: bool = False
    delegation_token_secret_key: str | None = field(default=None, repr=False)
    """The same on all nodes. None or empty: the cluster has no delegation tokens."""
    unstable_api_versions_enable: bool = False
    unstable_feature_versions_enable: bool = False

    @property
    def is_combined(self) -> bool:
        """It is a broker and a controller."""
        return len(self.process_roles) > 1

    @property
    def metadata_directory(self) -> str:
        """The log directory that holds `__cluster_metadata-0`."""
        return self.metadata_log_dir or self.log_dirs[0]

    @cached_property
    def topic_defaults(self) -> TopicConfig:
        """The config of a topic without overrides on this node, without dynamic configs."""
        return TopicConfig.resolve({}, self.raw)

    @property
    def all_log_dirs(self) -> list[str]:
        """The log directories and, if it is not one of them, the metadata directory."""
        return self.log_dirs + [each for each in [self.metadata_directory] if each not in self.log_dirs]

    def check(self) -> list[str]:
        """Check rules between keys. Returns warnings; raises `SettingsError` (without a place) for an error."""
        if not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers:
            raise SettingsError(
                "this or controller.quorum.bootstrap.servers must be set",
                "controller.quorum.voters",
                "",
                "id@host:port,…",
            )
        for listener in self.advertised_listeners:
            if listener.host in ("0.0.0.0", "::"):
                raise SettingsError(
                    "clients cannot connect to this address; set advertised.listeners to one that they can reach",
                    "advertised.listeners" if "advertised.listeners" in self.raw else "listeners",
                    str(listener),
                )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise SettingsError(
                "must not be below socket.request.max.bytes: one request must fit",
                "queued.max.request.bytes",
                str(self.queued_max_request_bytes),
                f"-1 or {self.socket_request_max_bytes} (socket.request.max.bytes) or more",
            )
        warnings = []
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            warnings.append(
                f"broker.heartbeat.interval.ms ({self.broker_heartbeat_interval_ms}) is more than half of"
                f" broker.session.timeout.ms ({self.broker_session_timeout_ms}): one lost heartbeat fences the broker"
            )
        if self.authorizer_class_name and self.http_token_file is None and _is_reachable(self.http_listener):
            warnings.append(
                f"{HTTP_LISTENER} ({self.http_listener}) shows names of topics, groups and users to everybody who"
                f" reaches it; set {HTTP_TOKEN_FILE} to protect its pages"
            )
        if self.authorizer_class_name and not self.super_users:
            warnings.append(
                "super.users is empty: controllers need the principals of nodes there to form a quorum, because only"
                " super users have rights before the access control lists are loaded"
            )
        return warnings


def _is_reachable(endpoint: Endpoint | None) -> bool:
    """True for an endpoint that other machines may reach."""
    return endpoint is not None and endpoint.host not in ("127.0.0.1", "::1", "localhost")


def field_names(model: type[NodeSettings]) -> Set[str]:
    """Names of the fields of a model."""
    return model.__dataclass_fields__.keys()


def acts_on(model: type[NodeSettings], key: str) -> bool:
    """True if a key has an effect in a node of this kind."""
    key = without_listener(key)
    if key in WITHOUT_EFFECT_YET:
        return False
    if key.startswith(("ssl.", "sasl.")):
        return key not in WITHOUT_EFFECT_IN_SECURITY
    return key.replace(".", "_") in field_names(model) or key in _READ_IN_OTHER_WAYS or key in _TOPIC_DEFAULTS


_READ_IN_OTHER_WAYS = frozenset(
    [
        "broker.id",
        "client.quota.callback.class",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "log.dir",
        "metric.reporters",
        "security.inter.broker.protocol",
    ]
)
_TOPIC_DEFAULTS = frozenset(name for synonyms in BROKER_SYNONYMS.values() for name, _factor in synonyms)
