"""The page `/state` of a broker: its state in one short JSON object, cheap enough to be read twice a second.

    /state            the broker, its metadata log, all topics
    /state?topic=T    also the partitions of T, from the metadata and from the replicas on this broker

On a combined node, `controller` holds what the page of a controller does.

Collected on request. Knows nothing of the pages that draw it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.broker.lifecycle import BrokerLifecycle, BrokerState
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.traffic import BytesOut
from barnabas.kraft.metadata.image import PartitionImage
from barnabas.kraft.metadata.replica_states import replica_states
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.state_page import ControllerState, metadata_state
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.http import JSON, HttpRequest, HttpResponse
from barnabas.runtime.observatory import Page
from barnabas.runtime.steps import in_turns

COUNTED_IN_A_STEP = 2_000
ENCODED_IN_A_STEP = 100
"""Partitions that are counted, and topics or partitions that are described, in one step."""


@dataclass(frozen=True, slots=True)
class StatePorts:
    node_id: int
    lifecycle: BrokerLifecycle
    metadata: MetadataCache
    replica: MetadataReplica
    partitions: Partitions
    decisions: Decisions
    bytes_out: BytesOut
    what_is_missing: Callable[[], str]
    """Reason why the broker is not ready, in one line; empty if it is."""
    throttled: Callable[[], list[dict[str, Any]]] = list
    """The clients that quotas hold back now."""
    controller: ControllerState | None = None
    """The other role of a combined node."""


def broker_state_page(ports: StatePorts) -> Page:
    async def page(request: HttpRequest) -> HttpResponse:
        state, topics, partitions = await in_turns(_gathered(ports, request.query.get("topic")))
        head = json.dumps(state, separators=(",", ":"))[1:-1]
        text = f'{{{head},"topics":[{",".join(topics)}],"partitions":[{",".join(partitions)}]}}'
        return HttpResponse(text.encode(), JSON)

    return page


def _gathered(ports: StatePorts, topic: str | None) -> Stepwise[tuple[dict[str, Any], list[str], list[str]]]:
    """The page without its topics and partitions; those as JSON, of `topic` only."""
    node_id = ports.node_id
    image = ports.metadata.image
    messages_in = bytes_in = 0
    for seen, each in enumerate(ports.partitions, 1):
        messages_in += each.traffic.messages_in
        bytes_in += each.traffic.bytes_in
        if seen % COUNTED_IN_A_STEP == 0:
            yield
    state: dict[str, Any] = {
        "node": f"broker-{node_id}",
        "id": node_id,
        "role": "broker",
        "state": _state(ports.lifecycle),
        "missing": ports.what_is_missing(),
        "broker_epoch": ports.lifecycle.broker_epoch,
        "next_decision": ports.decisions.next_number,
        "metadata": metadata_state(ports.replica, image.offset),
        "messages_in": messages_in,
        "bytes_in": bytes_in,
        "bytes_out": ports.bytes_out.to_consumers,
        "throttled": ports.throttled(),
    }
    if ports.controller is not None:
        state["controller"] = yield from ports.controller.state()
    topics = ({"name": name, "partitions": len(each.partitions)} for name, each in image.topics.by_name.items())
    named = yield from _encoded(topics)
    described = yield from _encoded(() if topic is None else _partitions(ports, topic))
    return state, named, described


def _encoded(values: Iterable[dict[str, Any]]) -> Stepwise[list[str]]:
    encoded: list[str] = []
    for value in values:
        encoded.append(json.dumps(value, separators=(",", ":")))
        if len(encoded) % ENCODED_IN_A_STEP == 0:
            yield
    return encoded


def _state(lifecycle: BrokerLifecycle) -> str:
    if lifecycle.state is BrokerState.STARTING:
        return "starting"
    if lifecycle.state is not BrokerState.RUNNING:
        return "shutting down"
    return "fenced" if lifecycle.may_be_fenced() else "running"


def _partitions(ports: StatePorts, topic: str) -> Iterator[dict[str, Any]]:
    found = ports.metadata.image.topics.by_name.get(topic)
    brokers = ports.metadata.image.cluster.brokers
    for index, image in sorted(found.partitions.items()) if found is not None else ():
        state = _partition(index, image, ports.partitions.find(topic, index))
        state["replica_states"] = [each.value for each in replica_states(image, brokers).values()]
        yield state


def _partition(index: int, image: PartitionImage, here: Partition | None) -> dict[str, Any]:
    """Offsets are null if no replica is here. A leader's own ISR may be newer than the metadata."""
    leads = here is not None and here.is_leader
    state: dict[str, Any] = {
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
        state["leader"], state["leader_epoch"] = here.known_leader()
        if leads:
            state["isr"] = sorted(here.replica.isr)
        state["log_start_offset"] = log.log_start_offset
        state["log_end_offset"] = log.log_end_offset
        state["high_watermark"] = here.replica.high_watermark
        state["last_stable_offset"] = log.last_stable_offset
    return state
