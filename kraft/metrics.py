"""Metrics of a controller, named as Kafka's. Counted when somebody asks, on the committed image."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.controller_service import ControllerService
from kraft.metadata.image import NO_LEADER, MetadataImage
from kraft.raft_metrics import raft_families
from runtime.dispatch import Dispatcher
from runtime.metrics import Family, Gather, process_families, request_families
from runtime.server import Server
from runtime.world import World


def controller_metrics(world: World, service: ControllerService, dispatcher: Dispatcher, server: Server) -> Gather:
    """What `/metrics` of a controller tells."""

    def gather() -> Iterator[Family]:
        yield from _controller_families(service)
        yield from raft_families(service.replica)
        yield from request_families(dispatcher.counters)
        told = "Connections that are open."
        yield Family.of("gauge", "kafka_server_socketservermetrics_connection_count", told, server.connections)
        yield from process_families(world)

    return gather


def _controller_families(service: ControllerService) -> Iterator[Family]:
    image = service.committed
    brokers = image.cluster.brokers.values()
    fenced = sum(broker.fenced for broker in brokers)
    partitions, offline, imbalanced = _partitions(image)
    for name, told, value in (
        ("activecontrollercount", "1 on the active controller.", int(service.core.is_active)),
        ("activebrokercount", "Registered brokers that are not fenced.", len(brokers) - fenced),
        ("fencedbrokercount", "Registered brokers that are fenced.", fenced),
        ("globaltopiccount", "Topics.", len(image.topics.by_name)),
        ("globalpartitioncount", "Partitions.", partitions),
        ("offlinepartitionscount", "Partitions that nobody leads.", offline),
        ("preferredreplicaimbalancecount", "Partitions that their first replica does not lead.", imbalanced),
        ("lastappliedrecordoffset", "Up to where the metadata log was applied.", image.offset),
    ):
        yield Family.of("gauge", f"kafka_controller_kafkacontroller_{name}", told, value)


def _partitions(image: MetadataImage) -> tuple[int, int, int]:
    """All, those without a leader, those that another than the preferred replica leads."""
    count = offline = imbalanced = 0
    for topic in image.topics.by_name.values():
        for partition in topic.partitions.values():
            count += 1
            offline += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.replicas[0]
    return count, offline, imbalanced
