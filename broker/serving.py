"""How clients reach the parts of a broker: handlers, the dispatcher, and the server."""

from __future__ import annotations

from functools import partial

from barnabas.broker.apis.alter_replica_log_dirs import AlterLogDirsPorts
from barnabas.broker.apis.api_versions import ApiVersionsPorts
from barnabas.broker.apis.configs import ConfigPorts
from barnabas.broker.apis.delegation_tokens import TokenPorts
from barnabas.broker.apis.delete_records import DeleteRecordsPorts
from barnabas.broker.apis.describe_cluster import ClusterPorts
from barnabas.broker.apis.fetch_reads import FetchPorts
from barnabas.broker.apis.log_dirs import LogDirPorts
from barnabas.broker.apis.metadata import MetadataPorts
from barnabas.broker.apis.produce_request import ProducePorts
from barnabas.broker.apis.remote_fetch import RemoteReadPorts
from barnabas.broker.apis.share_calls import SharePorts
from barnabas.broker.dispatch import (
    ClusterHandlerPorts,
    DataPorts,
    Handlers,
    cluster_handlers,
    data_handlers,
    make_dispatcher,
    share_handlers,
    telemetry_handlers,
)
from barnabas.broker.parts import BrokerParts
from barnabas.broker.seen_addresses import SeenAddresses
from barnabas.broker.shares.remote_records import SharedRemoteRecords
from barnabas.runtime.dispatch import Dispatcher, Execution
from barnabas.runtime.server import Server


def dispatcher_of(parts: BrokerParts) -> Dispatcher:
    """A dispatcher with a handler for each API of a broker."""
    handlers = _data_handlers(parts) | _cluster_handlers(parts) | _share_handlers(parts)
    handlers |= parts.coordination.handlers(parts.group_lags.ends)
    handlers |= telemetry_handlers(parts.telemetry, parts.world.monotonic)
    world = parts.world
    authorizer = None if parts.authorization is None else parts.authorization.authorizer
    dispatcher = make_dispatcher(
        handlers,
        ApiVersionsPorts(parts.metadata, parts.telemetry, lambda: parts.metadata_log.replica.kraft_version),
        world.stopwatch,
        Execution(
            parts.background,
            parts.worker,
            world.count_work,
            authorizer,
            throttling=parts.quotas.requests,
            step_cpu_seconds=world.step_cpu_seconds,
        ),
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


def _data_handlers(parts: BrokerParts) -> Handlers:
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
        verifier=parts.coordination.verifier,
        deliveries=parts.deliveries,
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
    deletions = DeleteRecordsPorts(lookup, parts.deletions, world.monotonic)
    log_dirs = LogDirPorts(
        parts.store.directories, parts.partitions, parts.fetchers.lag, world.disk, parts.cordoned_ids
    )
    alter_log_dirs = AlterLogDirsPorts(
        parts.store, parts.partitions, parts.log_dir_moves, parts.cordoned_ids, world.wall_clock
    )
    return data_handlers(DataPorts(parts.publisher, lookup, produce, fetch, deletions, log_dirs, alter_log_dirs))


def _remote_ports(parts: BrokerParts) -> RemoteReadPorts | None:
    if parts.remote is None:
        return None
    return RemoteReadPorts(parts.remote.reading.reads, parts.wheel, parts.world.monotonic, parts.current_settings)


def _share_handlers(parts: BrokerParts) -> Handlers:
    return share_handlers(
        SharePorts(
            shares=parts.shares,
            lookup=parts.lookup,
            metadata=parts.metadata,
            configs=parts.share_configs,
            is_enabled=parts.share_groups_are_enabled,
            monotonic=parts.world.monotonic,
            settings=parts.current_settings,
            bytes_out=parts.bytes_out,
            remote=None
            if parts.remote is None
            else SharedRemoteRecords(parts.remote.reading.reads, parts.shares.partitions.wake),
        )
    )


def _cluster_handlers(parts: BrokerParts) -> Handlers:
    node_id, settings = parts.static.node_id, parts.current_settings
    metadata = MetadataPorts(node_id, parts.metadata, parts.coordination.auto_topics, parts.world.monotonic)
    configs = ConfigPorts(
        node_id,
        parts.static.raw,
        parts.metadata,
        parts.forwarding.forward,
        tuple(parts.static.log_dirs),
        parts.security.sasl_refusal,
    )
    tokens = TokenPorts(
        parts.metadata,
        parts.forwarding.forward,
        parts.static.listener_security_protocol_map,
        parts.static.delegation_token_secret_key or "",
    )
    return cluster_handlers(ClusterHandlerPorts(metadata, ClusterPorts(parts.metadata, settings), configs, tokens))


def _connection_closed(parts: BrokerParts, connection_id: int) -> None:
    parts.shares.connection_closed(connection_id)
    if parts.telemetry is not None:
        parts.telemetry.disconnected(connection_id)
