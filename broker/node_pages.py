"""The pages of a broker over HTTP: metrics, decisions and state."""

from __future__ import annotations

from functools import partial

from barnabas.broker.coordinator_metrics import coordination_families
from barnabas.broker.delayed.metrics import delayed_families
from barnabas.broker.metrics import (
    BrokerMetrics,
    Families,
    broker_families,
    cleaner_families,
    log_families,
    replica_families,
    throttle_families,
    traffic_families,
    waiting_families,
)
from barnabas.broker.parts import BrokerParts
from barnabas.broker.shares.inspection_page import SharesPorts, shares_page
from barnabas.broker.shares.lags import ShareLags
from barnabas.broker.shares.metrics import share_partition_families
from barnabas.broker.state_page import StatePorts, broker_state_page
from barnabas.kraft.controller_pages import controller_state
from barnabas.kraft.metrics import controller_families
from barnabas.kraft.node_security import security_families
from barnabas.kraft.quotas import OF_BROKERS, OF_CONTROLLERS, connection_families
from barnabas.kraft.raft_metrics import raft_families
from barnabas.runtime.decision_pages import decision_pages
from barnabas.runtime.metrics import (
    BusyClock,
    busy_families,
    process_families,
    request_families,
    server_families,
    space_families,
)
from barnabas.runtime.observatory import Observatory, read_token


def make_observatory(parts: BrokerParts) -> Observatory:
    """The pages, not served yet."""
    world = parts.world
    lags = ShareLags(parts.shares.partitions, world.wall_clock)
    shares = SharesPorts(parts.static.node_id, world, parts.shares, parts.share_configs, parts.coordination.groups)
    observatory = Observatory(parts.what_is_missing, read_token(world, parts.static.http_token_file))
    observatory.pages["/metrics"] = BrokerMetrics(_families(parts), parts.group_lags, lags, world.wall_clock).page
    observatory.pages |= decision_pages(parts.decisions)
    observatory.pages["/state"] = broker_state_page(_state_ports(parts))
    observatory.pages["/shares"] = shares_page(shares)
    return observatory


def _families(parts: BrokerParts) -> list[Families]:
    world, partitions, server, controller = parts.world, parts.partitions, parts.server, parts.controller
    busy = BusyClock(world)
    families: list[Families] = [
        partial(replica_families, partitions, parts.fetchers, parts.metadata),
        partial(throttle_families, parts.throttles, world.monotonic),
        partial(traffic_families, partitions, parts.bytes_out, parts.produce_conversions, parts.fetch_conversions),
        partial(log_families, partitions),
        partial(cleaner_families, parts.store.directories, parts.cleaner_work),
        partial(waiting_families, partitions, parts.fetches, parts.deletions),
        *coordination_families(parts.coordination),
        partial(share_partition_families, parts.shares.partitions),
        partial(delayed_families, parts.deliveries),
        partial(broker_families, parts.lifecycle, parts.metadata, server, parts.static.host),
        partial(raft_families, parts.metadata_log.replica),
        lambda: request_families(parts.dispatcher.counters),
        partial(server_families, server),
        partial(parts.quotas.families, OF_BROKERS),
        partial(connection_families, server.connection_quotas, world.monotonic),
        partial(security_families, parts.securities),
        partial(busy_families, busy),
        partial(process_families, world),
        lambda: space_families(world.disk, [it.path for it in parts.store.directories.online]),
    ]
    if parts.remote is not None:
        families.append(parts.remote.families)
    if controller is not None:
        families.append(lambda: controller_families(controller.service, world))
        families.append(partial(controller.quotas.families, OF_CONTROLLERS))
    if parts.authorization is not None:
        families.append(parts.authorization.families)
    if parts.telemetry is not None:
        telemetry = parts.telemetry
        families.append(lambda: telemetry.families(world.monotonic.now_ms()))
    return families


def _state_ports(parts: BrokerParts) -> StatePorts:
    controller = parts.controller
    return StatePorts(
        node_id=parts.static.node_id,
        lifecycle=parts.lifecycle,
        metadata=parts.metadata,
        replica=parts.metadata_log.replica,
        partitions=parts.partitions,
        decisions=parts.decisions,
        bytes_out=parts.bytes_out,
        what_is_missing=parts.what_is_missing,
        throttled=parts.quotas.state,
        controller=None if controller is None else controller_state(controller),
    )
