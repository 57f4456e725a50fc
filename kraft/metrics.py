"""Metrics of a controller, named as Kafka's. Counted when somebody asks, on the committed image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraft.controller_service import ControllerService
from kraft.metadata.image import NO_LEADER, MetadataImage
from kraft.raft_metrics import raft_families
from runtime.dispatch import Dispatcher
from runtime.metrics import (
    BusyClock,
    Family,
    Gather,
    busy_families,
    process_families,
    request_families,
    server_families,
    space_families,
)
from runtime.server import Server
from runtime.world import World

_PREFIX = "kafka_controller_kafkacontroller_"


def controller_metrics(
    world: World, service: ControllerService, dispatcher: Dispatcher, server: Server, directories: Sequence[str]
) -> Gather:
    """What `/metrics` of a controller tells."""
    busy = BusyClock(world)

    def gather() -> Iterator[Family]:
        yield from _controller_families(service)
        yield from _metadata_families(service, world)
        yield from _time_families(service)
        yield from raft_families(service.replica)
        yield from request_families(dispatcher.counters)
        told = "Connections that are open."
        yield Family.of("gauge", "kafka_server_socketservermetrics_connection_count", told, server.connections)
        yield from server_families(server)
        yield from busy_families(busy)
        yield from process_families(world)
        yield from space_families(world.disk, directories)

    return gather


def _controller_families(service: ControllerService) -> Iterator[Family]:
    image = service.committed
    brokers = image.cluster.brokers.values()
    fenced = sum(broker.fenced for broker in brokers)
    stopping = sum(broker.in_controlled_shutdown for broker in brokers)
    counts = _partitions(image)
    for name, told, value in (
        ("activecontrollercount", "1 on the active controller.", int(service.core.is_active)),
        ("activebrokercount", "Registered brokers that are not fenced.", len(brokers) - fenced),
        ("fencedbrokercount", "Registered brokers that are fenced.", fenced),
        ("controlledshutdownbrokercount", "Registered brokers that hand over what they lead.", stopping),
        ("globaltopiccount", "Topics.", len(image.topics.by_name)),
        ("globalpartitioncount", "Partitions.", counts[0]),
        ("offlinepartitionscount", "Partitions that nobody leads.", counts[1]),
        ("preferredreplicaimbalancecount", "Partitions that their first replica does not lead.", counts[2]),
        ("reassigningpartitions", "Partitions that are being moved.", counts[3]),
    ):
        yield Family.of("gauge", _PREFIX + name, told, value)


def _metadata_families(service: ControllerService, world: World) -> Iterator[Family]:
    image, active = service.committed, service.core.is_active
    lag_ms = 0 if active or image.offset < 0 else max(world.wall_clock.now_ms() - image.timestamp_ms, 0)
    for name, told, value in (
        ("lastappliedrecordoffset", "Up to where the metadata log was applied.", image.offset),
        ("lastappliedrecordtimestamp", "When that record was written, in ms since 1970.", image.timestamp_ms),
        ("lastappliedrecordlagms", "How old it is; 0 on the active controller.", lag_ms),
    ):
        yield Family.of("gauge", _PREFIX + name, told, value)
    if service.replica.is_open:
        told = "Up to where it is committed."
        yield Family.of("gauge", _PREFIX + "lastcommittedrecordoffset", told, service.replica.high_watermark - 1)


def _time_families(service: ControllerService) -> Iterator[Family]:
    """Of this node as the active controller; what it is not asked for takes no time."""
    times = service.times
    told = "How often this controller became the active one."
    yield Family.of("counter", _PREFIX + "newactivecontrollers", told, times.activations)
    text = "Elections of a leader that was neither in sync nor eligible: acknowledged records may be lost."
    name = "kafka_controller_controllerstats_uncleanleaderelections"
    yield Family.of("counter", name, text, service.unclean_elections)
    told = "Decisions on requests, and on what is due by the clock."
    yield Family.of("counter", _PREFIX + "eventqueueoperationsstarted", told, times.processing.count)
    prefix = "kafka_controller_controllereventmanager_"
    told = "Milliseconds until what is due by the clock is looked at. Requests wait as their own metrics say."
    yield Family.of("histogram", prefix + "eventqueuetimems", told, times.lateness)
    told = "Milliseconds that a decision and its append take."
    yield Family.of("histogram", prefix + "eventqueueprocessingtimems", told, times.processing)
    told = "Milliseconds from the append of records until they are committed and applied."
    yield Family.of("histogram", "kafka_server_raftmetrics_commit_latency", told, times.commit)


def _partitions(image: MetadataImage) -> tuple[int, int, int, int]:
    """All, those without a leader, those that another than the preferred replica leads, those being moved."""
    count = offline = imbalanced = reassigning = 0
    for topic in image.topics.by_name.values():
        for partition in topic.partitions.values():
            count += 1
            offline += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.replicas[0]
            reassigning += partition.is_reassigning
    return count, offline, imbalanced, reassigning
