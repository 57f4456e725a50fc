"""The view "Groups": groups of all types, with members, tasks, offsets, lags, and what share partitions deliver.

Lists are kept for some seconds, so that a filter that is being typed asks once. Groups that were opened are looked at
again from time to time while a browser is connected, for their lag over time.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from barnabas.client.admin import Admin, GroupListing, PartitionLag
from barnabas.client.cluster import TopicPartition
from barnabas.group_views.kinds import GroupView, MemberView, describe_groups, tasks_text
from barnabas.group_views.progress import Progress, progress_of
from barnabas.page.access_tables import Filter, Row, page_of
from barnabas.page.asking import Asker
from barnabas.page.lag_history import INTERVAL_MS, LagHistory
from barnabas.why.shares_view import SharePartition, SharesView, Span, read_shares

KEPT_SECONDS = 3.0
MOST_MEMBERS = 200
MOST_PARTITIONS = 200
MOST_SPANS = 20
"""Spans of one share partition that are shown."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One group, as the cluster reports it."""

    group: GroupView
    progress: Sequence[Progress]
    view: SharesView
    at_ms: int


@dataclass
class Groups:
    """The groups of one cluster, for all readers."""

    asker: Asker
    shares: Callable[[str], Awaitable[Sequence[object]]]
    """Asks the nodes for the share partitions of a group."""
    is_watched: Callable[[], bool] = lambda: True
    """True while a browser is connected; otherwise no group is followed."""
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def __post_init__(self) -> None:
        self._history = LagHistory()
        self._adding = trio.Lock()
        self._lock = trio.Lock()
        self._rows: Sequence[Row] = ()
        self._problem = ""
        self._asked_at: float | None = None

    async def listing(self, wanted: Filter) -> dict[str, Any]:
        """One page of the groups. `wanted.principal` is searched in the id, `wanted.resource` in type and state."""
        async with self._lock:
            if self._asked_at is None or trio.current_time() - self._asked_at > KEPT_SECONDS:
                listed, self._problem = await self.asker.ask(_listed)
                self._rows = group_rows(listed or ())
                self._asked_at = trio.current_time()
        return await self.asker.in_thread(partial(page_of, self._rows, wanted)) | {"problem": self._problem}

    async def describe(self, group_id: str) -> dict[str, Any]:
        """One group, or the reason why it cannot be shown."""
        seen, problem = await self._look(group_id)
        if seen is None:
            return {"group": group_id, "problem": problem}
        self._history.open(group_id, seen.at_ms)
        history = await self._add(group_id, seen)
        answer = await self.asker.in_thread(partial(group_json, seen.group, seen.progress)) | {"history": history}
        if seen.group.is_share:
            answer["shares"] = [share_json(seen.view, it) for it in _in_order(seen.view)[:MOST_PARTITIONS]]
            answer["not_loaded"] = [
                {"topic": it.topic, "partition": it.partition, "error": it.error, "at_ms": it.at_ms}
                for it in seen.view.not_loaded.values()
            ]
        return answer

    async def run(self) -> None:
        """Follow the groups that were opened, until cancelled."""
        while True:
            await trio.sleep(INTERVAL_MS / 1000)
            await self.follow()

    async def follow(self) -> None:
        """Look at the groups whose next sample is due, one after the other, if a browser is connected."""
        for group_id in self._history.due(self.now_ms()) if self.is_watched() else ():
            seen, _problem = await self._look(group_id)
            if seen is not None:
                await self._add(group_id, seen)

    async def _add(self, group_id: str, seen: _Seen) -> dict[str, Any] | None:
        """Add a sample of a group, and return its history; None if it is followed no longer. In a thread: a group may
        have thousands of partitions."""
        async with self._adding:
            history = self._history.get(group_id)
            if history is None:
                return None
            await self.asker.in_thread(partial(history.add, seen.at_ms, seen.progress))
            return history.to_json()

    async def _look(self, group_id: str) -> tuple[_Seen | None, str]:
        """The group, or None and the problem in one line."""
        found, problem = await self.asker.ask(partial(_described, group_id))
        if found is None:
            return None, problem
        group, progress = found
        view = read_shares(group_id, await self.shares(group_id) if group.is_share else ())
        started = {TopicPartition(*key): it.start_offset for key, it in view.partitions.items() if it.is_loaded}
        if started:
            lags, _ = await self.asker.ask(lambda admin: admin.list_partition_lags(started))
            progress = with_leaders(progress, view, lags.succeeded if lags is not None else {}, self.now_ms())
        return _Seen(group, progress, view, self.now_ms()), ""


async def _listed(admin: Admin) -> list[GroupListing]:
    return await admin.list_groups()


async def _described(group_id: str, admin: Admin) -> tuple[GroupView, list[Progress]]:
    group = (await describe_groups(admin, [group_id]))[group_id]
    return group, await progress_of(admin, group_id, group.assigned(), is_shared=group.is_share)


def with_leaders(
    progress: Sequence[Progress], view: SharesView, lags: Mapping[TopicPartition, PartitionLag], now_ms: int
) -> list[Progress]:
    """The progress of a share group as the leaders know it; what is stored follows them."""
    known = {TopicPartition(it.topic, it.partition): it for it in progress}
    for key, lag in lags.items():
        it = view.partitions[key]
        left = max(lag.end_offset - it.start_offset - it.delivery_complete, 0)
        seconds = lag.seconds(now_ms) if left else 0.0
        known[key] = Progress(it.topic, it.partition, it.start_offset, lag.end_offset, left, seconds)
    return [known[key] for key in sorted(known)]


def group_rows(listed: Sequence[GroupListing]) -> list[Row]:
    return [
        {
            "who": it.group_id,
            "resource": f"{it.type} {it.state}",
            "name": "",
            "type": str(it.type),
            "protocol": it.protocol,
            "state": str(it.state),
        }
        for it in listed
    ]


def group_json(group: GroupView, progress: Sequence[Progress]) -> dict[str, Any]:
    owners = group.owners()
    by_place = {(each.topic, each.partition): member for each, member in owners.items()}
    lags = [it.lag for it in progress if it.lag is not None]
    seconds = [it.lag_seconds for it in progress if it.lag_seconds is not None]
    return {
        "group": group.group_id,
        "problem": "",
        "type": str(group.type),
        "state": str(group.state),
        "coordinator": group.coordinator,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "topology_epoch": group.topology_epoch,
        "lag": sum(lags) if lags else None,
        "lag_seconds": max(seconds) if seconds else None,
        "members": [_member(it) for it in group.members[:MOST_MEMBERS]],
        "members_left_out": max(0, len(group.members) - MOST_MEMBERS),
        "partitions": [
            it.to_json() | {"member": member.member_id if (member := by_place.get((it.topic, it.partition))) else None}
            for it in progress[:MOST_PARTITIONS]
        ],
        "partitions_left_out": max(0, len(progress) - MOST_PARTITIONS),
    }


def _member(it: MemberView) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for each in it.assignment:
        topics.setdefault(each.topic, []).append(each.partition)
    return {
        "member_id": it.member_id,
        "instance_id": it.instance_id,
        "client_id": it.client_id,
        "host": it.host,
        "epoch": it.epoch,
        "process_id": it.process_id,
        "assignment": tasks_text(topics),
        "tasks": {kind: tasks_text(tasks) for kind, tasks in it.tasks.items()},
    }


def _in_order(view: SharesView) -> list[SharePartition]:
    return sorted((it for it in view.partitions.values() if it.is_loaded), key=lambda it: (it.topic, it.partition))


def share_json(view: SharesView, it: SharePartition) -> dict[str, Any]:
    return {
        "topic": it.topic,
        "partition": it.partition,
        "leader": it.node,
        "start": it.start_offset,
        "end": it.end_offset,
        "high_watermark": it.high_watermark,
        "counts": it.counts,
        "error": it.error,
        "spans": [_span(view, each) for each in it.spans[:MOST_SPANS]],
        "spans_left_out": max(0, len(it.spans) - MOST_SPANS) + it.spans_left_out,
    }


def _span(view: SharesView, it: Span) -> Mapping[str, Any]:
    member = view.members.get(it.member_id)
    return {
        "first": it.first_offset,
        "last": it.last_offset,
        "state": it.state,
        "deliveries": it.delivery_count,
        "member": it.member_id or None,
        "client": None if member is None else member.client_id,
        "since_ms": it.since_ms if it.member_id else None,
        "lock_ends_ms": it.lock_ends_ms if it.lock_ends_ms >= 0 else None,
        "becomes": it.becomes or None,
    }
