"""Calls of Python functions for one request: by node and by function. They depend little on what else the machine
does: a few percent, because events that come together share a pass of the loop.

Starts three brokers and three controllers, one process each, and does one thing at a time, with our own client:

    append.all     a record is sent with acks=all, and its confirmation awaited
    append.1       the same with acks=1
    transaction    a transaction of one record is begun and committed
    tail           a record is sent with acks=all, while a consumer waits for it

The leader of the partition and the coordinator of the transaction are different brokers. Settings keep timers rare:
what happens without any request is measured, too, and subtracted.

Usage: calls.py [--only REGEX] [--times N] [--top N] [--out FILE] [--against FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import trio
from counted_node import BEGIN, END, ROOT, CallCounter, files_of

from barnabas import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.plan import MODULES, Programs
from barnabas.cluster.ports import free_base_port

TOPIC = "calls"
TRANSACTIONAL_ID = "calls"
VALUE = b"x" * 100
WARM_TIMES = 60
IDLE_SECONDS = 3.0
ANSWER_SECONDS = 20.0
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.wait.max.ms": "20000",
    "replica.socket.timeout.ms": "30000",
    "broker.heartbeat.interval.ms": "10000",
    "broker.session.timeout.ms": "60000",
}
"""Rare timers."""

Work = Callable[[], Awaitable[object]]
Counts = dict[str, dict[str, float]]
"""By role, then by function."""


class Counting:
    """The brokers of a cluster and this process, whose calls are counted together."""

    def __init__(self, cluster: LocalCluster, roles: Mapping[int, str]) -> None:
        """`roles`: by broker id."""
        self._data = cluster.layout.data
        self._pids = {node.name: node.pid for node in cluster.processes() if node.pid}
        self._roles = {node.name: roles[node.id] for node in cluster.layout.brokers}
        self._own = CallCounter()
        (self._data / "calls").mkdir(exist_ok=True)

    async def count(self, work: Work) -> tuple[Counts, float]:
        """The calls while `work` was done, and the seconds that it took."""
        for name in self._roles:
            for file in files_of(self._data, name):
                file.unlink(missing_ok=True)
            os.kill(self._pids[name], BEGIN)
        for name in self._roles:
            await _appears(files_of(self._data, name)[0])
        began = time.monotonic()
        self._own.begin()
        await work()
        counts: Counts = {"client": dict(self._own.end())}
        took = time.monotonic() - began
        for name in self._roles:
            os.kill(self._pids[name], END)
        for name, role in self._roles.items():
            file = files_of(self._data, name)[1]
            await _appears(file)
            counts[role] = json.loads(file.read_text())
        return counts, took


async def _appears(file: Path) -> None:
    with trio.fail_after(ANSWER_SECONDS):
        while not file.exists():
            await trio.sleep(0.01)


async def measure(counting: Counting, work: Work, times: int) -> Counts:
    """Calls for one `work`, without those that are made anyway."""

    async def repeat() -> None:
        for _ in range(times):
            await work()

    for _ in range(WARM_TIMES):
        await work()
    counts, took = await counting.count(repeat)
    idle, idle_took = await counting.count(partial(trio.sleep, IDLE_SECONDS))
    return {
        role: {
            name: (calls - idle[role].get(name, 0) * took / idle_took) / times for name, calls in by_function.items()
        }
        for role, by_function in counts.items()
    }


async def append(bootstrap: str, acks: str, count: Callable[[Work], Awaitable[Counts]]) -> Counts:
    idempotent = acks == "all"
    async with Producer(bootstrap_servers=bootstrap, acks=acks, linger_ms=0, enable_idempotence=idempotent) as producer:
        return await count(partial(producer.send, TOPIC, VALUE))


async def transact(bootstrap: str, count: Callable[[Work], Awaitable[Counts]]) -> Counts:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID, linger_ms=0) as producer:

        async def one() -> None:
            producer.begin_transaction()
            await producer.send(TOPIC, VALUE)
            await producer.commit_transaction()

        return await count(one)


async def tail(bootstrap: str, count: Callable[[Work], Awaitable[Counts]]) -> Counts:
    async with (
        Producer(bootstrap_servers=bootstrap, acks="all", linger_ms=0) as producer,
        Consumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=20_000, auto_offset_reset="latest") as consumer,
    ):
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.position(TopicPartition(TOPIC, 0))

        async def one() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.send, TOPIC, VALUE)
                while not await consumer.poll(ANSWER_SECONDS * 1000):
                    pass

        return await count(one)


LOADS: dict[str, Callable[[str, Callable[[Work], Awaitable[Counts]]], Awaitable[Counts]]] = {
    "append.all": lambda bootstrap, count: append(bootstrap, "all", count),
    "append.1": lambda bootstrap, count: append(bootstrap, "1", count),
    "transaction": transact,
    "tail": tail,
}


async def prepare(bootstrap: str) -> dict[int, str]:
    """Make the topic; returns the role of each broker."""
    async with Producer(bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID):
        pass  # now it has a coordinator
    async with Admin(bootstrap_servers=bootstrap) as admin:
        transactions = await admin.describe_transactions([TRANSACTIONAL_ID])
        coordinator = transactions[TRANSACTIONAL_ID].coordinator_id
        leader, third = [broker for broker in (1, 2, 3) if broker != coordinator]
        await admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [leader, coordinator, third]})])
    return {leader: "leader", coordinator: "follower, coordinator", third: "follower"}


async def run(cluster: LocalCluster, options: argparse.Namespace) -> dict[str, Counts]:
    bootstrap = cluster.bootstrap_servers
    counting = Counting(cluster, await prepare(bootstrap))
    found: dict[str, Counts] = {}
    for name, load in LOADS.items():
        if re.search(options.only, name):
            found[name] = await load(bootstrap, lambda work: measure(counting, work, options.times))
    return found


def show(name: str, counts: Counts, before: Counts | None, top: int) -> None:
    total = sum(sum(by_function.values()) for by_function in counts.values())
    print(f"{name}: {total:,.0f} calls{_compared(total, before)}")
    for role, by_function in counts.items():
        old = None if before is None else {role: before.get(role, {})}
        print(f"  {role}: {sum(by_function.values()):,.0f}{_compared(sum(by_function.values()), old)}")
    by_part: Counter[str] = Counter()
    for by_function in counts.values():
        for function, calls in by_function.items():
            by_part[function.partition("/")[0]] += calls
    print("  " + ", ".join(f"{part} {calls:,.0f}" for part, calls in by_part.most_common(8)))
    if before is not None:
        changes: Counter[tuple[str, str]] = Counter()
        for role in counts:
            for function in {*counts[role], *before.get(role, {})}:
                changes[role, function] = counts[role].get(function, 0) - before.get(role, {}).get(function, 0)
        ordered = sorted(changes.items(), key=lambda change: -abs(change[1]))
        for (role, function), change in ordered[:top]:
            if abs(change) >= 0.05:
                print(f"    {change:+7.1f}  {function}  ({role})")
        return
    each = [(calls, role, function) for role, functions in counts.items() for function, calls in functions.items()]
    for calls, role, function in sorted(each, reverse=True)[:top]:
        print(f"    {calls:7.1f}  {function}  ({role})")


def _compared(total: float, before: Counts | None) -> str:
    return "" if before is None else f", before {sum(sum(each.values()) for each in before.values()):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=".", help="a regular expression for the names of what is measured")
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--top", type=int, default=0, help="functions to show")
    parser.add_argument("--out", type=Path, help="a file for all counts, as JSON")
    parser.add_argument("--against", type=Path, help="such a file, to compare with")
    options = parser.parse_args()
    before: dict[str, Counts] = {} if options.against is None else json.loads(options.against.read_text())
    programs = Programs(dict.fromkeys(MODULES, "counted_node"), {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/bench"})
    with tempfile.TemporaryDirectory() as data:
        cluster = LocalCluster(data, free_base_port(), SETTINGS, programs=programs)
        cluster.up()
        try:
            cluster.wait_ready()
            found = trio.run(run, cluster, options)
        finally:
            cluster.down()
    for name, counts in found.items():
        show(name, counts, before.get(name), options.top)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
