"""The table of handlers for requests on a broker's listeners. An API that is not in it is not advertised.

Handlers that every client needs are imported here. All others are in rooms (`broker/rooms/`): a broker for development
loads one with the first request for one of its APIs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.api_versions import ApiVersionsPorts, api_versions
from barnabas.broker.apis.fetch import fetch
from barnabas.broker.apis.fetch_reads import FetchPorts
from barnabas.broker.apis.find_coordinator import FindCoordinatorPorts, find_coordinator
from barnabas.broker.apis.list_offsets import ListOffsetsPorts, list_offsets, offset_for_leader_epoch
from barnabas.broker.apis.metadata import MetadataPorts, metadata
from barnabas.broker.apis.produce import produce
from barnabas.broker.apis.produce_request import ProducePorts
from barnabas.broker.apis.producer_ids import ProducerIdPorts, init_producer_id
from barnabas.broker.metadata_publisher import MetadataPublisher
from barnabas.kraft.authorizer.requirements import ON_BROKERS
from barnabas.kraft.controller_apis import load_late_parts
from barnabas.kraft.rights import with_rights
from barnabas.protocol.api_keys import LEGACY_VERSIONS, ApiKey
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.runtime.call import Call, Execution, Stopwatch
from barnabas.runtime.dispatch import Dispatcher, Handler
from barnabas.runtime.late import Late
from barnabas.runtime.rooms import Handlers
from barnabas.runtime.sasl.handlers import SASL_HANDLERS
from barnabas.runtime.server import Steps
from barnabas.settings.broker import BrokerSettings

if TYPE_CHECKING:
    from barnabas.broker.parts import BrokerParts

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


ROOMS: Mapping[str, tuple[ApiKey, ...]] = {
    "barnabas.broker.rooms.records_admin:records_admin_handlers": (
        ApiKey.DELETE_RECORDS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
    ),
    "barnabas.broker.rooms.cluster_admin:cluster_admin_handlers": (
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    "barnabas.broker.rooms.groups:group_handlers": (
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
    ),
    "barnabas.broker.rooms.group_admin:group_admin_handlers": (
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    ),
    "barnabas.broker.rooms.consumer_groups:consumer_group_handlers": (ApiKey.CONSUMER_GROUP_HEARTBEAT,),
    "barnabas.broker.rooms.streams:streams_handlers": (ApiKey.STREAMS_GROUP_HEARTBEAT,),
    "barnabas.broker.rooms.transactions:transaction_handlers": (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    "barnabas.broker.rooms.shares:share_handlers": (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
}
"""The maker of the handlers of each room, which takes the parts of a broker, and the APIs that the room serves."""

TELEMETRY = "barnabas.broker.rooms.telemetry:telemetry_handlers"
TELEMETRY_APIS = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)

PAGES = "barnabas.broker.node_pages:make_observatory"
"""Makes the pages over HTTP."""


def load_rooms() -> None:
    """Load all of them: processes that are forked from this one share their memory."""
    load_late_parts()
    for maker in (*ROOMS, TELEMETRY, PAGES):
        Late(maker).load()


def handlers_in_rooms(parts: BrokerParts) -> Handlers:
    """The handlers that a broker for development loads with the first request for them."""
    handlers: Handlers = {}
    for maker, keys in ROOMS.items():
        handlers |= parts.rooms.handlers(maker, keys, parts)
    if parts.telemetry is not None:
        handlers |= parts.rooms.handlers(TELEMETRY, TELEMETRY_APIS, parts.telemetry, parts.world.monotonic)
    return handlers


@dataclass(frozen=True, slots=True)
class DataPorts:
    """Ports of the handlers that every client needs."""

    publisher: MetadataPublisher
    metadata: MetadataPorts
    coordinators: FindCoordinatorPorts
    produce: ProducePorts
    fetch: FetchPorts
    producer_ids: ProducerIdPorts


def data_handlers(ports: DataPorts) -> Handlers:
    offsets = ListOffsetsPorts(ports.fetch.lookup, ports.fetch.remote)
    return {
        ApiKey.PRODUCE: when_here(ports.publisher, partial(produce, ports.produce)),
        ApiKey.FETCH: when_here(ports.publisher, partial(fetch, ports.fetch)),
        ApiKey.LIST_OFFSETS: when_here(ports.publisher, partial(list_offsets, offsets)),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(offset_for_leader_epoch, ports.fetch.lookup),
        ApiKey.METADATA: partial(metadata, ports.metadata),
        ApiKey.FIND_COORDINATOR: partial(find_coordinator, ports.coordinators),
        ApiKey.INIT_PRODUCER_ID: partial(init_producer_id, ports.producer_ids),
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
