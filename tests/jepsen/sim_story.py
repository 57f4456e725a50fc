"""A small run of our own in the simulated world, with faults of many kinds; its history must be the same each time."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from barnabas import Admin, NewTopic, Producer
from barnabas.client.errors import KafkaError
from histories.recorder import Recorder
from operations import NEMESIS, Completion, Moment, Outcome
from simulation.cluster import SimCluster
from worlds.cluster import LinkFault
from worlds.world_options import WorldOptions, run_in

EVERYTHING = ("kill", "pause", "cut", "link", "clock", "power", "kill-at")


async def run(cluster: SimCluster, directory: Path) -> None:
    """Two producers write while the nodes of one partition suffer."""
    recorder = Recorder(directory, {"name": "story", "world": cluster.name})
    cluster.on_broken = lambda message: recorder.write(
        now(cluster), NEMESIS, "info", "broken-promise", Completion("info", message)
    )
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("client-9")) as admin:
        await admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=3)])
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(_write, cluster, recorder, number)
        await _break(cluster, recorder)
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    await cluster.wait_ready()
    recorder.view(cluster.now_ns(), await cluster.views(), await cluster.states(), await cluster.active_controller())
    recorder.close()


def now(cluster: SimCluster) -> Moment:
    return Moment(cluster.now_ns(), cluster.wall_ms())


async def _write(cluster: SimCluster, recorder: Recorder, number: int) -> None:
    host = f"client-{number}"
    options = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 10_000}
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world(host), **options) as producer:
        for value in range(number, 1_000_000, 2):
            recorder.write(now(cluster), number, "invoke", "send", Completion("info", [["send", 0, value]]))
            kind: Outcome = "ok"
            offset = None
            try:
                offset = (await producer.send("t", value=b"%d" % value, partition=0)).offset
            except KafkaError:
                kind = "info"
            recorder.write(now(cluster), number, kind, "send", Completion(kind, [["send", 0, [offset, value]]]))
            await trio.sleep(0.4)


async def _break(cluster: SimCluster, recorder: Recorder) -> None:
    for fault in EVERYTHING:
        [name, other] = cluster.brokers[:2]
        recorder.write(now(cluster), NEMESIS, "info", fault, Completion("info", {"targets": [name]}))
        match fault:
            case "kill" | "power":
                await (cluster.kill(name) if fault == "kill" else cluster.power_cut(name))
                await trio.sleep(1)
                await cluster.start(name)
            case "pause":
                await cluster.pause(name)
            case "cut":
                await cluster.cut(name, other)
                await cluster.cut("client", other)
            case "link":
                await cluster.set_link(name, "client", LinkFault(latency_ms=50, jitter_ms=20, loss=0.2))
                await cluster.set_link(name, other, LinkFault(bytes_per_second=2_000))
                await cluster.set_link(other, name, LinkFault(half_open=True))
                await cluster.set_link("client", other, LinkFault(reset_after_bytes=400))
            case "clock":
                await cluster.set_clock(name, -40_000)
            case "kill-at":
                await cluster.kill_at(name, "replica.fetched.written", power_cut=True)
        await trio.sleep(2)
        await cluster.heal()
        await cluster.resume(name)
        await cluster.set_clock(name, 0)
        if fault == "kill-at" and await cluster.disarm(name):
            await cluster.start(name)
        await cluster.wait_ready()


def play(directory: Path, seed: int) -> None:
    run_in(WorldOptions("sim", seed, directory), lambda cluster: run(cluster, directory))


if __name__ == "__main__":
    play(Path(sys.argv[1]), int(sys.argv[2]))
