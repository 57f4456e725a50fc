"""`make pipeline-demo`: Spark moves a year of flights through a topic to Parquet, while processes are killed.

    flights ─ load (a transaction a month) ─► topic ─ export --follow ─► lake

Both jobs are commands of `barnabas pipeline`, in processes of their own. A leader is killed on the way, then the driver
of the stream with its executors; both are restarted. At the end the lake is compared with the flights, row by row. The
exit code is 0 if they are equal, 1 if anything differs or fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.client.offset_lookup import LATEST, Isolation
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import BlockingError, PipelineError
from barnabas.pipeline.jobs.lag import positions_of_group
from barnabas.pipeline.jobs.topics import TopicIdentity, find_or_create
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.pipeline.demo_picture import Mark, Sample

PARTITIONS = 3
MAX_OFFSETS = 50_000
"""Per batch of the stream: small, so that kills happen in the middle of the export."""
SAMPLE_SECONDS = 0.5
BROKER_DIES_AT = 0.2
DRIVER_DIES_AT = 0.45
BROKER_IS_BACK_AT = 0.7
"""Shares of the flights in the lake at which something happens."""
LONGEST_SECONDS = 1_800
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Options for a JVM that starts fast and stays small: three of them run beside six nodes."""


@dataclass
class Job:
    """A command of the pipeline, in a process group with the processes that Spark starts for it."""

    name: str
    words: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.cli.main", "pipeline", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL the driver, its JVM and its workers at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Terminate, and kill after a minute."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def is_over(self) -> bool:
        """Whether the process has ended. PipelineError with its last line if it failed."""
        assert self.process is not None
        code = self.process.poll()
        if code:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["no output"]
            raise PipelineError(f"{self.name} ended with exit code {code}: {lines[-1]}")
        return code is not None


@dataclass
class LagRecorder:
    """Samples the topic and the group of the stream in a thread."""

    bootstrap: str
    topic: TopicIdentity
    group: str
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def last(self) -> Sample:
        from barnabas.pipeline.demo_picture import Sample

        return self.samples[-1] if self.samples else Sample(0.0, 0, 0)

    def mark(self, text: str) -> None:
        from barnabas.pipeline.demo_picture import Mark

        self.marks.append(Mark(self.seconds, text))
        print(f"{self.seconds:7.1f} s  {text}", flush=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @contextmanager
    def recording(self) -> Iterator[None]:
        watcher = threading.Thread(target=self._record, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._over.set()
            watcher.join(5)

    def _record(self) -> None:
        from barnabas.pipeline.demo_picture import Sample

        ends = {(self.topic.topic, partition): LATEST for partition in self.topic.partitions}
        with BlockingCluster(self.bootstrap, request_timeout_ms=2_000, retry_timeout_ms=20_000) as cluster:
            while not self._over.wait(SAMPLE_SECONDS):
                try:
                    found = cluster.list_offsets(ends, Isolation.READ_COMMITTED)
                    read = positions_of_group(cluster, self.group)
                except (BlockingError, KafkaError):
                    continue  # a broker was killed; the next sample finds the new leader
                loaded = sum(each.offset for each in found.values())
                self.samples.append(Sample(self.seconds, loaded, sum(read.values())))


def main(words: Sequence[str] | None = None) -> int:
    options = _options().parse_args(words)
    try:
        return run(options)
    except (PipelineError, ClusterError, KafkaError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace) -> int:
    """Run the demo; returns the exit code. PipelineError."""
    from barnabas.pipeline import flights
    from barnabas.pipeline.session import require_java, require_spark

    require_spark()
    require_java()
    place = Path(options.data).absolute() / "pipeline-demo"
    source = options.flights or flights.fetch(Path(options.data).absolute() / "packages")
    rows = flights.read(source, options.records)
    shutil.rmtree(place, ignore_errors=True)
    files = flights.write_months(rows, place / "flights")
    print(f"{len(rows):,} flights in {files} files, {len(rows.column_names)} columns", flush=True)
    cluster = _cluster(options)
    recorder = _stream(cluster, place, rows, options)
    frame = _lake(place / "lake", options)
    differences = compare(rows, frame)
    for line in differences:
        print(line, file=sys.stderr)
    verdict = f"{len(rows):,} flights went in, {len(frame):,} came out: "
    verdict += "equal row by row, no loss, no duplicate" if not differences else "NOT EQUAL"
    print(verdict, flush=True)
    _draw(frame, recorder, verdict, place, options)
    return 1 if differences else 0


def compare(rows: pa.Table, lake: pa.Table) -> list[str]:
    """The differences, one line each: missing rows, duplicates, and different rows."""
    import pyarrow.compute as pc

    lines = []
    expected, found = rows["number"], lake["number"]
    unique = pc.unique(found)
    missing = len(expected) - pc.sum(pc.is_in(expected, value_set=unique)).as_py() if len(expected) else 0
    if missing:
        lines.append(f"{missing:,} flights are missing in the lake")
    if len(found) > len(unique):
        lines.append(f"{len(found) - len(unique):,} flights are in the lake more than once")
    foreign = len(unique) - (pc.sum(pc.is_in(unique, value_set=expected.combine_chunks())).as_py() or 0)
    if foreign:
        lines.append(f"{foreign:,} rows of the lake are no flights")
    if lines:
        return lines
    order = [("number", "ascending")]
    ours, theirs = rows.sort_by(order), lake.select(rows.column_names).sort_by(order)
    for name in rows.column_names:
        if not ours[name].equals(theirs[name].cast(ours[name].type)):
            lines.append(f"column {name} differs")
    for of_record, name in (("key", "carrier"), ("timestamp", "time_hour")):
        if of_record in lake.column_names and not lake[of_record].equals(lake[name]):
            lines.append(f"the {of_record} of a record is not its {name}")
    return lines


def _cluster(options: argparse.Namespace) -> LocalCluster:
    """The cluster in --data, started if need be."""
    cluster = LocalCluster(options.data, options.base_port)
    started = cluster.up()
    seconds = cluster.wait_ready()
    action = f"started {len(started)} nodes" if started else "using the running cluster"
    print(f"{action} in {options.data}, ready after {seconds:.1f} s: {cluster.bootstrap_servers}", flush=True)
    return cluster


def _stream(cluster: LocalCluster, place: Path, rows: pa.Table, options: argparse.Namespace) -> LagRecorder:
    """Run both jobs to their end, with the kills."""
    from barnabas.pipeline import flights

    bootstrap = cluster.bootstrap_servers
    topic = f"flights-{int(time.time())}"
    with BlockingCluster(bootstrap) as client:
        identity, _ = find_or_create(client, topic, PARTITIONS, keep=True)
    common = ["--bootstrap", bootstrap, "--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    common += ["--conf", "spark.sql.shuffle.partitions=2", "--conf", f"spark.driver.extraJavaOptions={JVM}"]
    load_words = ["load", str(place / "flights"), "--topic", topic, "--key", "carrier", "--timestamp", "time_hour"]
    load_words += ["--checkpoint", str(place / "load"), "--files-per-transaction", "1", *common]
    follow_words = ["export", topic, "--to", str(place / "lake"), "--follow", "--group", topic]
    follow_words += ["--value-schema", flights.DDL, "--max-offsets", str(options.max_offsets), *common]
    load = Job("the load", load_words, place / "load.log")
    stream = Job("the stream", follow_words, place / "export.log")
    recorder = LagRecorder(bootstrap, identity, topic)
    with recorder.recording():
        recorder.mark("load and stream begin")
        stream.start()
        load.start()
        try:
            _run_story(cluster, identity, (load, stream), recorder, len(rows))
        finally:
            for job in (stream, load):
                job.stop()
    return recorder


def _run_story(
    cluster: LocalCluster, topic: TopicIdentity, jobs: tuple[Job, Job], recorder: LagRecorder, count: int
) -> None:
    load, stream = jobs
    leader = _leader(cluster, topic.topic)

    def kill_broker() -> None:
        cluster.kill(leader)
        recorder.mark(f"{leader} is killed")

    def kill_driver() -> None:
        stream.kill()
        recorder.mark("the Spark driver is killed")
        stream.start()

    def start_broker() -> None:
        cluster.start(leader)
        recorder.mark(f"{leader} is back")

    steps: list[tuple[float, Callable[[], None]]] = [
        (BROKER_DIES_AT, kill_broker),
        (DRIVER_DIES_AT, kill_driver),
        (BROKER_IS_BACK_AT, start_broker),
    ]
    loaded = False
    while True:
        if recorder.seconds > LONGEST_SECONDS:
            raise PipelineError(f"not done after {LONGEST_SECONDS} s; see {load.log} and {stream.log}")
        if not loaded and load.is_over:
            loaded = True
            recorder.mark("all is loaded")
        if stream.is_over:
            raise PipelineError(f"the stream ended too early; see {stream.log}")
        now = recorder.last
        while steps and now.exported >= steps[0][0] * count:
            steps.pop(0)[1]()
        if loaded and not steps and now.lag == 0 and now.exported >= count:
            recorder.mark("all is in the lake")
            return
        time.sleep(SAMPLE_SECONDS / 2)


def _leader(cluster: LocalCluster, topic: str) -> str:
    """The name of the broker that leads partition 0."""
    with BlockingCluster(cluster.bootstrap_servers) as client:
        leader = client.metadata([topic]).topics[topic].leaders[0].node_id
    return next(node.name for node in cluster.layout.brokers if node.id == leader)


def _lake(folder: Path, options: argparse.Namespace) -> pa.Table:
    """The flights in the lake, as Spark reads them."""
    from barnabas.pipeline.session import WORKER_START_TIMEOUT, open_session, silent_stderr
    from barnabas.pipeline.spark_errors import in_one_line

    settings = {
        WORKER_START_TIMEOUT: "120s",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": JVM,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    }
    with silent_stderr():
        session = open_session("local[2]", "barnabas pipeline demo", settings)
    try:
        with in_one_line():
            rows = session.read.parquet(str(folder))
            return rows.selectExpr("value.*", "cast(key as string) as key", "timestamp").toArrow()
    finally:
        session.stop()


def _draw(lake: pa.Table, recorder: LagRecorder, title: str, place: Path, options: argparse.Namespace) -> None:
    import numpy as np

    from barnabas.pipeline.demo_picture import FIRST_DAYS, draw

    hours = np.zeros((365, 24), dtype=np.int64)
    first_days = np.array(FIRST_DAYS)
    days = first_days[np.asarray(lake["month"]) - 1] + np.asarray(lake["day"]) - 1
    np.add.at(hours, (days, np.asarray(lake["hour"]) % 24), 1)
    path = place / "pipeline-demo.png"
    draw(hours, recorder.samples, recorder.marks, title, path)
    print(f"drew {path}", flush=True)
    if options.picture is not None:
        shutil.copyfile(path, options.picture)
        print(f"and {options.picture}", flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m barnabas.pipeline.demo", description=__doc__)
    parser.add_argument("--data", default=".cluster", help="directory of the cluster, which is started if need be")
    parser.add_argument("--base-port", type=int, help="base port of a new cluster")
    parser.add_argument("--flights", type=Path, help="flights.csv, flights.csv.zip or the package; default: download")
    parser.add_argument("--records", type=int, help="maximum number of flights")
    parser.add_argument("--max-offsets", type=int, default=MAX_OFFSETS, help="maximum number of offsets per batch")
    parser.add_argument("--picture", type=Path, help="copy the picture to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
