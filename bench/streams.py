"""Loads on streams groups (KIP-1071), on any cluster that speaks the Kafka protocol, with members that send heartbeats.

A member is one connection that speaks StreamsGroupHeartbeat at the interval that the coordinator gives, and at once
when its tasks have changed, as Kafka Streams does; it processes nothing. The topology is one subtopology that reads a
topic of TASKS partitions.

`group.join.streams.N`: from the first heartbeats of N members until each has tasks, every task has one owner, and all
members have the same epoch; `group.member-left.streams.N`: the same from the heartbeat by which one of N leaves. The
group's initial rebalance delay and its assignment interval are 0.

Usage: streams.py --bootstrap H:P,… [--pids CMD] [--out F] [--only REGEX] [--list] …
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import trio
from group_members import PATIENCE_S, Cluster, Load, Measured, measure_all, unique
from measuring import Results

from barnabas import Admin
from barnabas.client.admin import ConfigResource, ResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel
from barnabas.runtime.real import real_world

SIZES = (10, 50)
TASKS = 100
SUBTOPOLOGY = "0"
REBALANCE_TIMEOUT_MS = 60_000
CALL_TIMEOUT_MS = 20_000
LEAVE_EPOCH = -1
AT_ONCE = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}
"""Configs of the group: assignments follow as fast as the coordinator makes them."""
NOT_YET = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class Member:
    """One member, and which tasks it owns now."""

    def __init__(self, group: StreamsGroup, channel: Channel) -> None:
        self.owned: frozenset[int] = frozenset()
        self.epoch = 0
        self._group = group
        self._channel = channel
        self._id = unique("member")
        self._running = trio.CancelScope()

    async def run(self) -> None:
        """Join, and be a member until `leave`. Raises KafkaError, ChannelError."""
        topology = Topology(subtopologies=[Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[self._group.topic])])
        first: dict[str, Any] = {"topology": topology, "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS}
        more = {**first, "process_id": self._id, **self._tasks()}
        with self._running:
            while True:
                response = await self._beat(self.epoch, **more)
                self.epoch = response.member_epoch
                tasks = self._tasks_in(response)
                more = {}
                if tasks is None or tasks == self.owned:
                    self._group.look()
                    await trio.sleep(response.heartbeat_interval_ms / 1000)
                else:
                    self.owned = tasks
                    more = self._tasks()
                    self._group.look()

    async def leave(self) -> None:
        self._running.cancel()
        self.owned = frozenset()
        await self._beat(LEAVE_EPOCH)

    async def _beat(self, epoch: int, **more: Any) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            group_id=self._group.id, member_id=self._id, member_epoch=epoch, **more
        )
        response: StreamsGroupHeartbeatResponse = await self._channel.call(request, timeout_ms=CALL_TIMEOUT_MS)
        check(response.error_code, response.error_message)
        return response

    def _tasks(self) -> dict[str, list[TaskIds]]:
        active = [TaskIds(subtopology_id=SUBTOPOLOGY, partitions=sorted(self.owned))] if self.owned else []
        return {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}

    @staticmethod
    def _tasks_in(response: StreamsGroupHeartbeatResponse) -> frozenset[int] | None:
        """None: those from before."""
        if response.active_tasks is None:
            return None
        return frozenset(partition for each in response.active_tasks for partition in each.partitions)


class StreamsGroup:
    """Members in this thread, each with a connection of its own to the coordinator."""

    def __init__(self, cluster: Cluster, topic: str, nursery: trio.Nursery) -> None:
        self.id = unique("bs")
        self.topic = topic
        self.members: list[Member] = []
        self._bootstrap = cluster.bootstrap
        self._nursery = nursery
        self._world = real_world()
        self._news = trio.Event()

    async def connect(self, size: int) -> None:
        """Members that have not joined yet."""
        async with Admin(bootstrap_servers=self._bootstrap) as admin:
            await admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, self.id): AT_ONCE})
        host, _, port = self._bootstrap.partition(",")[0].rpartition(":")
        coordinator = await self._find_coordinator(self._channel(host, int(port)))
        for _ in range(size):
            # Its connection is not what is measured.
            channel = self._channel(*coordinator)
            await self._wait_configured(channel)
            self.members.append(Member(self, channel))

    def start(self) -> None:
        for member in self.members:
            self._nursery.start_soon(member.run)

    async def leave_one(self) -> None:
        await self.members.pop().leave()

    async def wait_settled(self) -> float:
        """Time at which each member had tasks, every task one owner, and all members the same epoch. TimeoutError."""
        with trio.move_on_after(PATIENCE_S):
            while not self._is_settled():
                self._news = news = trio.Event()
                await news.wait()
            return time.monotonic()
        raise TimeoutError(f"{len(self.members)} members with all tasks: not within {PATIENCE_S:.0f} s")

    async def close(self) -> None:
        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(member.leave)

    def look(self) -> None:
        """A member has got a response."""
        self._news.set()

    def _is_settled(self) -> bool:
        owned = sorted(task for member in self.members for task in member.owned)
        epochs = {member.epoch for member in self.members}
        return owned == list(range(TASKS)) and all(member.owned for member in self.members) and len(epochs) == 1

    def _channel(self, host: str, port: int) -> Channel:
        return Channel(self._world, self._nursery, host, port, client_id="bench-streams")

    async def _find_coordinator(self, channel: Channel) -> tuple[str, int]:
        request = FindCoordinatorRequest(coordinator_keys=[self.id])
        with trio.fail_after(PATIENCE_S):
            while True:
                [found] = (await channel.call(request, timeout_ms=CALL_TIMEOUT_MS)).coordinators
                if error_code(found.error_code) not in NOT_YET:
                    check(found.error_code, found.error_message)
                    return found.host, found.port
                await trio.sleep(0.1)

    async def _wait_configured(self, channel: Channel) -> None:
        """Until the coordinator knows the group's configs."""
        keys = list(AT_ONCE)
        resource = DescribeConfigsResource(
            resource_type=ResourceType.GROUP, resource_name=self.id, configuration_keys=keys
        )
        request: Message = DescribeConfigsRequest(resources=[resource])
        with trio.fail_after(PATIENCE_S):
            while True:
                [found] = (await channel.call(request, timeout_ms=CALL_TIMEOUT_MS)).results
                check(found.error_code, found.error_message)
                if {each.name: each.value for each in found.configs} == AT_ONCE:
                    return
                await trio.sleep(0.01)


def check(code: int, message: str | None) -> None:
    """Raises KafkaError."""
    if code:
        raise KafkaError(error_code(code), message)


def join(cluster: Cluster, size: int) -> Measured:
    """Seconds until all have tasks."""
    return trio.run(partial(_rebalance, cluster, size, leaves=False))


def member_left(cluster: Cluster, size: int) -> Measured:
    """Seconds until the others have the tasks of the one that leaves."""
    return trio.run(partial(_rebalance, cluster, size, leaves=True))


async def _rebalance(cluster: Cluster, size: int, *, leaves: bool) -> Measured:
    with cluster.topic(TASKS) as topic:
        async with trio.open_nursery() as nursery:
            group = StreamsGroup(cluster, topic, nursery)
            await group.connect(size)
            if leaves:
                group.start()
                await group.wait_settled()
            with cluster.meter() as meter:
                began = time.monotonic()
                if leaves:
                    await group.leave_one()
                else:
                    group.start()
                took = await group.wait_settled() - began
            await group.close()
            nursery.cancel_scope.cancel()
    return took, {"members": size, "tasks": TASKS, **meter.fields}


def loads(cluster: Cluster) -> Iterable[Load]:
    for size in SIZES:
        yield Load(f"group.join.streams.{size}", "s", partial(join, cluster, size))
    for size in SIZES:
        yield Load(f"group.member-left.streams.{size}", "s", partial(member_left, cluster, size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--label", default="cluster")
    parser.add_argument("--pids", help="prints lines 'role pid': for the servers' CPU")
    parser.add_argument("--out", help="file to which results are added")
    parser.add_argument("--only", default="", help="regular expression on the names")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--warmup", type=float, default=5, help="seconds")
    parser.add_argument("--list", action="store_true", help="only name the measurements")
    options = parser.parse_args()
    options.kill = options.restart = None
    cluster = Cluster(options)
    chosen = [load for load in loads(cluster) if re.search(options.only, load.name)]
    if options.list:
        print("\n".join(load.name for load in chosen))
        return
    if chosen:
        warm_up(cluster, options.warmup)
    measure_all(chosen, Results(options.out, options.label), options.repeat)


def warm_up(cluster: Cluster, seconds: float) -> None:
    """Work that does not count: it makes the internal topic, and a JVM fast."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            join(cluster, SIZES[0])
        except Exception as error:
            print(f"# warm-up: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
