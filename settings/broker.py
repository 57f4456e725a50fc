"""The settings of a broker. Those of all nodes are in `node.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.settings.errors import SettingsError
from barnabas.settings.listeners import Listener
from barnabas.settings.loading import Source, load_node
from barnabas.settings.node import NodeSettings
from barnabas.settings.object_store import STORE_URL, StoreSettings
from barnabas.settings.remote_metadata import RemoteMetadataSettings
from barnabas.settings.topic import check_local_retention

_LONG_MAX = (1 << 63) - 1
_INT_MAX = (1 << 31) - 1
_DAY_MS = 24 * 3600 * 1000

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The allowed values of `replica.selector.class` (KIP-392)."""


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(NodeSettings):
    """Every key that a broker acts on; topic defaults (`log.…`) are read through `topic_defaults`."""

    broker_rack: str | None = None
    host: str | None = None
    """The host that this broker shares with others; None: it is alone there. Its key is `settings.host.HOST`."""
    shared_listeners: list[Listener] = field(default_factory=list)
    """Addresses that brokers of one host listen on together. A connection is served as one of the listener with the
    same name. Its key is `settings.host.SHARED_LISTENERS`."""
    inter_broker_listener_name: str = "PLAINTEXT"
    initial_broker_registration_timeout_ms: int = 60000
    controlled_shutdown_enable: bool = True
    auto_create_topics_enable: bool = True
    message_max_bytes: int = 1048588
    compression_type: str = "producer"
    telemetry_max_bytes: int = 1048576

    replica_lag_time_max_ms: int = 30000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1048576
    replica_fetch_response_max_bytes: int = 10485760
    replica_fetch_backoff_ms: int = 1000
    replica_socket_timeout_ms: int = 30000
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    replica_selector_class: str | None = None
    num_replica_fetchers: int = 1
    fetch_max_bytes: int = 57671680
    max_incremental_fetch_session_cache_slots: int = 1000

    log_initial_task_delay_ms: int = 30000
    log_retention_check_interval_ms: int = 300000
    log_flush_scheduler_interval_ms: int = _LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60000
    log_flush_start_offset_checkpoint_interval_ms: int = 60000
    log_dir_failure_timeout_ms: int = 30000
    num_recovery_threads_per_data_dir: int = 2
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_backoff_ms: int = 15000
    log_cleaner_dedupe_buffer_size: int = 134217728
    log_cleaner_io_buffer_size: int = 524288
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    producer_id_expiration_ms: int = _DAY_MS
    producer_id_expiration_check_interval_ms: int = 600000

    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    cordoned_log_dirs: list[str] = field(default_factory=list)
    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_size_seconds: int = 1

    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5000
    offsets_load_buffer_size: int = 5242880
    offsets_retention_check_interval_ms: int = 600000
    offsets_retention_minutes: int = 10080
    offsets_topic_compression_codec: int = 0
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104857600
    group_coordinator_append_linger_ms: int = -1
    group_coordinator_rebalance_protocols: list[str] = field(default_factory=lambda: ["classic", "consumer", "streams"])
    group_initial_rebalance_delay_ms: int = 3000
    group_max_session_timeout_ms: int = 1800000
    group_min_session_timeout_ms: int = 6000
    group_max_size: int = _INT_MAX
    group_consumer_assignment_interval_ms: int = 1000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15000
    group_consumer_assignors: list[str] = field(default_factory=lambda: ["uniform", "range"])
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_min_heartbeat_interval_ms: int = 5000
    group_consumer_max_heartbeat_interval_ms: int = 15000
    group_consumer_session_timeout_ms: int = 45000
    group_consumer_min_session_timeout_ms: int = 45000
    group_consumer_max_session_timeout_ms: int = 60000
    group_consumer_max_size: int = _INT_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600000
    group_share_assignment_interval_ms: int = 1000
    group_share_delivery_count_limit: int = 5
    group_share_heartbeat_interval_ms: int = 5000
    group_share_max_assignment_interval_ms: int = 15000
    group_share_max_delivery_count_limit: int = 10
    group_share_max_heartbeat_interval_ms: int = 15000
    group_share_max_partition_max_record_locks: int = 4000
    group_share_max_record_lock_duration_ms: int = 60000
    group_share_max_session_timeout_ms: int = 60000
    group_share_max_share_sessions: int = 2000
    group_share_max_size: int = 200
    group_share_min_assignment_interval_ms: int = 0
    group_share_min_delivery_count_limit: int = 2
    group_share_min_heartbeat_interval_ms: int = 5000
    group_share_min_partition_max_record_locks: int = 100
    group_share_min_record_lock_duration_ms: int = 15000
    group_share_min_session_timeout_ms: int = 45000
    group_share_partition_max_record_locks: int = 2000
    group_share_record_lock_duration_ms: int = 30000
    group_share_session_timeout_ms: int = 45000
    group_streams_assignment_interval_ms: int = 1000
    group_streams_heartbeat_interval_ms: int = 5000
    group_streams_initial_rebalance_delay_ms: int = 3000
    group_streams_max_assignment_interval_ms: int = 15000
    group_streams_max_heartbeat_interval_ms: int = 15000
    group_streams_max_session_timeout_ms: int = 60000
    group_streams_max_size: int = _INT_MAX
    group_streams_max_standby_replicas: int = 2
    group_streams_min_assignment_interval_ms: int = 0
    group_streams_min_heartbeat_interval_ms: int = 5000
    group_streams_min_session_timeout_ms: int = 45000
    group_streams_num_standby_replicas: int = 0
    group_streams_session_timeout_ms: int = 45000
    errors_deadletterqueue_auto_create_topics_enable: bool = False
    errors_deadletterqueue_topic_name_prefix: str = "dlq."
    share_coordinator_append_linger_ms: int = -1
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300000
    share_coordinator_load_buffer_size: int = 5242880
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_state_topic_compression_codec: int = 0
    share_coordinator_state_topic_min_isr: int = 2
    share_coordinator_state_topic_num_partitions: int = 50
    share_coordinator_state_topic_prune_interval_ms: int = 300000
    share_coordinator_state_topic_replication_factor: int = 3
    share_coordinator_state_topic_segment_bytes: int = 104857600
    share_coordinator_write_timeout_ms: int = 5000

    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10000
    transaction_max_timeout_ms: int = 900000
    transaction_partition_verification_enable: bool = True
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3600000
    transaction_state_log_load_buffer_size: int = 5242880
    transaction_state_log_min_isr: int = 2
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 104857600
    transaction_two_phase_commit_enable: bool = False
    transactional_id_expiration_ms: int = 7 * _DAY_MS
    add_partitions_to_txn_retry_backoff_ms: int = 20
    add_partitions_to_txn_retry_backoff_max_ms: int = 100

    follower_fetch_last_tiered_offset_enable: bool = False
    remote_fetch_max_wait_ms: int = 500
    remote_list_offsets_request_timeout_ms: int = 30000
    remote_log_index_file_cache_total_size_bytes: int = 1 << 30
    remote_log_index_file_cache_ttl_ms: int = 900000
    remote_log_manager_copier_thread_pool_size: int = 10
    remote_log_manager_copy_max_bytes_per_second: int = _LONG_MAX
    remote_log_manager_copy_quota_window_num: int = 11
    remote_log_manager_copy_quota_window_size_seconds: int = 1
    remote_log_manager_expiration_thread_pool_size: int = 10
    remote_log_manager_fetch_max_bytes_per_second: int = _LONG_MAX
    remote_log_manager_fetch_quota_window_num: int = 11
    remote_log_manager_fetch_quota_window_size_seconds: int = 1
    remote_log_manager_follower_thread_pool_size: int = 2
    remote_log_manager_task_interval_ms: int = 30000
    remote_log_manager_task_retry_backoff_ms: int = 500
    remote_log_manager_task_retry_backoff_max_ms: int = 30000
    remote_log_manager_task_retry_jitter: float = 0.2
    remote_log_reader_max_pending_tasks: int = 100
    remote_log_reader_threads: int = 10

    remote_store: StoreSettings | None = None
    """The object store of tiered storage; None: the file names none."""
    remote_log_storage_manager_class_name: str | None = None
    """Kafka's LocalTieredStorage, or a class that has no effect here; use `remote_store`."""
    remote_log_storage_manager_impl_prefix: str = "rsm.config."

    def check(self) -> list[str]:
        """Check rules between keys. Returns warnings; raises `SettingsError` (without a place) for an error."""
        warnings = super().check()
        if self.raw.get("remote.log.storage.system.enable", "").strip().lower() == "true":
            RemoteMetadataSettings.of(self.raw)
        if not self.is_combined and self.node_id in [voter.id for voter in self.controller_quorum_voters]:
            raise SettingsError(
                "the id of a broker must not be in controller.quorum.voters", "node.id", str(self.node_id)
            )
        names = [listener.name for listener in self.advertised_listeners]
        if self.inter_broker_listener_name not in names:
            raise SettingsError(
                "must be the name of a listener of this broker",
                "inter.broker.listener.name",
                self.inter_broker_listener_name,
                " or ".join(names),
            )
        for listener in self.listeners:
            if listener.name in self.controller_listener_names:
                raise SettingsError(
                    f"a broker must not listen on {listener.name}, a name in controller.listener.names",
                    "listeners",
                    str(listener),
                )
        if "*" in self.cordoned_log_dirs and len(self.cordoned_log_dirs) > 1:
            raise SettingsError(
                "must not contain other values if it contains *", "cordoned.log.dirs", ",".join(self.cordoned_log_dirs)
            )
        for path in self.cordoned_log_dirs:
            if path != "*" and path not in self.log_dirs:
                raise SettingsError("must be in log.dirs", "cordoned.log.dirs", path, ",".join(self.log_dirs))
        if self.remote_log_storage_system_enable and self.remote_store is None:
            raise SettingsError(
                f"tiered storage needs a store: set {STORE_URL}", "remote.log.storage.system.enable", "true", "false"
            )
        if self.remote_log_storage_system_enable:
            check_local_retention(self.topic_defaults, "log.")
        for key, most in (
            ("replica.socket.timeout.ms", self.replica_socket_timeout_ms),
            ("replica.lag.time.max.ms", self.replica_lag_time_max_ms),
        ):
            if self.replica_fetch_wait_max_ms > most:
                raise SettingsError(
                    f"must be at most {key}",
                    "replica.fetch.wait.max.ms",
                    str(self.replica_fetch_wait_max_ms),
                    f"0 to {most}",
                )
        return warnings


def load_broker_settings(
    text: str, name: str, overrides: Mapping[str, str] | None = None, *, hostname: str = "localhost"
) -> tuple[BrokerSettings, list[str]]:
    """Settings and warnings from the text of a `.properties` file called `name`.

    `overrides` win over the file. `hostname` is advertised for listeners without a host. Raises `SettingsError`, one
    line, for the first value that cannot be used.
    """
    return load_node(BrokerSettings, "broker", Source(text, name, overrides or {}, hostname))
