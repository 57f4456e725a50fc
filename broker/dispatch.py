"""Which handler serves which request on a broker's listeners. What is not in this table is not advertised."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.apis.acls import describe_acls
from broker.apis.api_versions import api_versions
from broker.apis.configs import describe_configs, incremental_alter_configs, list_config_resources
from broker.apis.delete_records import delete_records
from broker.apis.describe_cluster import describe_cluster, describe_topic_partitions
from broker.apis.describe_producers import describe_producers
from broker.apis.fetch import fetch
from broker.apis.find_coordinator import find_coordinator
from broker.apis.list_offsets import list_offsets, offset_for_leader_epoch
from broker.apis.log_dirs import describe_log_dirs
from broker.apis.metadata import metadata
from broker.apis.produce import produce
from broker.apis.producer_ids import init_producer_id
from broker.forwarding import forward
from protocol.api_keys import ApiKey
from runtime.dispatch import Call, Dispatcher, Handler

if TYPE_CHECKING:
    from broker.services import BrokerServices

ServedHere = Callable[["BrokerServices", Call], None]

SERVED_HERE: dict[ApiKey, ServedHere] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
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

    def tell_versions(call: Call) -> None:
        api_versions(broker, call, advertised)

    handlers[ApiKey.API_VERSIONS] = tell_versions
    dispatcher = Dispatcher(handlers)
    advertised = dispatcher.advertised()
    return dispatcher
