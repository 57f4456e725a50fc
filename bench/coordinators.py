"""Loads on group coordinators, on any cluster that speaks the Kafka protocol, with librdkafka as the client.

Measures the time until members own their partitions, and those of a killed member; committed offsets per second; the
pause of a group whose coordinator's broker is killed; memory for many groups and many producers. Every
measurement ends after a time, and ends no process but those it started or was given a command for.

To measure the coordinator rather than the clients' timeouts, members of classic groups send heartbeats every 500 ms;
the broker sets the interval of consumer groups (KIP-848), see `bench/run.sh`.

Usage: coordinators.py --bootstrap H:P,… [--pids CMD] [--kill CMD --restart CMD] [--out F] [--only REGEX] [--list] …
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from group_members import (
    PARTITIONS,
    SESSION_TIMEOUT_MS,
    Cluster,
    Group,
    Load,
    Measured,
    Member,
    measure_all,
    settings,
    unique,
    wait_until,
)
from measuring import Results, memory_mib, percentile

PROTOCOLS = ("classic", "consumer")
FILL_PATIENCE_S = 300.0
"""For making many groups or producers."""
WARM_S = 2.0
"""Before a rate is counted."""
AT_ONCE = 48
"""Number of producers that are alive at a time."""
MIB = "MiB"


# -- members


def join(cluster: Cluster, protocol: str, size: int) -> Measured:
    """From subscribing until every partition has its owner."""
    with cluster.topic(PARTITIONS) as topic, Group(cluster, topic, protocol, size) as group:
        with cluster.meter() as meter:
            began = time.monotonic()
            group.subscribe()
            ended = group.wait_assigned()
        return ended - began, {"members": size, **meter.fields}


def be_a_member(cluster: Cluster, group: str, protocol: str, topic: str) -> None:
    """The work of a process that is going to be killed: print how many partitions it owns, whenever that changes."""
    member = Member(cluster, group, protocol, topic)
    member.subscribe()
    printed = -1
    while os.getppid() != 1:
        member.consumer.poll(0.02)
        if len(member.owned) != printed:
            printed = len(member.owned)
            print(printed, flush=True)


def member_killed(cluster: Cluster, protocol: str, size: int) -> Measured:
    """From the SIGKILL of one member's process until the others own its partitions."""
    with cluster.topic(PARTITIONS) as topic, Group(cluster, topic, protocol, size - 1) as group:
        group.subscribe()
        group.wait_assigned()
        arguments = ["--bootstrap", cluster.bootstrap, "--member", group.id, protocol, topic]
        victim = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
        owned = [0]

        def listen() -> None:
            assert victim.stdout is not None
            for line in victim.stdout:
                owned[0] = int(line)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            wait_until(lambda: owned[0] > 0 and len(group.owned()) + owned[0] == PARTITIONS, "a place for the victim")
            time.sleep(1)
            with cluster.meter() as meter:
                at = time.monotonic()
                victim.send_signal(signal.SIGKILL)
                ended = group.wait_assigned()
        finally:
            victim.kill()
            victim.wait()
            listener.join(5)
        return ended - at, {"members": size, "session_timeout_ms": SESSION_TIMEOUT_MS, **meter.fields}


def coordinator_killed(cluster: Cluster, protocol: str) -> Measured:
    """From the SIGKILL of the coordinator's broker until both members of a group have committed again."""
    with cluster.topic(PARTITIONS) as topic, Group(cluster, topic, protocol, 2) as group:
        group.subscribe()
        group.wait_assigned()
        stopped = threading.Event()
        committed: list[list[float]] = [[] for _ in group.members]
        failures: dict[str, int] = {}

        def commit(member: Member, times: list[float]) -> None:
            while not stopped.is_set():
                try:
                    partition = min(member.owned, default=0)
                    offset = TopicPartition(topic, partition, len(times))
                    answers = member.consumer.commit(offsets=[offset], asynchronous=False)
                    if any(answer.error for answer in answers):
                        raise RuntimeError(str(answers[0].error))
                    times.append(time.monotonic())
                except Exception as error:
                    failures[str(error)[:60]] = failures.get(str(error)[:60], 0) + 1
                stopped.wait(0.01)

        committers = [
            threading.Thread(target=commit, args=each, daemon=True)
            for each in zip(group.members, committed, strict=True)
        ]
        for committer in committers:
            committer.start()
        try:
            wait_until(lambda: all(len(times) > 20 for times in committed), "first commits")
            broker_id = cluster.coordinator(group.id)
            with cluster.without_broker(broker_id) as at:
                # Requests in flight at the kill may have been answered just before.
                since = at + 0.02
                wait_until(lambda: all(times[-1] > since for times in committed), "a commit after the kill")
                resumed = max(next(when for when in times if when > since) for times in committed)
                time.sleep(1)
        finally:
            stopped.set()
            for committer in committers:
                committer.join(20)
        gap = max(
            after - before
            for times in committed
            for before, after in itertools.pairwise(times)
            if after > at
        )
        cluster.wait_in_sync(topic, PARTITIONS)
        return resumed - at, {"longest_gap_s": gap, "killed": broker_id, "errors": failures}


# -- offsets


def commits(cluster: Cluster, committers: int, duration_s: float) -> Measured:
    """Synchronous commits, each committer in a group of its own."""
    with cluster.topic(12) as topic:
        consumers = [
            Consumer(settings(cluster.bootstrap, **{"group.id": unique("bo"), "enable.auto.commit": False}))
            for _ in range(committers)
        ]
        took_ms: list[list[float]] = [[] for _ in consumers]
        errors: list[str] = []
        stopped, counted = threading.Event(), threading.Event()

        def commit(place: int) -> None:
            consumer, mine = consumers[place], took_ms[place]
            offset = 0
            while not stopped.is_set():
                began = time.monotonic()
                offset += 1
                try:
                    asked = [TopicPartition(topic, place % 12, offset)]
                    answers = consumer.commit(offsets=asked, asynchronous=False)
                    if answers[0].error:
                        raise RuntimeError(str(answers[0].error))
                except Exception as error:
                    # A coordinator that is made, or loads, is no failure yet.
                    if counted.is_set():
                        errors.append(str(error)[:200])
                        return
                    stopped.wait(0.1)
                    continue
                if counted.is_set():
                    mine.append((time.monotonic() - began) * 1000)

        threads = [threading.Thread(target=commit, args=(place,), daemon=True) for place in range(committers)]
        for thread in threads:
            thread.start()
        time.sleep(WARM_S)
        with cluster.meter() as meter:
            counted.set()
            time.sleep(duration_s)
            counted.clear()
        stopped.set()
        for thread in threads:
            thread.join(30)
        for consumer in consumers:
            consumer.close()
        if errors:
            raise RuntimeError(errors[0])
        all_ms = [each for mine in took_ms for each in mine]
        return len(all_ms) / meter.fields["wall_s"], {
            "committers": committers,
            "p50_ms": percentile(all_ms, 0.5),
            "p99_ms": percentile(all_ms, 0.99),
            **meter.fields,
        }


# -- memory


def memory_with_groups(cluster: Cluster, count: int) -> Measured:
    """PSS of all nodes once `count` groups have offsets of ten partitions."""
    with cluster.topic(10) as topic:
        before_mib, _ = memory_mib(cluster.pids)
        offsets = [TopicPartition(topic, partition, 1_000 + partition) for partition in range(10)]
        end = time.monotonic() + FILL_PATIENCE_S
        for begin in range(0, count, 50):
            groups = [unique("bm") for _ in range(begin, min(begin + 50, count))]
            asked = [
                future
                for group in groups
                for future in cluster.admin.alter_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group, offsets)]
                ).values()
            ]
            for future in asked:
                future.result(timeout=max(1, end - time.monotonic()))
        return _memory(cluster, before_mib, groups=count)


def memory_with_producers(cluster: Cluster, count: int) -> Measured:
    """PSS of all nodes once `count` idempotent producers, each with an id of its own, wrote into one partition."""
    with cluster.topic(1) as topic:
        before_mib, _ = memory_mib(cluster.pids)
        alive: list[Producer] = []
        acknowledged, made = [0], 0

        def delivered(error: object, _: object) -> None:
            acknowledged[0] += error is None

        end = time.monotonic() + FILL_PATIENCE_S
        while acknowledged[0] < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{acknowledged[0]} of {count} producers within {FILL_PATIENCE_S:.0f} s")
            while len(alive) < AT_ONCE and made - len(alive) < count:
                producer = Producer(settings(cluster.bootstrap, **{"enable.idempotence": True, "linger.ms": 0}))
                producer.produce(topic, b"x", on_delivery=delivered)
                alive.append(producer)
                made += 1
            for producer in alive:
                producer.poll(0)
            alive = [producer for producer in alive if len(producer)]
            time.sleep(0.002)
        return _memory(cluster, before_mib, producers=count)


def _memory(cluster: Cluster, before_mib: float, **more: int) -> Measured:
    time.sleep(2)
    pss_mib, rss_mib = memory_mib(cluster.pids)
    return pss_mib, {"rss_mib": rss_mib, "before_mib": before_mib, "grown_mib": pss_mib - before_mib, **more}


# -- the table


def loads(cluster: Cluster, options: argparse.Namespace) -> Iterable[Load]:
    for protocol in PROTOCOLS:
        for size in (1, 10, 50):
            yield Load(f"group.join.{protocol}.{size}", "s", partial(join, cluster, protocol, size))
    for protocol in PROTOCOLS:
        yield Load(f"group.member-killed.{protocol}.10", "s", partial(member_killed, cluster, protocol, 10))
    for committers in (1, 8):
        name = f"offsets.commit.sync.{committers}committer{'s' if committers > 1 else ''}"
        yield Load(name, "commits/s", partial(commits, cluster, committers, options.duration))
    if options.pids:
        groups, producers = options.groups, options.producer_ids
        yield Load(f"memory_pss.groups.{groups}", MIB, lambda: memory_with_groups(cluster, groups), once=True)
        yield Load(
            f"memory_pss.producer-ids.{producers}", MIB, lambda: memory_with_producers(cluster, producers), once=True
        )
    if options.kill and options.restart:
        for protocol in PROTOCOLS:
            yield Load(f"group.coordinator-killed.{protocol}", "s", partial(coordinator_killed, cluster, protocol))


def warm_up(cluster: Cluster, duration_s: float) -> None:
    """Work that does not count: it makes the internal topic, and a JVM fast."""
    end = time.monotonic() + duration_s
    steps: list[Callable[[], Measured]] = [lambda: commits(cluster, 2, 1)]
    steps += [partial(join, cluster, protocol, 5) for protocol in PROTOCOLS]
    steps.append(lambda: commits(cluster, 8, max(1, end - time.monotonic() - WARM_S)))
    for step in steps:
        try:
            step()
        except Exception as error:
            print(f"# warm-up: {error}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--label", default="cluster")
    parser.add_argument("--pids", help="prints lines 'role pid': for the servers' CPU and memory")
    parser.add_argument("--kill", help="SIGKILLs the broker {id}")
    parser.add_argument("--restart", help="starts the broker {id} again")
    parser.add_argument("--out", help="file to which results are added")
    parser.add_argument("--only", default="", help="regular expression on the names")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--duration", type=float, default=6, help="seconds of each load that has a rate")
    parser.add_argument("--warmup", type=float, default=5, help="seconds")
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--producer-ids", type=int, default=10_000)
    parser.add_argument("--list", action="store_true", help="only name the measurements")
    parser.add_argument("--member", nargs=3, metavar=("GROUP", "PROTOCOL", "TOPIC"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    cluster = Cluster(options)
    if options.member:
        be_a_member(cluster, *options.member)
        return
    chosen = [load for load in loads(cluster, options) if re.search(options.only, load.name)]
    if options.list:
        print("\n".join(load.name for load in chosen))
        return
    results = Results(options.out, options.label)
    if chosen:
        warm_up(cluster, options.warmup)
    measure_all(chosen, results, options.repeat)


if __name__ == "__main__":
    main()
