"""The page `/state` of a broker: how it is, in one short JSON object, for whoever asks twice a second.

    /state            the broker itself, the metadata log as it has it, all topics
    /state?topic=T    and the partitions of T: as the metadata has them, and as they lie here

Gathered when somebody asks; nothing is kept for it. Knows no page that draws it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from broker.lifecycle import BrokerLifecycle, BrokerState
from broker.replication.partition import Partition
from broker.services import BrokerServices
from kraft.metadata.image import PartitionImage
from kraft.metadata_replica import MetadataReplica
from kraft.state_page import metadata_state
from runtime.http import JSON, HttpRequest, HttpResponse
from runtime.observatory import Page


def broker_state_page(
    broker: BrokerServices, replica: MetadataReplica, what_is_missing: Callable[[], str]
) -> Page:
    """The page. `what_is_missing` until the broker does its work: one line, or nothing."""

    async def page(request: HttpRequest) -> HttpResponse:
        told = broker_state(broker, replica, what_is_missing(), request.query.get("topic"))
        return HttpResponse(json.dumps(told, separators=(",", ":")).encode(), JSON)

    return page


def broker_state(
    broker: BrokerServices, replica: MetadataReplica, missing: str, topic: str | None
) -> dict[str, Any]:
    """What the page tells; partitions only of `topic`."""
    node_id = broker.settings.node_id
    image = broker.metadata.image
    messages_in = bytes_in = 0
    for each in broker.partitions:
        messages_in += each.traffic.messages_in
        bytes_in += each.traffic.bytes_in
    return {
        "node": f"broker-{node_id}",
        "id": node_id,
        "role": "broker",
        "state": _state(broker.lifecycle),
        "missing": missing,
        "broker_epoch": broker.lifecycle.broker_epoch,
        "next_decision": broker.decisions.next_number,
        "metadata": metadata_state(replica, image.offset),
        "messages_in": messages_in,
        "bytes_in": bytes_in,
        "bytes_out": broker.bytes_out.to_consumers,
        "topics": [
            {"name": name, "partitions": len(each.partitions)} for name, each in image.topics.by_name.items()
        ],
        "partitions": [] if topic is None else list(_partitions(broker, topic)),
    }


def _state(lifecycle: BrokerLifecycle) -> str:
    if lifecycle.state is BrokerState.STARTING:
        return "starting"
    if lifecycle.state is not BrokerState.RUNNING:
        return "shutting down"
    return "fenced" if lifecycle.may_be_fenced() else "running"


def _partitions(broker: BrokerServices, topic: str) -> Iterator[dict[str, Any]]:
    found = broker.metadata.image.topics.by_name.get(topic)
    for index, image in sorted(found.partitions.items()) if found is not None else ():
        yield _partition(index, image, broker.partitions.find(topic, index))


def _partition(index: int, image: PartitionImage, here: Partition | None) -> dict[str, Any]:
    """Offsets are null where no replica is here. A leader's own word about its ISR may be newer than the metadata."""
    leads = here is not None and here.is_leader
    told: dict[str, Any] = {
        "index": index,
        "leader": image.leader,
        "leader_epoch": image.leader_epoch,
        "replicas": image.replicas,
        "isr": image.isr,
        "log_start_offset": None,
        "log_end_offset": None,
        "high_watermark": None,
        "last_stable_offset": None,
        "is_leader": leads,
    }
    if here is not None:
        log = here.log
        told["leader"], told["leader_epoch"] = here.known_leader()
        if leads:
            told["isr"] = sorted(here.replica.isr)
        told["log_start_offset"] = log.log_start_offset
        told["log_end_offset"] = log.log_end_offset
        told["high_watermark"] = here.replica.high_watermark
        told["last_stable_offset"] = log.last_stable_offset
    return told
