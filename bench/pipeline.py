"""Records between topics and Spark: our source, Spark's own connector on the JVM, and segments read from their files;
our sink beside the connector's.

All in one Spark session, whose start is measured separately. JVMs become fast by use, for minutes: each kind
of job is done once before any counts, and those that are compared take turns, each time in the other order. CPU is of
all of Spark (driver, JVM, Python workers, also those that have ended), and separately of the servers, if `--pids`
reports them.

The disk holds one topic and one copy of it as Parquet at a time: 10 million records of 1 KB take 40 GB with three
replicas, 20 with `--replicas 1`, which then stands in the names. If there is no room, the table says so.

Usage: pipeline.py --bootstrap H:P,… [--data DIR] [--jars DIR] [--records N …] [--sizes REGEX] [--replicas N]
                   [--pids CMD] [--out F] [--only REGEX] …
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import trio
from measuring import Results, read_pids
from spark_meter import SparkMeter

from barnabas import NewTopic, Producer, sync
from barnabas.pipeline.segment_source import NAME as SEGMENTS
from barnabas.pipeline.session import open_session

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 4
SIZES = {"100B": 100, "1KB": 1000}
READERS = ("source", "connector", "segments")
TARGETS = ("sum", "parquet")
WRITERS = ("sink", "connector")
REPLICAS = 3
BESIDE_VALUES = 16
"""Bytes that a record has in a log besides its value, and a little more."""
ROOM_SECONDS = 90
"""Time limit for the removal of the files of deleted topics."""
Jobs = Mapping[str, Callable[[str], object]]
"""Jobs by name; each gets the topic."""


# Input


class Topics:
    """Topics of one cluster. Deleted topics free their disk space at once."""

    def __init__(self, bootstrap: str, replicas: int) -> None:
        self.bootstrap = bootstrap
        with sync.Admin(bootstrap_servers=bootstrap) as admin:
            self.replicas = min(replicas, len(admin.describe_cluster().nodes))

    @contextmanager
    def topic(self) -> Iterator[str]:
        name = f"bench-pipeline-{uuid.uuid4().hex[:8]}"
        with sync.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, self.replicas, configs={"file.delete.delay.ms": "0"})])
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


# Measurements


class Bench:
    """One session on one cluster."""

    def __init__(self, session: Any, options: argparse.Namespace, results: Results) -> None:
        self.session = session
        self.options = options
        self.results = results
        self.pids = read_pids(options.pids) if options.pids else []
        self.topics = Topics(options.bootstrap, options.replicas)
        self._warm: set[str] = set()

    def frame(self, reader: str, topic: str) -> Any:
        servers = {"kafka.bootstrap.servers": self.options.bootstrap, "subscribe": topic}
        name = {"source": "barnabas", "connector": "kafka", "segments": SEGMENTS}[reader]
        read = self.session.read.format(name).options(**servers)
        return read.load(self.options.data) if reader == "segments" else read.load()

    def read(self, reader: str, target: str, topic: str, rows: Path) -> int:
        """Gives how many records it read."""
        frame = self.frame(reader, topic)
        if target == "sum":
            [row] = frame.selectExpr("count(*) AS records", "sum(length(value)) AS size").collect()
            return int(row.records)
        frame.write.mode("overwrite").parquet(str(rows))
        return int(self.session.read.parquet(str(rows)).count())

    def write(self, writer: str, rows: Path, topic: str) -> None:
        frame = self.session.read.parquet(str(rows)).select("value", "partition")
        servers = {"kafka.bootstrap.servers": self.options.bootstrap, "topic": topic}
        if writer == "sink":
            from barnabas.pipeline.sink import exactly_once_sink

            exactly_once_sink(self.options.bootstrap, topic, f"bench-{uuid.uuid4().hex[:8]}")(frame, 0)
        else:
            frame.write.format("kafka").options(**servers).save()

    def measure(self, jobs: Jobs, records: int, topic: Callable[[], AbstractContextManager[str]]) -> None:
        """Jobs that are compared: once for nothing unless their kinds were done before, then in turn, as often as it is
        wanted. One that fails is reported, and not repeated."""
        left = {name: job for name, job in jobs.items() if re.search(self.options.only, name)}
        is_warm = all(kind_of(name) in self._warm for name in left)
        for run in range(1 if is_warm else 0, self.options.repeat + 1):
            for name in list(left)[:: 1 if run % 2 else -1]:
                try:
                    with topic() as name_of_topic:
                        self._run(name, partial(left[name], name_of_topic), records, run)
                except Exception as error:
                    self._report_failure(name, error)
                    del left[name]

    def _run(self, name: str, job: Callable[[], object], records: int, run: int) -> None:
        with SparkMeter(self.pids) as meter:
            job()
        self._warm.add(kind_of(name))
        if run:
            per_record = meter.fields["client_cpu_s"] / records * 1e6
            more = {**meter.fields, "records": records, "cpu_us_per_record": round(per_record, 3)}
            self.results.add(name, "records/s", run, records / (meter.fields["wall_s"] or 0.01), **more)

    def _report_failure(self, name: str, error: Exception) -> None:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self.results.add(name, "records/s", 1, None, error=line[:300])

    def all(self, count: int) -> None:
        for label, size in SIZES.items():
            if not re.search(self.options.sizes, label):
                continue
            what = f"{label}.{with_suffix(count)}"
            if self.topics.replicas != REPLICAS:
                what += f".{self.topics.replicas}-replica"
            with tempfile.TemporaryDirectory(dir=self.options.scratch) as directory:
                rows = Path(directory) / "rows"
                try:
                    self._read_all(what, size, count, rows)
                    if rows.exists():
                        self._write_all(what, size, count, rows)
                except NoRoom as error:
                    self._report_failure(f"pipeline.{what}", error)

    def _read_all(self, what: str, size: int, count: int, rows: Path) -> None:
        """Leaves the records as Parquet, if Parquet was wanted."""
        readers = [reader for reader in READERS if reader != "segments" or self.options.data]
        self._require_room(size, count, self.topics.replicas + 1)
        with self.topics.topic() as topic:
            self.topics.fill(topic, size, count)
            for target in TARGETS:
                jobs = {
                    f"pipeline.read.{reader}.{what}.{target}": partial(self._read_whole, reader, target, rows, count)
                    for reader in readers
                }
                self.measure(jobs, count, lambda: nullcontext(topic))

    def _read_whole(self, reader: str, target: str, rows: Path, count: int, topic: str) -> None:
        found = self.read(reader, target, topic, rows)
        if found != count:
            raise RuntimeError(f"{found} records of {count} were read")

    def _write_all(self, what: str, size: int, count: int, rows: Path) -> None:
        """Each run into a topic of its own, which goes before the next one comes."""

        @contextmanager
        def fresh() -> Iterator[str]:
            self._require_room(size, count, self.topics.replicas)
            with self.topics.topic() as topic:
                yield topic

        jobs = {f"pipeline.write.{writer}.{what}": partial(self.write, writer, rows) for writer in WRITERS}
        self.measure(jobs, count, fresh)

    def _require_room(self, size: int, count: int, copies: int) -> None:
        """NoRoom if so many copies have none, also when what was deleted is gone."""
        folders = [each for each in (self.options.data, self.options.scratch or tempfile.gettempdir()) if each]
        needed = copies * count * (size + BESIDE_VALUES)
        until = time.monotonic() + ROOM_SECONDS
        while (free := min(shutil.disk_usage(folder).free for folder in folders)) < needed:
            if time.monotonic() > until:
                hint = "; --replicas 1 needs less" if self.topics.replicas > 1 else ""
                raise NoRoom(f"needs {needed / 1e9:.0f} GB of disk, and {free / 1e9:.0f} are free{hint}")
            time.sleep(1)


class NoRoom(Exception):
    """On the disk."""


def kind_of(name: str) -> str:
    """The name of a measurement without how large and how many its records are."""
    return ".".join(part for part in name.split(".") if part not in SIZES and not part[0].isdigit())


def with_suffix(count: int) -> str:
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


# Results


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
    parser.add_argument("--replicas", type=int, default=REPLICAS)
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
        bench = Bench(session, options, results)
        for count in [*options.records, *([10_000_000] if options.ten else [])]:
            bench.all(count)
    finally:
        session.stop()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
