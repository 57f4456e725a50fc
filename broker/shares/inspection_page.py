"""The page `/shares` of a broker: the share partitions that it leads, who fetches them from here, and the members of
the group if this broker is its coordinator.

    /shares?group=G                                 of a group
    /shares?group=G&topic=T&partition=P&offset=N    one of them, with the records from an offset on

Collected on request, one share partition in a step. Knows nothing of the pages that draw it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Any

import trio

from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.coordinator.shard import ShardState
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.shares.inspection import Moment, share_partition_state
from barnabas.broker.shares.node_part import ShareGroups
from barnabas.broker.shares.share_configs import ShareConfigs
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.http import JSON, HttpRequest, HttpResponse
from barnabas.runtime.observatory import Page
from barnabas.runtime.world import World

MOST_PARTITIONS = 200
MOST_SESSIONS = 200
_MOST_DIGITS = 19


@dataclass(frozen=True, slots=True)
class SharesPorts:
    node_id: int
    world: World
    shares: ShareGroups
    configs: Callable[[str], ShareConfigs]
    """By group id."""
    groups: Coordinator[GroupMachine]


def shares_page(ports: SharesPorts) -> Page:
    async def page(request: HttpRequest) -> HttpResponse:
        group, topic = request.query.get("group", ""), request.query.get("topic")
        partition, offset = request.query.get("partition"), request.query.get("offset")
        if not group:
            return HttpResponse.text("group must name a share group\n", HTTPStatus.BAD_REQUEST)
        for name, value in (("partition", partition), ("offset", offset)):
            if value is not None and not _is_number(value):
                return HttpResponse.text(f"{name} must be a whole number\n", HTTPStatus.BAD_REQUEST)
        only = None if topic is None else (topic, None if partition is None else int(partition))
        state = await _shares(ports, group, only, None if offset is None else int(offset))
        return HttpResponse(json.dumps(state, separators=(",", ":")).encode(), JSON)

    return page


async def _shares(
    ports: SharesPorts, group_id: str, only: tuple[str, int | None] | None, offset: int | None
) -> dict[str, Any]:
    configs = ports.configs(group_id)
    found: list[dict[str, Any]] = []
    left_out = 0
    for led in ports.shares.partitions.of_group(group_id):
        if only is not None and (led.partition.topic != only[0] or only[1] not in (None, led.key.partition)):
            continue
        if len(found) == MOST_PARTITIONS:
            left_out += 1
            continue
        now = Moment(ports.world.monotonic.now_ms(), ports.world.wall_clock.now_ms())
        found.append(share_partition_state(led, configs.terms, offset, now))
        await trio.lowlevel.checkpoint()
    sessions = ports.shares.sessions.of_group(group_id)
    return {
        "node": f"broker-{ports.node_id}",
        "id": ports.node_id,
        "group": group_id,
        "read_committed": configs.read_committed,
        "coordinator": _coordinated(ports, group_id),
        "partitions": found,
        "partitions_left_out": left_out,
        "not_loaded": [
            {"topic": topic, "partition": key.partition, "error": it.error.code.name, "at_ms": it.at_ms}
            for key, (topic, it) in ports.shares.partitions.not_loaded.items()
            if key.group_id == group_id
        ],
        "sessions": [
            {
                "member_id": session.key[1],
                "partitions": [
                    [uuid_to_string(topic_id), index] for topic_id, index in list(session.partitions)[:MOST_PARTITIONS]
                ],
            }
            for session in sessions[:MOST_SESSIONS]
        ],
        "sessions_left_out": max(0, len(sessions) - MOST_SESSIONS),
    }


def _coordinated(ports: SharesPorts, group_id: str) -> dict[str, Any] | None:
    """The members as the coordinator knows them; None: this broker does not coordinate the group."""
    try:
        shard = ports.groups.shard(group_id)
    except KafkaError:
        return None
    group = shard.machine.shares.find(group_id) if shard.state is ShardState.ACTIVE else None
    if group is None:
        return None
    description = shard.machine.describe_share(group_id)
    members = [
        {
            "member_id": it.member_id,
            "client_id": it.client_id,
            "host": it.client_host,
            "topics": it.subscribed_topic_names[:MOST_PARTITIONS],
            "assignment": {each.topic_name: each.partitions for each in it.assignment.topic_partitions},
        }
        for it in islice(description.members, MOST_SESSIONS)
    ]
    states = islice(group.topics.initialized.values(), MOST_PARTITIONS)
    return {
        "state": group.state_name(),
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": members,
        "members_left_out": len(group.members) - len(members),
        "initialized": {it.name: sorted(it.partitions) for it in states},
    }


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS
