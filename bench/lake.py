"""`barnabas lake` on any cluster that speaks the Kafka protocol: what records cost it, and how fresh a table is.

`lake.load.SIZE` is the rate at which it writes a topic of a million records into a new table, as a whole process with
its start; its CPU is that of this process alone. `lake.freshness.Ns` is the time from the confirmation of a record by
the cluster until a snapshot of the table has it, with a commit every N seconds and 500 records a second.

Usage: lake.py --bootstrap H:P,… [--pids CMD] [--out F] [--only REGEX] [--seconds N] …
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from group_members import Cluster, Load, Measured, fill, measure_all, settings, wait_until
from measuring import Results, percentile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from barnabas.lake.progress import progress_of

PARTITIONS = 3
SIZES = {"100B": 100, "1KB": 1_000}
"""Bytes of a value."""
RECORDS = 1_000_000
INTERVALS_S = (1, 10)
RECORDS_PER_SECOND = 500
POLL_S = 0.05
PATIENCE_S = 120.0


class Lake:
    """A catalogue in SQLite, and tables in a directory."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self._uri = f"sqlite:///{directory}/lake.db"
        self._warehouse = str(directory / "tables")
        self._catalog: SqlCatalog | None = None

    def command(self, topic: str, *words: str) -> list[str]:
        where = ["--catalog", self._uri, "--warehouse", self._warehouse]
        program = str(Path(sys.executable).with_name("barnabas"))
        return [program, "lake", "run", topic, "--table", table_of(topic), "-b", self.cluster.bootstrap, *where, *words]

    def table(self, topic: str) -> Table | None:
        if self._catalog is None:
            self._catalog = SqlCatalog("barnabas", uri=self._uri, warehouse=self._warehouse)
        try:
            return self._catalog.load_table(table_of(topic))
        except NoSuchTableError:
            return None

    def offsets(self, topic: str) -> dict[int, int]:
        """The first offset that the table lacks, by partition."""
        table = self.table(topic)
        snapshot = None if table is None else table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return {}
        progress = progress_of(snapshot.summary.additional_properties)
        return {} if progress is None else dict(progress.offsets)


def table_of(topic: str) -> str:
    return f"topics.{topic.replace('-', '_')}"


def load(lake: Lake, size: int, count: int) -> Measured:
    """Records in a second."""
    with lake.cluster.topic(PARTITIONS) as topic:
        fill(lake.cluster.bootstrap, topic, count, os.urandom(size), PARTITIONS)
        meter, before = lake.cluster.meter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with meter:
            began = time.monotonic()
            subprocess.run(lake.command(topic, "--available-now"), check=True, stdout=subprocess.DEVNULL)
            took = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        table = lake.table(topic)
        assert table is not None
        rows = table.scan().count()
        if rows != count:
            raise RuntimeError(f"the table has {rows} rows, expected {count}")
        more = {"ops": count, "lake_cpu_us": round(cpu_s / count * 1e6, 2), "most_mib": after.ru_maxrss / 1024}
        return count / took, {**more, **meter.fields}


@contextmanager
def following(lake: Lake, topic: str, interval_s: float) -> Iterator[None]:
    """`barnabas lake` follows the topic."""
    command = lake.command(topic, "--commit-interval", str(interval_s))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it has claimed its table
        yield
    finally:
        process.terminate()
        process.communicate()


def freshness(lake: Lake, interval_s: float, seconds: float) -> Measured:
    """The median in seconds."""
    confirmed: dict[tuple[int, int], float] = {}
    seen: dict[tuple[int, int], float] = {}
    count = int(RECORDS_PER_SECOND * seconds)
    over = threading.Event()

    def write() -> None:
        producer = Producer(settings(lake.cluster.bootstrap, **{"linger.ms": 0, "acks": "all"}))

        def delivered(error: object, message: object) -> None:
            if error is None:
                confirmed[message.partition(), message.offset()] = time.monotonic()  # type: ignore[attr-defined]

        began = time.monotonic()
        for number in range(count):
            while (left := began + number / RECORDS_PER_SECOND - time.monotonic()) > 0:
                producer.poll(left)
            producer.produce(topic, b"x" * 100, partition=number % PARTITIONS, on_delivery=delivered)
        producer.flush(60)
        over.set()

    with lake.cluster.topic(PARTITIONS) as topic, following(lake, topic, interval_s):
        writer = threading.Thread(target=write)
        writer.start()
        reached = dict.fromkeys(range(PARTITIONS), 0)

        def look() -> bool:
            offsets = lake.offsets(topic)
            now = time.monotonic()
            for partition, end in offsets.items():
                seen.update(((partition, offset), now) for offset in range(reached[partition], end))
                reached[partition] = max(end, reached[partition])
            time.sleep(POLL_S)
            return over.is_set() and len(seen) >= len(confirmed)

        wait_until(look, "the table has every record", seconds + PATIENCE_S)
        writer.join()
    delays = [max(0.0, seen[place] - at) for place, at in confirmed.items()]
    more = {"ops": len(delays), "p99_s": round(percentile(delays, 0.99), 2), "longest_s": round(max(delays), 2)}
    return percentile(delays, 0.5), more


def loads(lake: Lake, seconds: float) -> Iterable[Load]:
    for name, size in SIZES.items():
        yield Load(f"lake.load.{name}", "rec/s", partial(load, lake, size, RECORDS))
    for interval_s in INTERVALS_S:
        yield Load(f"lake.freshness.{interval_s}s", "p50 s", partial(freshness, lake, interval_s, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--label", default="cluster")
    parser.add_argument("--pids", help="prints lines 'role pid': for the servers' CPU")
    parser.add_argument("--out", help="file to which results are added")
    parser.add_argument("--only", default="", help="regular expression on the names")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--list", action="store_true", help="only name the measurements")
    options = parser.parse_args()
    options.kill = options.restart = None
    with tempfile.TemporaryDirectory(prefix="lake-load-") as directory:
        lake = Lake(Cluster(options), Path(directory))
        chosen = [load for load in loads(lake, options.seconds) if re.search(options.only, load.name)]
        if options.list:
            print("\n".join(load.name for load in chosen))
            return
        measure_all(chosen, Results(options.out, options.label), options.repeat)


if __name__ == "__main__":
    main()
