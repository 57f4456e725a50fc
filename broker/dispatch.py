"""Which handler serves which request on a broker's listeners. What is not in this table is not advertised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.acls import describe_acls
from broker.apis.api_versions import api_versions
from broker.apis.classic_groups import heartbeat, join_group, leave_group, sync_group
from broker.apis.configs import describe_configs, incremental_alter_configs, list_config_resources
from broker.apis.consumer_groups import consumer_group_heartbeat
from broker.apis.delete_records import delete_records
from broker.apis.describe_cluster import describe_cluster, describe_topic_partitions
from broker.apis.describe_producers import describe_producers
from broker.apis.fetch import fetch
from broker.apis.find_coordinator import find_coordinator
from broker.apis.group_admin import consumer_group_describe, delete_groups, describe_groups, list_groups
from broker.apis.group_offsets import offset_commit, offset_delete, offset_fetch, txn_offset_commit
from broker.apis.list_offsets import list_offsets, offset_for_leader_epoch
from broker.apis.log_dirs import describe_log_dirs
from broker.apis.markers import write_txn_markers
from broker.apis.metadata import metadata
from broker.apis.produce import produce
from broker.apis.producer_ids import init_producer_id
from broker.apis.telemetry import get_telemetry_subscriptions, push_telemetry
from broker.apis.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from broker.forwarding import forward
from broker.telemetry import Software
from protocol.api_keys import ApiKey
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest
from runtime.dispatch import Call, Dispatcher, Execution, Handler
from runtime.server import Steps

if TYPE_CHECKING:
    from broker.services import BrokerServices

ServedHere = Callable[["BrokerServices", Call], Steps | None]


def when_here(serve: ServedHere) -> ServedHere:
    """For partitions that were just created, and whose logs this broker is still making, the request waits for them:
    that takes milliseconds, and "not here, ask again" would cost the client a whole pause.
    """

    def serve_when_here(broker: BrokerServices, call: Call) -> Steps | None:
        publisher = broker.publisher
        if publisher.behind is not None and any(map(publisher.is_bringing, _topics(call.message))):
            publisher.afterwards(call.guarded(partial(late, broker, call)))
            return None
        return serve(broker, call)

    def late(broker: BrokerServices, call: Call) -> None:
        steps = serve_when_here(broker, call)
        if steps is not None:
            call.spawn(call.take_steps, steps)

    return serve_when_here


def _topics(message: Any) -> Iterator[str | bytes]:
    """The topics that a Produce, a ListOffsets or a consumer's Fetch names, by name or id."""
    if isinstance(message, FetchRequest):
        if max(message.replica_id, message.replica_state.replica_id) < 0:
            # A follower asks for many partitions at once, and again soon: those that are here do not wait.
            for asked in message.topics:
                yield asked.topic or asked.topic_id
        return
    for topic in message.topic_data if isinstance(message, ProduceRequest) else message.topics:
        yield topic.name or getattr(topic, "topic_id", b"")


SERVED_HERE: dict[ApiKey, ServedHere] = {
    ApiKey.PRODUCE: when_here(produce),
    ApiKey.FETCH: when_here(fetch),
    ApiKey.LIST_OFFSETS: when_here(list_offsets),
    ApiKey.METADATA: metadata,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.END_TXN: end_txn,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
}

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
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
)


def make_dispatcher(broker: BrokerServices) -> Dispatcher:
    handlers: dict[ApiKey, Handler] = {key: partial(serve, broker) for key, serve in SERVED_HERE.items()}
    for key in FORWARDED:
        handlers[key] = partial(forward, broker)

    telemetry = broker.telemetry
    if telemetry is not None:
        monotonic = broker.world.monotonic
        handlers[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS] = partial(get_telemetry_subscriptions, telemetry, monotonic)
        handlers[ApiKey.PUSH_TELEMETRY] = partial(push_telemetry, telemetry, monotonic)

    def tell_versions(call: Call) -> None:
        if telemetry is not None:
            software = Software(call.message.client_software_name, call.message.client_software_version)
            telemetry.connected(call.request.connection_id, software)
        api_versions(broker, call, advertised)

    handlers[ApiKey.API_VERSIONS] = tell_versions
    execution = Execution(broker.background, broker.worker, broker.world.count_work)
    dispatcher = Dispatcher(handlers, broker.world.stopwatch, execution)
    advertised = dispatcher.advertised()
    return dispatcher
