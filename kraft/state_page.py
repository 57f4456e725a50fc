"""The page `/state` of a controller: its state in one short JSON object, for readers that poll twice a second.

Gathered on each request. Knows no reader.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

from barnabas.kraft.controller_service import ControllerService
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.http import JSON, HttpRequest, HttpResponse
from barnabas.runtime.steps import in_turns

STARTING = "starting"

COUNTED_IN_A_STEP = 1_000
"""Partitions whose replicas are counted in one step."""


class ControllerState:
    """Content of the page. `state` is the role of its replica of the metadata log: leader, follower, candidate, …"""

    def __init__(
        self, node_id: int, service: ControllerService, decisions: Decisions, reason_not_ready: Callable[[], str]
    ) -> None:
        """`reason_not_ready` is one line; empty if the controller takes part in the quorum."""
        self._node_id = node_id
        self._decisions = decisions
        self._service = service
        self._reason_not_ready = reason_not_ready
        self._counted: TopicsImage | None = None
        """The topics that `_behind` was counted for: images never change, so it is counted once for each."""
        self._behind: Counter[int] = Counter()

    async def page(self, request: HttpRequest) -> HttpResponse:
        state = await in_turns(self.state())
        return HttpResponse(json.dumps(state, separators=(",", ":")).encode(), JSON)

    def state(self) -> Stepwise[dict[str, Any]]:
        """The page as a dict, gathered in steps."""
        replica, image = self._service.replica, self._service.committed
        behind = yield from self._out_of_sync(image.topics)
        return {
            "node": f"controller-{self._node_id}",
            "id": self._node_id,
            "role": "controller",
            "state": type(replica.core.role).__name__.lower() if replica.is_open else STARTING,
            "missing": self._reason_not_ready(),
            "next_decision": self._decisions.next_number,
            "metadata": metadata_state(replica, image.offset),
            "brokers": [
                {
                    "id": broker.id,
                    "fenced": broker.fenced,
                    "epoch": broker.epoch,
                    "in_controlled_shutdown": broker.in_controlled_shutdown,
                    "out_of_sync": behind[broker.id],
                }
                for broker in image.cluster.brokers.values()
            ],
        }

    def _out_of_sync(self, topics: TopicsImage) -> Stepwise[Counter[int]]:
        """By broker, the number of partitions with a replica there that is not in sync."""
        if topics is not self._counted:
            behind: Counter[int] = Counter()
            partitions = chain.from_iterable(topic.partitions.values() for topic in topics.by_id.values())
            for seen, partition in enumerate(partitions, 1):
                if len(partition.isr) < len(partition.replicas):
                    behind.update(broker for broker in partition.replicas if broker not in partition.isr)
                if seen % COUNTED_IN_A_STEP == 0:
                    yield
            self._counted, self._behind = topics, behind
        return self._behind


def metadata_state(replica: MetadataReplica, applied_offset: int) -> dict[str, int | None]:
    """The metadata log as a node has it; nothing known before the log was read."""
    if not replica.is_open:
        return dict.fromkeys(("leader", "epoch", "high_watermark", "log_end_offset", "applied_offset"))
    known = replica.leader_and_epoch
    return {
        "leader": known.leader_id,
        "epoch": known.epoch,
        "high_watermark": replica.high_watermark,
        "log_end_offset": replica.log_end_offset,
        "applied_offset": applied_offset,
    }
