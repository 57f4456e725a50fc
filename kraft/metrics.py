"""Metrics of a controller, named as in Kafka. Counted on each scrape, on the committed image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.kraft.controller_service import ControllerService
from barnabas.kraft.metadata.image import NO_LEADER, MetadataImage
from barnabas.kraft.node_security import NodeSecurity, security_families
from barnabas.kraft.quotas import OF_CONTROLLERS, connection_families
from barnabas.kraft.raft_metrics import raft_families
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.dispatch import Dispatcher
from barnabas.runtime.families import Family
from barnabas.runtime.metrics import (
    BusyClock,
    Gather,
    busy_families,
    process_families,
    request_families,
    server_families,
    space_families,
)
from barnabas.runtime.quotas.source import QuotaType
from barnabas.runtime.server import Server
from barnabas.runtime.world import World

PARTITIONS_IN_A_STEP = 5_000
"""Partitions that are counted before other tasks run."""

_PREFIX = "kafka_controller_kafkacontroller_"


def controller_metrics(
    world: World,
    service: ControllerService,
    dispatcher: Dispatcher,
    server: Server,
    security: NodeSecurity,
    directories: Sequence[str],
) -> Gather:
    """The metrics of `/metrics` on a controller."""
    busy = BusyClock(world)

    def gather() -> Iterator[Family | None]:
        yield from controller_families(service, world)
        yield from raft_families(service.replica)
        if service.authorization is not None:
            yield from service.authorization.families()
        if service.quotas is not None:
            yield from service.quotas.families((QuotaType.REQUEST, *OF_CONTROLLERS))
        yield from connection_families(server.connection_quotas, world.monotonic)
        yield from security_families([security])
        yield from request_families(dispatcher.counters)
        help_text = "Connections that are open."
        yield Family.of("gauge", "kafka_server_socketservermetrics_connection_count", help_text, server.connections)
        yield from server_families(server)
        yield from busy_families(busy)
        yield from process_families(world)
        yield from space_families(world.disk, directories)

    return gather


def controller_families(service: ControllerService, world: World) -> Iterator[Family | None]:
    """The families that no broker has."""
    yield from _count_families(service)
    yield from _metadata_families(service, world)
    yield from _time_families(service)


def _count_families(service: ControllerService) -> Iterator[Family | None]:
    image = service.committed
    brokers = image.cluster.brokers.values()
    fenced = sum(broker.fenced for broker in brokers)
    stopping = sum(broker.in_controlled_shutdown for broker in brokers)
    counts = yield from _count_partitions(image)
    for name, help_text, value in (
        ("activecontrollercount", "1 on the active controller.", int(service.core.is_active)),
        ("activebrokercount", "Registered brokers that are not fenced.", len(brokers) - fenced),
        ("fencedbrokercount", "Registered brokers that are fenced.", fenced),
        ("controlledshutdownbrokercount", "Registered brokers that hand over what they lead.", stopping),
        ("globaltopiccount", "Topics.", len(image.topics.by_name)),
        ("globalpartitioncount", "Partitions.", counts[0]),
        ("offlinepartitionscount", "Partitions without a leader.", counts[1]),
        ("preferredreplicaimbalancecount", "Partitions whose leader is not their preferred replica.", counts[2]),
        ("reassigningpartitions", "Partitions that are being reassigned.", counts[3]),
    ):
        yield Family.of("gauge", _PREFIX + name, help_text, value)
    help_text = "Clients whose quotas the active controller divides between brokers."
    yield Family.of("gauge", "barnabas_quota_divided_clients", help_text, service.core.quota_division.clients)


def _metadata_families(service: ControllerService, world: World) -> Iterator[Family]:
    image, active = service.committed, service.core.is_active
    lag_ms = 0 if active or image.offset < 0 else max(world.wall_clock.now_ms() - image.timestamp_ms, 0)
    for name, help_text, value in (
        ("lastappliedrecordoffset", "Offset of the last applied record of the metadata log.", image.offset),
        ("lastappliedrecordtimestamp", "Timestamp of that record in ms since 1970.", image.timestamp_ms),
        ("lastappliedrecordlagms", "Age of that record in ms; 0 on the active controller.", lag_ms),
    ):
        yield Family.of("gauge", _PREFIX + name, help_text, value)
    if service.replica.is_open:
        help_text = "Offset of the last committed record of the metadata log."
        yield Family.of("gauge", _PREFIX + "lastcommittedrecordoffset", help_text, service.replica.high_watermark - 1)


def _time_families(service: ControllerService) -> Iterator[Family]:
    """Times of this node's work as the active controller."""
    times = service.times
    help_text = "Number of times that this controller became the active one."
    yield Family.of("counter", _PREFIX + "newactivecontrollers", help_text, times.activations)
    help_text = "Elections of a leader that was neither in sync nor eligible: acknowledged records may be lost."
    name = "kafka_controller_controllerstats_uncleanleaderelections"
    yield Family.of("counter", name, help_text, service.unclean_elections)
    help_text = "Decisions on requests and periodic work."
    yield Family.of("counter", _PREFIX + "eventqueueoperationsstarted", help_text, times.processing.count)
    prefix = "kafka_controller_controllereventmanager_"
    help_text = "Milliseconds that decisions wait for others, or for their time."
    yield Family.of("histogram", prefix + "eventqueuetimems", help_text, service.queue.waited)
    help_text = "Milliseconds that a decision and its append take."
    yield Family.of("histogram", prefix + "eventqueueprocessingtimems", help_text, times.processing)
    help_text = "Milliseconds from the append of records until they are committed and applied."
    yield Family.of("histogram", "kafka_server_raftmetrics_commit_latency", help_text, times.commit)


def _count_partitions(image: MetadataImage) -> Stepwise[tuple[int, int, int, int]]:
    """Numbers of partitions: all, without a leader, not led by the preferred replica, being reassigned."""
    count = offline = imbalanced = reassigning = 0
    for topic in image.topics.by_name.values():
        for partition in topic.partitions.values():
            count += 1
            offline += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.replicas[0]
            reassigning += partition.is_reassigning
            if count % PARTITIONS_IN_A_STEP == 0:
                yield
    return count, offline, imbalanced, reassigning
