"""Cost of a record in the Kafka clients for Python, on any cluster that speaks the Kafka protocol.

Every load of every client (`client_loads.py`) is a process of its own, which reports the CPU of all its threads while
the clock runs, and its peak memory. Sent records are counted in the cluster afterwards.

Usage: python_clients.py --bootstrap H:P,… [--label NAME] [--pids CMD] [--out F] [--only REGEX] [--seconds S] …
       python_clients.py --table FILE…   makes the Markdown table of what such runs wrote
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from client_loads import (
    BETWEEN_LOOKS,
    CLIENTS,
    LINGER_MS,
    PARTITIONS,
    Done,
    Job,
    confluent_producer,
    confluent_settings,
)
from measuring import Meter, Results, percentile, read_pids

FILLED_BYTES = 150_000_000
FILLED_RECORDS = 600_000
"""Largest number of records to read."""
LOADS = (("produce", 100), ("produce", 1000), ("consume", 100), ("consume", 1000), ("latency", 100))


def run_worker(client: str, kind: str, job: Job) -> Done:
    program = str(Path(__file__).with_name("client_loads.py"))
    arguments = [client, kind, job.bootstrap, job.topic, str(job.size), str(job.seconds)]
    finished = subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, timeout=job.seconds * 4 + 60, check=False
    )
    if finished.returncode:
        raise RuntimeError((finished.stderr.strip().splitlines() or ["it failed"])[-1])
    return Done(**json.loads(finished.stdout.strip().splitlines()[-1]))


# -- the cluster


class Topics:
    """Makes topics, fills them, and counts what is in them."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, str] | None = None, prefix: str = "bench-clients-"
    ) -> None:
        """`settings` are further ones of librdkafka; names of topics begin with `prefix`."""
        from confluent_kafka.admin import AdminClient

        self._bootstrap = bootstrap
        self._settings = dict(settings or {})
        self._prefix = prefix
        self._admin = AdminClient(confluent_settings(Job(bootstrap, "", 0, 0, settings=self._settings)))

    @contextmanager
    def topic(self) -> Iterator[str]:
        from confluent_kafka.admin import NewTopic

        name = f"{self._prefix}{uuid.uuid4().hex[:8]}"
        brokers = len(self._admin.list_topics(timeout=20).brokers)
        new = NewTopic(name, PARTITIONS, min(3, brokers))
        self._admin.create_topics([new], operation_timeout=60)[name].result()
        end = time.monotonic() + 60
        while not self._is_led(name):
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has no leaders")
            time.sleep(0.05)
        try:
            yield name
        finally:
            self._admin.delete_topics([name], operation_timeout=60)[name].result()

    def _is_led(self, topic: str) -> bool:
        found = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == PARTITIONS and all(each.leader >= 0 and each.isrs for each in found.values())

    def fill(self, topic: str, size: int, filled_bytes: int = FILLED_BYTES) -> int:
        """Write so many bytes, in batches like those of the clients under load; returns the number of records."""
        producer = confluent_producer(Job(self._bootstrap, topic, size, 0, settings=self._settings), LINGER_MS)
        value = b"x" * size
        count = min(FILLED_RECORDS, filled_bytes // size)
        for index in range(count):
            while True:
                try:
                    producer.produce(topic, value, partition=index // BETWEEN_LOOKS % PARTITIONS)
                except BufferError:
                    producer.poll(0.05)
                else:
                    break
        producer.flush()
        found = self.count(topic)
        if found != count:
            raise RuntimeError(f"{found} records of {count} are there")
        return count

    def count(self, topic: str) -> int:
        """Records in all partitions."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        job = Job(self._bootstrap, topic, 0, 0, settings=self._settings)
        consumer = Consumer(confluent_settings(job, **{"group.id": "unused"}))
        partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        end = time.monotonic() + 30
        try:
            while True:
                try:
                    return sum(consumer.get_watermark_offsets(partition, timeout=20)[1] for partition in partitions)
                except KafkaException:  # a leader of a moment ago may not know yet that it is one
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.1)
        finally:
            consumer.close()


def warm_up(topics: Topics, bootstrap: str, seconds: float) -> None:
    """Loads that do not count: they make a JVM fast."""
    with topics.topic() as topic:
        run_worker("confluent-kafka", "produce", Job(bootstrap, topic, LOADS[0][1], seconds / 2))
        run_worker("confluent-kafka", "latency", Job(bootstrap, topic, LOADS[0][1], seconds / 2))


def measure(options: argparse.Namespace) -> None:
    """Goes round all clients, so that none has a quieter machine than another."""
    topics = Topics(options.bootstrap)
    if options.warmup:
        warm_up(topics, options.bootstrap, options.warmup)
    results = Results(options.out, options.label)
    for kind, size in LOADS:
        chosen = [client for client in CLIENTS if re.search(options.only, f"{kind}.{size}B.{client}")]
        if not chosen:
            continue
        with topics.topic() as topic:
            if kind == "consume":
                topics.fill(topic, size)
            for run in range(1, options.repeat + 1):
                for client in chosen:
                    pids = read_pids(options.pids) if options.pids else []
                    job = Job(options.bootstrap, topic, size, options.seconds)
                    unit = "p50 ms" if kind == "latency" else "rec/s"
                    name = f"client.{kind}.{size}B.{client}"
                    try:
                        value, more = one_load(topics, pids, client, kind, job)
                        results.add(name, unit, run, value, **more)
                    except Exception as error:
                        results.add(name, unit, run, None, error=f"{type(error).__name__}: {error}"[:300])


def one_load(topics: Topics, pids: list[int], client: str, kind: str, job: Job) -> tuple[float, dict[str, Any]]:
    before = topics.count(job.topic)
    with Meter(pids) as meter:
        done = run_worker(client, kind, job)
    added = topics.count(job.topic) - before
    if kind != "consume" and added != done.sent_in_all:
        raise RuntimeError(f"{done.sent_in_all} records were sent, and {added} are there")
    if not done.records:
        raise RuntimeError("not a single record")
    more: dict[str, Any] = {
        "records": done.records,
        "cpu_s_per_million": done.cpu_s / done.records * 1e6,
        "rss_mib": done.rss_mib,
        **meter.fields,
    }
    if kind == "latency":
        more["p99_ms"] = percentile(done.latencies_ms, 0.99)
        return percentile(done.latencies_ms, 0.5), more
    more["mb_s"] = done.records * job.size / done.seconds / 1e6
    return done.records / done.seconds, more


# -- the table


def table(paths: list[str]) -> Iterator[str]:
    """Lines of Markdown: one row for each client under each load, one group of columns for each cluster."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    targets: dict[str, None] = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            result = json.loads(line)
            if result["name"].startswith("client."):
                targets[result["target"]] = None
                if result["value"] is not None:
                    found.setdefault((result["target"], result["name"]), []).append(result)
    yield "| load | client |" + "".join(f" {target} | MB/s | CPU s per million | MiB |" for target in targets)
    yield "|---|---|" + "---:|---:|---:|---:|" * len(targets)
    for kind, size in LOADS:
        for client in CLIENTS:
            cells = "".join(
                cells_of(
                    found.get((target, f"client.{kind}.{size}B.{client}"), []),
                    found.get((target, f"client.{kind}.{size}B.barnabas"), []),
                )
                for target in targets
            )
            yield f"| {kind} {size} B | {client} |{cells}"


def cells_of(runs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """Medians; in brackets how many times ours it costs."""
    if not runs:
        return " – | | | |"

    def middle(results: list[dict[str, Any]], key: str) -> float:
        return float(median([result[key] for result in results]))

    cpu = middle(runs, "cpu_s_per_million")
    ratio = f" ({cpu / middle(ours, 'cpu_s_per_million'):.2g}×)" if ours else ""
    value = f"{middle(runs, 'value'):,.0f} rec/s"
    if "p99_ms" in runs[0]:
        value = f"p50 {middle(runs, 'value'):.2f} ms, p99 {middle(runs, 'p99_ms'):.2f} ms"
    volume = f"{middle(runs, 'mb_s'):.1f}" if "mb_s" in runs[0] else ""
    return f" {value} | {volume} | {cpu:.3g}{ratio} | {middle(runs, 'rss_mib'):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap")
    parser.add_argument("--label", default="cluster")
    parser.add_argument("--pids", help="prints lines 'role pid': for the servers' CPU")
    parser.add_argument("--out", help="file to which results are added")
    parser.add_argument("--only", default="", help="regular expression on KIND.SIZE.CLIENT")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each load")
    parser.add_argument("--warmup", type=float, default=0, help="seconds of load before")
    parser.add_argument("--table", nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(options.table)))
    elif options.bootstrap:
        measure(options)
    else:
        parser.error("--bootstrap or --table is missing")


if __name__ == "__main__":
    main()
