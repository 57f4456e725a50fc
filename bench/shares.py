"""Loads on share groups, on any cluster that speaks the Kafka protocol, with Java's share consumer as the client.

`share.consume.N` is the rate of N members that accept what they get with the next poll; `share.acknowledge.N` is the
latency from the acceptance of one record to its confirmation, while N members do that at once.

Usage: shares.py --bootstrap H:P,… --libs DIR [--pids CMD] [--out F] [--only REGEX] [--list] …
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from group_members import Cluster, Load, Measured, fill, measure_all, unique
from measuring import Meter, Results

SOURCE = Path(__file__).resolve().parent / "ShareLoad.java"
SIZES = (1, 10, 100)
PARTITIONS = 12
VALUE_BYTES = 100
RECORDS_PER_SECOND = 800_000
"""Prepared for each second of `consume`: more than members take."""
ACKS_PER_SECOND = 20_000
FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=OFF")
PATIENCE_S = 240.0


class Program:
    """The compiled load."""

    def __init__(self, libs: Path, classes: Path) -> None:
        """Raises CalledProcessError if it does not compile."""
        self._path = f"{classes}{os.pathsep}{libs}{os.sep}*"
        subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", self._path, SOURCE], check=True)

    def run(self, meter: Meter, *words: object) -> list[float]:
        """Records, seconds, confirmations, and the percentiles 50 and 99 of their latency in microseconds. `meter` is
        for the time that counts: not for the start of a JVM and its members.
        """
        command = ["java", *FLAGS, "-cp", self._path, SOURCE.stem, *map(str, words)]
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
                assert process.stdout is not None
                patience = threading.Timer(PATIENCE_S, process.kill)
                patience.start()
                try:
                    process.stdout.readline()
                    with meter:
                        line = process.stdout.readline()
                    process.wait()
                finally:
                    process.kill()
                    patience.cancel()
            if process.returncode or not line:
                errors.seek(0)
                said = [each.strip() for each in errors if each.strip() and not each.startswith("\t")]
                raise RuntimeError(said[-1] if said else "no output")
        return [float(word) for word in line.split()]


def fill_topic(cluster: Cluster, topic: str, count: int) -> None:
    fill(cluster.bootstrap, topic, count, b"x" * VALUE_BYTES, PARTITIONS)


def consume(cluster: Cluster, program: Program, members: int, seconds: float) -> Measured:
    """Records in a second."""
    with cluster.topic(PARTITIONS) as topic:
        fill_topic(cluster, topic, int(RECORDS_PER_SECOND * (seconds + 1)))
        meter = cluster.meter()
        records, took, *_ = program.run(meter, cluster.bootstrap, topic, unique("bs"), members, seconds, "consume")
        return records / took, {"members": members, "records": records, **meter.fields}


def acknowledge(cluster: Cluster, program: Program, members: int, seconds: float) -> Measured:
    """Median latency in milliseconds."""
    with cluster.topic(PARTITIONS) as topic:
        fill_topic(cluster, topic, int(ACKS_PER_SECOND * (seconds + 4)))
        meter = cluster.meter()
        _, took, acks, median_us, p99_us = program.run(
            meter, cluster.bootstrap, topic, unique("bs"), members, seconds, "acknowledge"
        )
        more = {"p99_ms": p99_us / 1000, "acks_per_s": round(acks / took, 1)}
        return median_us / 1000, {"members": members, "ops": acks, **more, **meter.fields}


def loads(cluster: Cluster, program: Program, seconds: float) -> Iterable[Load]:
    for size in SIZES:
        yield Load(f"share.consume.{size}", "rec/s", partial(consume, cluster, program, size, seconds))
    for size in SIZES:
        yield Load(f"share.acknowledge.{size}", "p50 ms", partial(acknowledge, cluster, program, size, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--libs", required=True, type=Path, help="directory of Kafka's jars")
    parser.add_argument("--label", default="cluster")
    parser.add_argument("--pids", help="prints lines 'role pid': for the servers' CPU")
    parser.add_argument("--out", help="file to which results are added")
    parser.add_argument("--only", default="", help="regular expression on the names")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--warmup", type=float, default=5, help="seconds")
    parser.add_argument("--list", action="store_true", help="only name the measurements")
    options = parser.parse_args()
    options.kill = options.restart = None
    cluster = Cluster(options)
    with tempfile.TemporaryDirectory(prefix="share-load-") as classes:
        program = Program(options.libs, Path(classes))
        chosen = [load for load in loads(cluster, program, options.seconds) if re.search(options.only, load.name)]
        if options.list:
            print("\n".join(load.name for load in chosen))
            return
        if chosen and options.warmup:
            warm_up(cluster, program, options.warmup)
        measure_all(chosen, Results(options.out, options.label), options.repeat)


def warm_up(cluster: Cluster, program: Program, seconds: float) -> None:
    """Work that does not count: it makes the internal topics, and a JVM fast."""
    try:
        consume(cluster, program, 10, seconds / 2)
        acknowledge(cluster, program, 10, seconds / 2)
    except Exception as error:
        print(f"# warm-up: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
