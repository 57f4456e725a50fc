"""The tables of handlers for requests on a broker's listeners. An API that is not in them is not advertised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.broker.apis.alter_replica_log_dirs import AlterLogDirsPorts, alter_replica_log_dirs
from barnabas.broker.apis.api_versions import ApiVersionsPorts, api_versions
from barnabas.broker.apis.classic_groups import heartbeat, join_group, leave_group, sync_group
from barnabas.broker.apis.client_quotas import describe_client_quotas
from barnabas.broker.apis.configs import ConfigPorts, describe_configs, incremental_alter_configs, list_config_resources
from barnabas.broker.apis.consumer_groups import consumer_group_heartbeat
from barnabas.broker.apis.delegation_tokens import TokenPorts, change_delegation_token, describe_delegation_token
from barnabas.broker.apis.delete_records import DeleteRecordsPorts, delete_records
from barnabas.broker.apis.describe_cluster import ClusterPorts, describe_cluster, describe_topic_partitions
from barnabas.broker.apis.describe_producers import describe_producers
from barnabas.broker.apis.fetch import fetch
from barnabas.broker.apis.fetch_reads import FetchPorts
from barnabas.broker.apis.find_coordinator import FindCoordinatorPorts, find_coordinator
from barnabas.broker.apis.group_admin import delete_groups, list_groups
from barnabas.broker.apis.group_calls import GroupShards
from barnabas.broker.apis.group_describe import (
    consumer_group_describe,
    describe_groups,
    share_group_describe,
    streams_group_describe,
)
from barnabas.broker.apis.group_offsets import TransactionalOffsetPorts, offset_commit, offset_delete, txn_offset_commit
from barnabas.broker.apis.list_offsets import ListOffsetsPorts, list_offsets, offset_for_leader_epoch
from barnabas.broker.apis.log_dirs import LogDirPorts, describe_log_dirs
from barnabas.broker.apis.markers import MarkerPorts, write_txn_markers
from barnabas.broker.apis.metadata import MetadataPorts, metadata
from barnabas.broker.apis.offset_fetch import offset_fetch
from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.produce import produce
from barnabas.broker.apis.produce_request import ProducePorts
from barnabas.broker.apis.producer_ids import ProducerIdPorts, init_producer_id
from barnabas.broker.apis.scram_users import describe_user_scram_credentials
from barnabas.broker.apis.share_acknowledge import share_acknowledge
from barnabas.broker.apis.share_calls import SharePorts
from barnabas.broker.apis.share_fetch import share_fetch
from barnabas.broker.apis.share_group_offsets import (
    ShareOffsetPorts,
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from barnabas.broker.apis.share_groups import share_group_heartbeat
from barnabas.broker.apis.share_state import ShareStatePorts, share_group_state
from barnabas.broker.apis.streams_groups import StreamsGroupPorts, streams_group_heartbeat
from barnabas.broker.apis.telemetry import get_telemetry_subscriptions, push_telemetry
from barnabas.broker.apis.transactions import (
    AddOffsetsPorts,
    AddPartitionsPorts,
    TransactionShards,
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from barnabas.broker.metadata_publisher import MetadataPublisher
from barnabas.broker.shares.state import ShareStateStore
from barnabas.broker.telemetry import ClientTelemetry
from barnabas.kraft.acl_requests import describe_acls
from barnabas.kraft.authorizer.requirements import ON_BROKERS
from barnabas.kraft.rights import with_rights
from barnabas.protocol.api_keys import LEGACY_VERSIONS, ApiKey
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.runtime.call import Call, Execution, Stopwatch
from barnabas.runtime.dispatch import Dispatcher, Handler
from barnabas.runtime.sasl.handlers import SASL_HANDLERS
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Clock
from barnabas.settings.broker import BrokerSettings

Handlers = dict[ApiKey, Handler]

FORWARDED = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_CLIENT_QUOTAS,
)


@dataclass(frozen=True, slots=True)
class DataPorts:
    """Ports of the handlers that read and write partitions."""

    publisher: MetadataPublisher
    lookup: PartitionLookup
    produce: ProducePorts
    fetch: FetchPorts
    delete_records: DeleteRecordsPorts
    log_dirs: LogDirPorts
    alter_log_dirs: AlterLogDirsPorts


def data_handlers(ports: DataPorts) -> Handlers:
    offsets = ListOffsetsPorts(ports.lookup, ports.fetch.remote)
    return {
        ApiKey.PRODUCE: when_here(ports.publisher, partial(produce, ports.produce)),
        ApiKey.FETCH: when_here(ports.publisher, partial(fetch, ports.fetch)),
        ApiKey.LIST_OFFSETS: when_here(ports.publisher, partial(list_offsets, offsets)),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(offset_for_leader_epoch, ports.lookup),
        ApiKey.DELETE_RECORDS: partial(delete_records, ports.delete_records),
        ApiKey.DESCRIBE_PRODUCERS: partial(describe_producers, ports.lookup),
        ApiKey.DESCRIBE_LOG_DIRS: partial(describe_log_dirs, ports.log_dirs),
        ApiKey.ALTER_REPLICA_LOG_DIRS: partial(alter_replica_log_dirs, ports.alter_log_dirs),
    }


@dataclass(frozen=True, slots=True)
class ClusterHandlerPorts:
    """Ports of the handlers that describe and configure the cluster."""

    metadata: MetadataPorts
    cluster: ClusterPorts
    configs: ConfigPorts
    tokens: TokenPorts


def cluster_handlers(ports: ClusterHandlerPorts) -> Handlers:
    forwarded: Handlers = dict.fromkeys(FORWARDED, ports.configs.forward)
    change_token = partial(change_delegation_token, ports.tokens)
    return forwarded | {
        ApiKey.METADATA: partial(metadata, ports.metadata),
        ApiKey.DESCRIBE_CLUSTER: partial(describe_cluster, ports.cluster),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: partial(describe_topic_partitions, ports.cluster),
        ApiKey.DESCRIBE_ACLS: partial(describe_acls, lambda: ports.metadata.metadata.image),
        ApiKey.DESCRIBE_CONFIGS: partial(describe_configs, ports.configs),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(incremental_alter_configs, ports.configs),
        ApiKey.LIST_CONFIG_RESOURCES: partial(list_config_resources, ports.configs),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(describe_user_scram_credentials, ports.configs.metadata),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(describe_client_quotas, ports.configs.metadata),
        ApiKey.CREATE_DELEGATION_TOKEN: change_token,
        ApiKey.RENEW_DELEGATION_TOKEN: change_token,
        ApiKey.EXPIRE_DELEGATION_TOKEN: change_token,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: partial(describe_delegation_token, ports.tokens),
    }


@dataclass(frozen=True, slots=True)
class GroupHandlerPorts:
    """Ports of the handlers of groups."""

    groups: GroupShards
    share_states: ShareStateStore
    consumer_protocol_is_enabled: Callable[[], bool]
    find_coordinator: FindCoordinatorPorts
    transactional_offsets: TransactionalOffsetPorts


def group_handlers(ports: GroupHandlerPorts) -> Handlers:
    groups, is_enabled, offsets = ports.groups, ports.consumer_protocol_is_enabled, ports.transactional_offsets
    return {
        ApiKey.FIND_COORDINATOR: partial(find_coordinator, ports.find_coordinator),
        ApiKey.JOIN_GROUP: partial(join_group, groups),
        ApiKey.HEARTBEAT: partial(heartbeat, groups),
        ApiKey.LEAVE_GROUP: partial(leave_group, groups),
        ApiKey.SYNC_GROUP: partial(sync_group, groups),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: partial(consumer_group_heartbeat, groups, is_enabled),
        ApiKey.DESCRIBE_GROUPS: partial(describe_groups, groups),
        ApiKey.CONSUMER_GROUP_DESCRIBE: partial(consumer_group_describe, groups, is_enabled),
        ApiKey.LIST_GROUPS: partial(list_groups, groups),
        ApiKey.DELETE_GROUPS: partial(delete_groups, groups, ports.share_states),
        ApiKey.OFFSET_COMMIT: partial(offset_commit, offsets.offsets),
        ApiKey.OFFSET_FETCH: partial(offset_fetch, offsets.offsets),
        ApiKey.OFFSET_DELETE: partial(offset_delete, offsets.offsets),
        ApiKey.TXN_OFFSET_COMMIT: partial(txn_offset_commit, offsets),
    }


@dataclass(frozen=True, slots=True)
class TransactionHandlerPorts:
    """Ports of the handlers of transactions."""

    transactions: TransactionShards
    producer_ids: ProducerIdPorts
    add_partitions: AddPartitionsPorts
    add_offsets: AddOffsetsPorts
    markers: MarkerPorts


def transaction_handlers(ports: TransactionHandlerPorts) -> Handlers:
    return {
        ApiKey.INIT_PRODUCER_ID: partial(init_producer_id, ports.producer_ids),
        ApiKey.ADD_PARTITIONS_TO_TXN: partial(add_partitions_to_txn, ports.add_partitions),
        ApiKey.ADD_OFFSETS_TO_TXN: partial(add_offsets_to_txn, ports.add_offsets),
        ApiKey.END_TXN: partial(end_txn, ports.transactions),
        ApiKey.WRITE_TXN_MARKERS: partial(write_txn_markers, ports.markers),
        ApiKey.DESCRIBE_TRANSACTIONS: partial(describe_transactions, ports.transactions),
        ApiKey.LIST_TRANSACTIONS: partial(list_transactions, ports.transactions),
    }


def share_group_handlers(ports: ShareOffsetPorts) -> Handlers:
    groups, is_enabled = ports.groups, ports.is_enabled
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: partial(share_group_heartbeat, groups, is_enabled),
        ApiKey.SHARE_GROUP_DESCRIBE: partial(share_group_describe, groups, is_enabled),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: partial(describe_share_group_offsets, ports),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: partial(alter_share_group_offsets, ports),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: partial(delete_share_group_offsets, ports),
    }


def streams_group_handlers(ports: StreamsGroupPorts) -> Handlers:
    return {
        ApiKey.STREAMS_GROUP_HEARTBEAT: partial(streams_group_heartbeat, ports),
        ApiKey.STREAMS_GROUP_DESCRIBE: partial(streams_group_describe, ports.groups, ports.is_enabled),
    }


def share_state_handlers(ports: ShareStatePorts) -> Handlers:
    """Handlers of the requests that share coordinators get."""
    return dict.fromkeys(
        (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        partial(share_group_state, ports),
    )


def share_handlers(ports: SharePorts) -> Handlers:
    """Handlers of the requests of members of share groups to the leaders of their partitions."""
    return {
        ApiKey.SHARE_FETCH: partial(share_fetch, ports),
        ApiKey.SHARE_ACKNOWLEDGE: partial(share_acknowledge, ports),
    }


def telemetry_handlers(telemetry: ClientTelemetry | None, monotonic: Clock) -> Handlers:
    if telemetry is None:
        return {}
    return {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: partial(get_telemetry_subscriptions, telemetry, monotonic),
        ApiKey.PUSH_TELEMETRY: partial(push_telemetry, telemetry, monotonic),
    }


def make_dispatcher(
    handlers: Mapping[ApiKey, Handler],
    versions: ApiVersionsPorts,
    stopwatch: Stopwatch,
    execution: Execution,
    settings: BrokerSettings,
) -> Dispatcher:
    """The dispatcher of these handlers, and of ApiVersions, which advertises them and itself."""

    def answer_versions(call: Call) -> None:
        api_versions(versions, advertised, call)

    table = {**SASL_HANDLERS, **with_rights(handlers, ON_BROKERS, execution), ApiKey.API_VERSIONS: answer_versions}
    has_unstable = settings.transaction_two_phase_commit_enable or settings.unstable_api_versions_enable
    unstable = (ApiKey.INIT_PRODUCER_ID,) if has_unstable else ()
    lowest = LEGACY_VERSIONS if settings.legacy_clients_enable else {}
    dispatcher = Dispatcher(table, stopwatch, execution, FORWARDED, unstable, lowest)
    advertised = dispatcher.advertised()
    return dispatcher


def when_here(publisher: MetadataPublisher, handler: Handler) -> Handler:
    """`handler`, but a request for partitions that were just created, and whose logs this broker is still making, waits
    for them: that takes milliseconds, and an error would cost the client a whole retry backoff.
    """

    def handle_when_here(call: Call) -> Steps | None:
        if publisher.waiting and any(map(publisher.is_bringing, _topics(call.message))):
            publisher.afterwards(call.guarded(partial(late, call)))
            return None
        return handler(call)

    def late(call: Call) -> None:
        steps = handle_when_here(call)
        if steps is not None:
            call.spawn(call.take_steps, steps)

    return handle_when_here


def _topics(message: Any) -> Iterator[str | bytes]:
    """The topics that a Produce, a ListOffsets or a consumer's Fetch names, by name or id."""
    if isinstance(message, FetchRequest):
        if max(message.replica_id, message.replica_state.replica_id) < 0:
            # A follower fetches many partitions at once, and soon again: those that are here do not wait.
            for asked in message.topics:
                yield asked.topic or asked.topic_id
        return
    for topic in message.topic_data if isinstance(message, ProduceRequest) else message.topics:
        yield topic.name or getattr(topic, "topic_id", b"")
