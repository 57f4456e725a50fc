"""Delayed delivery: memory of pending records, lateness, and the rate at which many are delivered at once.

Starts three brokers and three controllers in a new directory. First records are spread over some time, and a consumer
compares when each comes with when it was due. Then all wait for one moment: the brokers' memory is measured before it,
and afterwards the time until a consumer has all of them. Prints one line of JSON for each measurement.

Usage: delayed.py [--data DIRECTORY] [--records N] [--rate N] [--base-port 22300] [--out F]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import trio
from measuring import Results, cpu_s, memory_mib

from barnabas import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.processes import State

DELAYED = {"barnabas.delayed.delivery.enable": "true"}
VALUE = b"x" * 100
SPREAD_SECONDS = 20
GO_AHEAD_SECONDS = 30
"""Time between the last record's acknowledgement and the moment for which all wait, at least."""
IN_FLIGHT = 20_000


class Delayed:
    def __init__(self, cluster: LocalCluster, results: Results) -> None:
        self._cluster = cluster
        self._results = results

    async def run(self, records: int, rate: int) -> None:
        async with Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name, 1, 3, configs=DELAYED) for name in ("spread", "crowd")])
        await self._spread(rate)
        await self._crowd(records)

    # -- accuracy

    async def _spread(self, rate: int) -> None:
        count = rate * SPREAD_SECONDS
        start_ms = _now_ms() + 10_000
        # Neighbours in the log are due at very different times.
        times = [start_ms + number * 7919 % count * 1000 // rate for number in range(count)]
        await self._produce("spread", times)
        lateness = sorted([came_ms - due_ms for due_ms, came_ms in await self._consume("spread", count)])
        assert lateness[0] >= 0, "a record came before its time"
        for name, place in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            value = lateness[min(int(place * count), count - 1)]
            self._results.add(f"delayed.lateness.{name}", "ms", 1, value, records_per_s=rate, records=count)

    # -- many at once

    async def _crowd(self, count: int) -> None:
        before, _ = memory_mib(self._pids())
        began = time.monotonic()
        seconds = GO_AHEAD_SECONDS + count / 20_000
        due_ms = _now_ms() + int(seconds * 1000)
        await self._produce("crowd", [due_ms] * count)
        spent = time.monotonic() - began
        self._results.add("delayed.hold", "records/s", 1, count / spent, records=count)
        after, _ = memory_mib(self._pids())
        self._results.add("delayed.memory", "MiB", 1, after - before, records=count, before_mib=before)
        cpu = cpu_s(self._pids())
        came = [came_ms for _, came_ms in await self._consume("crowd", count)]
        took_s = (max(came) - due_ms) / 1000
        used = cpu_s(self._pids()) - cpu
        self._results.add("delayed.deliver", "records/s", 1, count / took_s, records=count, cpu_s=used)
        self._results.add("delayed.memory.after", "MiB", 1, memory_mib(self._pids())[0] - before, records=count)

    # -- clients

    async def _produce(self, topic: str, times: list[int]) -> None:
        async with Producer(bootstrap_servers=self._cluster.bootstrap_servers, linger_ms=5) as producer:
            for number, due_ms in enumerate(times):
                headers = [("deliver-at", str(due_ms).encode())]
                await producer.enqueue(topic, VALUE, headers=headers)
                if number % IN_FLIGHT == 0:
                    await producer.flush()
            await producer.flush()

    async def _consume(self, topic: str, count: int) -> list[tuple[int, int]]:
        """(when it was due, when it came) of each record."""
        found: list[tuple[int, int]] = []
        servers = self._cluster.bootstrap_servers
        async with Consumer(bootstrap_servers=servers, fetch_max_wait_ms=100) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            with trio.fail_after(600):
                while len(found) < count:
                    batch = await consumer.poll(1_000)
                    now_ms = _now_ms()
                    found += [(int(record.headers[0][1] or b""), now_ms) for record in batch]
        return found

    def _pids(self) -> list[int]:
        running = [node for node in self._cluster.processes() if node.state == State.RUNNING.value and node.pid]
        return [node.pid for node in running if node.name.startswith("broker")]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a directory to make; by default a temporary one")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=2_000, help="records per second that are due, when lateness counts")
    parser.add_argument("--base-port", type=int, default=22_300)
    parser.add_argument("--out", default=None)
    parser.add_argument("--label", default="barnabas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        cluster = LocalCluster(options.data or Path(temporary), options.base_port)
        cluster.up()
        cluster.wait_ready()
        try:
            trio.run(Delayed(cluster, Results(options.out, options.label)).run, options.records, options.rate)
        finally:
            cluster.down()


if __name__ == "__main__":
    main()
