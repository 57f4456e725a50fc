"""Records between topics and Spark: our source, Spark's own connector on the JVM, and segments read from their files;
our sink beside the connector's.

All in one Spark session, whose start is told apart; each measurement once before it counts, since JVMs become fast by
use. CPU is of everything that Spark is (driver, JVM, Python workers, also those that have ended), and apart from it of
the servers, where `--pids` tells them.

Usage: pipeline.py --bootstrap H:P,… [--data DIR] [--jars DIR] [--records N] [--pids CMD] [--out F] [--only REGEX] …
       pipeline.py --table FILE…   makes the Markdown table of what such runs wrote
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import trio
from measuring import Meter, Results, read_pids, stat_of, with_descendants

from barnabas import NewTopic, Producer, sync
from barnabas.pipeline.segments import NAME as SEGMENTS
from barnabas.pipeline.session import open_session

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 4
SIZES = {"100B": 100, "1KB": 1000}
READERS = ("source", "connector", "segments")
TARGETS = ("sum", "parquet")
WRITERS = ("sink", "connector")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class SparkMeter(Meter):
    """Counts the workers that Spark ended, too. Their CPU stands with the process that waited for them; with nobody, if
    that was ended with them: then what they had when they were last seen.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        super().__init__(pids)
        self._seen: dict[int, tuple[float, float]] = {}
        self._unclaimed_s = 0.0

    def _readings(self) -> tuple[float, ...]:
        wall, server, client, *rest = super()._readings()
        seen = {pid: _cpu_and_ended_s(pid) for pid in with_descendants([os.getpid()])}
        gone = sum(sum(times) for pid, times in self._seen.items() if pid not in seen)
        claimed = sum(ended - self._seen[pid][1] for pid, (_, ended) in seen.items() if pid in self._seen)
        self._unclaimed_s += max(0.0, gone - claimed)
        self._seen = seen
        ended = sum(times[1] for pid, times in seen.items() if pid != os.getpid())
        return wall, server, client + ended + self._unclaimed_s, *rest


def _cpu_and_ended_s(pid: int) -> tuple[float, float]:
    """Of a process itself, and of its children that it has waited for."""
    fields = [int(word) for word in stat_of(pid)[11:15]]
    return sum(fields[:2]) / _TICKS_PER_S, sum(fields[2:]) / _TICKS_PER_S


# What is there to be read


class Topics:
    """Of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @contextmanager
    def topic(self) -> Iterator[str]:
        name = f"bench-pipeline-{uuid.uuid4().hex[:8]}"
        with sync.Admin(bootstrap_servers=self.bootstrap) as admin:
            brokers = len(admin.describe_cluster().nodes)
            admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=min(3, brokers))])
            try:
                yield name
            finally:
                admin.delete_topics([name])

    def fill(self, topic: str, size: int, count: int) -> None:
        """Values that do not repeat soon, evenly over the partitions."""
        noise = os.urandom(1 << 16)

        async def send() -> None:
            async with Producer(bootstrap_servers=self.bootstrap, linger_ms=5, batch_size=65_536) as producer:
                for number in range(count):
                    start = number * 131 % (len(noise) - size)
                    await producer.enqueue(topic, noise[start : start + size], partition=number % PARTITIONS)
                await producer.flush()

        trio.run(send)


# What is measured


class Bench:
    """One session on one cluster."""

    def __init__(self, session: Any, options: argparse.Namespace, results: Results) -> None:
        self.session = session
        self.options = options
        self.results = results
        self.pids = read_pids(options.pids) if options.pids else []

    def frame(self, reader: str, topic: str) -> Any:
        servers = {"kafka.bootstrap.servers": self.options.bootstrap, "subscribe": topic}
        name = {"source": "barnabas", "connector": "kafka", "segments": SEGMENTS}[reader]
        read = self.session.read.format(name).options(**servers)
        return read.load(self.options.data) if reader == "segments" else read.load()

    def read(self, reader: str, target: str, topic: str, scratch: Path) -> int:
        """Gives how many records it read."""
        frame = self.frame(reader, topic)
        if target == "sum":
            [row] = frame.selectExpr("count(*) AS records", "sum(length(value)) AS size").collect()
            return int(row.records)
        path = str(scratch / reader)
        frame.write.mode("overwrite").parquet(path)
        return int(self.session.read.parquet(path).count())

    def write(self, writer: str, source: Path, topic: str) -> None:
        frame = self.session.read.parquet(str(source)).select("value", "partition")
        servers = {"kafka.bootstrap.servers": self.options.bootstrap, "topic": topic}
        if writer == "sink":
            from barnabas.pipeline.sink import exactly_once_sink

            exactly_once_sink(self.options.bootstrap, topic, f"bench-{uuid.uuid4().hex[:8]}")(frame, 0)
        else:
            frame.write.format("kafka").options(**servers).save()

    def measure(self, name: str, records: int, job: Callable[[], object]) -> None:
        """Once for nothing, then as often as it is wanted."""
        if not re.search(self.options.only, name):
            return
        try:
            job()
            for run in range(1, self.options.repeat + 1):
                with SparkMeter(self.pids) as meter:
                    job()
                seconds = meter.fields["wall_s"] or 0.01
                per_record = meter.fields["client_cpu_s"] / records * 1e6
                more = {**meter.fields, "records": records, "cpu_us_per_record": round(per_record, 3)}
                self.results.add(name, "records/s", run, records / seconds, **more)
        except Exception as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self.results.add(name, "records/s", 1, None, error=line[:300])

    def all(self, count: int) -> None:
        topics = Topics(self.options.bootstrap)
        readers = [reader for reader in READERS if reader != "segments" or self.options.data]
        for label, size in SIZES.items():
            if not re.search(self.options.sizes, label):
                continue
            with topics.topic() as topic, tempfile.TemporaryDirectory(dir=self.options.scratch) as directory:
                scratch = Path(directory)
                topics.fill(topic, size, count)
                for target, reader in product(TARGETS, readers):
                    name = f"pipeline.read.{reader}.{label}.{told(count)}.{target}"
                    self.measure(name, count, partial(self._read_all, reader, target, topic, scratch, count))
                self._write_all(topics, label, count, scratch)

    def _read_all(self, reader: str, target: str, topic: str, scratch: Path, count: int) -> None:
        found = self.read(reader, target, topic, scratch)
        if found != count:
            raise RuntimeError(f"{found} records of {count} were read")

    def _write_all(self, topics: Topics, label: str, count: int, scratch: Path) -> None:
        source = next((path for path in (scratch / "source", scratch / "connector") if path.exists()), None)
        for writer in WRITERS if source is not None else ():
            name = f"pipeline.write.{writer}.{label}.{told(count)}"
            if source is not None and re.search(self.options.only, name):
                with topics.topic() as target:
                    self.measure(name, count, partial(self.write, writer, source, target))


def told(count: int) -> str:
    return f"{count // 1_000_000}M" if count % 1_000_000 == 0 else f"{count // 1000}k"


def started(options: argparse.Namespace, results: Results) -> Any:
    """A session; how long it took, and its first job."""
    jars = sorted(Path(options.jars).glob("*.jar")) if options.jars else []
    settings = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    with SparkMeter([]) as meter:
        session = open_session(options.master, "bench", settings)
    results.add("pipeline.start.session", "s", 1, meter.fields["wall_s"], **meter.fields)
    with SparkMeter([]) as meter:
        session.range(1000).selectExpr("sum(id)").collect()
    results.add("pipeline.start.first-job", "s", 1, meter.fields["wall_s"], **meter.fields)
    return session


# What was measured


def table(files: Sequence[str]) -> list[str]:
    """Lines of Markdown: a row for each measurement, medians of its runs."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for file in files:
        for line in Path(file).read_text().splitlines():
            row = json.loads(line)
            if row["name"].startswith("pipeline."):
                rows.setdefault(row["name"].removeprefix("pipeline."), []).append(row)
    lines = ["| | records/s | CPU of Spark, s | a record, µs | CPU of servers, s |", "|---|--:|--:|--:|--:|"]
    starts = []
    for name, runs in rows.items():
        good = [run for run in runs if run["value"] is not None]
        if name.startswith("start."):
            starts.append(f"{name.removeprefix('start.')} {median(run['value'] for run in good):.1f} s")
        elif not good:
            lines.append(f"| {name} | {runs[0].get('error', 'not measured')} | | | |")
        else:
            client, server = (median(run.get(field, 0.0) for run in good) for field in ("client_cpu_s", "server_cpu_s"))
            each = median(run["cpu_us_per_record"] for run in good)
            rate = median(run["value"] for run in good)
            lines.append(f"| {name} | {rate:,.0f} | {client:.1f} | {each:.2f} | {server:.1f} |")
    return [*lines, "", f"Start of Spark, which is in none of them: {', '.join(starts)}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap")
    parser.add_argument("--label", default="barnabas")
    parser.add_argument("--data", default="", help="the brokers' log dirs, or what has them in it: for segments")
    parser.add_argument("--jars", default=str(ROOT / ".cache" / "spark-connector"))
    parser.add_argument("--records", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--ten", action="store_true", help="10 million records as well")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--scratch", default=None, help="where Parquet is written")
    parser.add_argument("--pids", default="", help="prints lines of `role pid`")
    parser.add_argument("--out")
    parser.add_argument("--only", default=".")
    parser.add_argument("--sizes", default=".")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--table", nargs="*")
    options = parser.parse_args()
    if options.table is not None:
        print("\n".join(table(options.table)))
        return
    if not options.bootstrap:
        parser.error("--bootstrap is missing")
    if options.scratch:
        shutil.rmtree(options.scratch, ignore_errors=True)
        Path(options.scratch).mkdir(parents=True)
    results = Results(options.out, options.label)
    began = time.monotonic()
    session = started(options, results)
    try:
        for count in [*options.records, *([10_000_000] if options.ten else [])]:
            Bench(session, options, results).all(count)
    finally:
        session.stop()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
