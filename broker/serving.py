"""How clients reach the parts of a broker: handlers, the dispatcher, and the server."""

from __future__ import annotations

from functools import partial

from barnabas.broker.apis.api_versions import ApiVersionsPorts
from barnabas.broker.apis.fetch_reads import FetchPorts
from barnabas.broker.apis.find_coordinator import FindCoordinatorPorts
from barnabas.broker.apis.metadata import MetadataPorts
from barnabas.broker.apis.produce_request import ProducePorts
from barnabas.broker.apis.producer_ids import ProducerIdPorts
from barnabas.broker.apis.remote_fetch import RemoteReadPorts
from barnabas.broker.dispatch import FORWARDED, DataPorts, data_handlers, handlers_in_rooms, make_dispatcher
from barnabas.broker.parts import BrokerParts
from barnabas.broker.seen_addresses import SeenAddresses
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.dispatch import Dispatcher, Execution, Handler
from barnabas.runtime.rooms import Handlers
from barnabas.runtime.server import Server


def dispatcher_of(parts: BrokerParts) -> Dispatcher:
    """A dispatcher with a handler for each API of a broker."""
    handlers: Handlers = dict.fromkeys(FORWARDED, parts.forwarding.forward)
    handlers |= handlers_in_rooms(parts)
    handlers |= _data_handlers(parts, transactional=handlers[ApiKey.INIT_PRODUCER_ID])
    world = parts.world
    authorizer = None if parts.authorization is None else parts.authorization.authorizer
    dispatcher = make_dispatcher(
        handlers,
        ApiVersionsPorts(parts.metadata, parts.telemetry, lambda: parts.metadata_log.replica.kraft_version),
        world.stopwatch,
        Execution(parts.background, parts.worker, world.count_work, authorizer, throttling=parts.quotas.requests),
        parts.settings,
    )
    dispatcher.decisions = parts.decisions
    if parts.controller is not None:
        dispatcher.count_together(parts.controller.dispatcher)
    return dispatcher


def make_server(parts: BrokerParts) -> Server:
    """A server that does not listen yet, in front of the dispatcher."""
    server = Server(parts.world, parts.dispatcher, parts.limits, parts.worker)
    server.on_long_turn = parts.dispatcher.overran
    server.connection_quotas.ip_limit = parts.quotas.ip_limit
    server.on_connection_closed = partial(_connection_closed, parts)
    if seen := frozenset(parts.static.advertised_as_seen):
        parts.metadata.as_seen = SeenAddresses(parts.static.node_id, seen, server.local_address).of
    return server


def _data_handlers(parts: BrokerParts, transactional: Handler) -> Handlers:
    """`transactional`: serves InitProducerId with a transactional id."""
    world, settings = parts.world, parts.current_settings
    lookup = parts.lookup
    produce = ProducePorts(
        lookup=lookup,
        slow_admissions=parts.slow_admissions,
        conversions=parts.produce_conversions,
        wheel=parts.wheel,
        monotonic=world.monotonic,
        wall_clock=world.wall_clock,
        worker=parts.worker,
        verifier=lambda: parts.coordination.verifier,
        deliveries=lambda: parts.deliveries,
        settings=settings,
    )
    fetch = FetchPorts(
        lookup=lookup,
        metadata=parts.metadata,
        sessions=parts.sessions,
        fetches=parts.fetches,
        deletions=parts.deletions,
        report_follower=parts.partitions.follower_fetches,
        bytes_out=parts.bytes_out,
        conversions=parts.fetch_conversions,
        monotonic=world.monotonic,
        settings=settings,
        throttle=parts.throttles.leader,
        remote=_remote_ports(parts),
    )
    coordination = parts.coordination
    metadata = MetadataPorts(parts.static.node_id, parts.metadata, coordination.auto_topics, world.monotonic)
    coordinators = FindCoordinatorPorts(
        parts.metadata, coordination.auto_topics.create_internal, coordination.may_have_lost
    )
    producer_ids = ProducerIdPorts(coordination.producer_ids, coordination.ports.broker_epoch, transactional)
    return data_handlers(DataPorts(parts.publisher, metadata, coordinators, produce, fetch, producer_ids))


def _remote_ports(parts: BrokerParts) -> RemoteReadPorts | None:
    if parts.remote is None:
        return None
    return RemoteReadPorts(parts.remote.reading.reads, parts.wheel, parts.world.monotonic, parts.current_settings)


def _connection_closed(parts: BrokerParts, connection_id: int) -> None:
    if (shares := parts.late_shares.here) is not None:
        shares.connection_closed(connection_id)
    if parts.telemetry is not None:
        parts.telemetry.disconnected(connection_id)
