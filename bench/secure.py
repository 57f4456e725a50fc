"""Cost of TLS, of SASL and of the authorizer, and fairness between clients, on Apache Kafka and on ours.

Both clusters run at the same time (`secure_clusters.py`), and each load visits them in turn. Loads are in
`secure_loads.py`.

Usage: secure.py --data DIR --peer DIR [--kafka-out F] [--out F] [--only REGEX] [--repeat N] [--seconds S] …
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from client_loads import Done, Job
from measuring import Meter, Results, percentile
from python_clients import Topics
from secure_clusters import KAFKA, OURS, Side, secure_clusters

from barnabas.security.users import ADMIN

PROTOCOLS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL")
WELL_BEHAVED, NOISY = "alice", "bob"
BATCHED_BYTES, SMALL_BYTES = 1024, 100
FILLED_BYTES = 300_000_000
ACLS = 10_000
SAME_RESOURCE_ACLS = 500
"""Those that match the resources under load, of other principals."""
SETTLE_SECONDS = 2.0
LATE_SECONDS = 60.0
"""A load has ended so much later than it should, at most."""


class Load:
    """One load in a process of its own."""

    def __init__(self, kind: str, job: Job) -> None:
        program = str(Path(__file__).with_name("secure_loads.py"))
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, program], text=True, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
        )
        self._last = threading.Timer(job.seconds + LATE_SECONDS, self._process.kill)
        self._last.start()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._input.write(json.dumps({"kind": kind, "job": asdict(job)}) + "\n")
        self._input.flush()

    def wait_ready(self) -> None:
        """Until a load that reports it is under way. Raises RuntimeError if it failed before."""
        if (line := self._output.readline()) != "ready\n":
            self.result(line)

    def end(self) -> Done:
        """Ask it to end now."""
        self._input.close()
        return self.result()

    def result(self, beginning: str = "") -> Done:
        """Wait for its end. Raises RuntimeError if it failed, or had to be killed. `beginning` is what was read of its
        output before."""
        lines = (beginning + self._output.read()).splitlines()
        status = self._process.wait()
        self._last.cancel()
        self._input.close()
        if status or not lines:
            raise RuntimeError(lines[-1] if lines else f"the load ended with {status}")
        return Done(**json.loads(lines[-1]))


class Rows:
    """Measures one row after the other, each on all sides in turn."""

    def __init__(self, sides: Sequence[Side], results: dict[str, Results], options: argparse.Namespace) -> None:
        self._sides = sides
        self._results = results
        self._options = options

    def topics(self, side: Side, user: str) -> Topics:
        return Topics(side.bootstrap("SSL"), side.settings(ADMIN, "SSL"), f"{user}-")

    def is_wanted(self, name: str) -> bool:
        return re.search(self._options.only, name) is not None

    # -- TLS and SASL

    def tls(self) -> None:
        names = [f"tls.{kind}.{protocol}" for kind in KINDS for protocol in PROTOCOLS]
        if not any(map(self.is_wanted, names)):
            return
        for kind in KINDS:
            with self._topic_of_each(filled=kind == "consume") as topic_of:
                for run in range(1, self._options.repeat + 1):
                    for protocol in PROTOCOLS:
                        name = f"tls.{kind}.{protocol}"
                        if self.is_wanted(name):
                            for side in self._sides:
                                self._measure(side, name, kind, protocol, topic_of[side.name], run)

    def warm_up(self, seconds: float) -> None:
        """Loads that do not count: they make a JVM fast."""
        for side in self._sides:
            if side.name == KAFKA:
                with self.topics(side, WELL_BEHAVED).topic() as topic:
                    for kind in ("produce", "sync", "metadata", "connect"):
                        job = self._job(side, WELL_BEHAVED, "SASL_SSL", topic, SMALL_BYTES, seconds / 4)
                        Load(kind, job).result()

    def _measure(self, side: Side, name: str, kind: str, protocol: str, topic: str, run: int) -> None:
        size = BATCHED_BYTES if kind in {"produce", "consume"} else SMALL_BYTES
        job = self._job(side, WELL_BEHAVED, protocol, topic, size, self._options.seconds)
        unit = KINDS[kind]
        try:
            with Meter(side.read_pids()) as meter:
                done = Load(kind, job).result()
            rate = done.records / done.seconds
            value = rate * size / 1e6 if unit == "MB/s" else rate
            cpu_us = 1e6 * meter.fields["server_cpu_s"] / done.records
            more: dict[str, Any] = {"records": done.records, "server_cpu_us": cpu_us, **meter.fields}
            if done.latencies_ms:
                more |= {"p50_ms": percentile(done.latencies_ms, 0.5), "p99_ms": percentile(done.latencies_ms, 0.99)}
            self._results[side.name].add(name, unit, run, value, **more)
        except Exception as error:
            self._failed(side, name, unit, run, error)

    # -- the authorizer

    def authorizer(self) -> None:
        """The same small requests before and after there are many ACLs, which stay."""
        if not self.is_wanted("authorizer."):
            return
        self._small_requests("authorizer.few-acls")
        for side in self._sides:
            self._load_acls(side)
        self._small_requests(f"authorizer.{ACLS}-acls")

    def _small_requests(self, name: str) -> None:
        with self._topic_of_each() as topic_of:
            for run in range(1, self._options.repeat + 1):
                for kind in ("sync", "metadata"):
                    for side in self._sides:
                        self._measure(side, f"{name}.{kind}", kind, "SASL_PLAINTEXT", topic_of[side.name], run)

    def _load_acls(self, side: Side) -> None:
        """One CreateAcls for all."""
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            AdminClient,
            ResourcePatternType,
            ResourceType,
        )

        def binding(pattern: Any, name: str, user: str, operation: Any) -> AclBinding:
            allow = AclPermissionType.ALLOW
            return AclBinding(ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, allow)

        literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
        operations = (AclOperation.READ, AclOperation.WRITE)
        users = (f"u{number}" for number in range(SAME_RESOURCE_ACLS))
        many = [binding(prefixed, f"{WELL_BEHAVED}-", user, operations[0]) for user in users]
        for number in range(ACLS - len(many)):
            user = WELL_BEHAVED if number % 2 else f"u{number % 100}"
            pattern, resource = (literal, f"topic-{number}") if number % 4 < 2 else (prefixed, f"team-{number}-")
            many.append(binding(pattern, resource, user, operations[number % 2]))
        admin = AdminClient(self._admin_settings(side))
        name = f"authorizer.create-{ACLS}-acls"
        with Meter(side.read_pids()) as meter:
            began = time.perf_counter()
            for future in admin.create_acls(many, request_timeout=60).values():
                future.result()
            seconds = time.perf_counter() - began
        steps = side.metrics('barnabas_request_longest_step_ms{request="CreateAcls"')
        more = {"longest_step_ms": max(steps)} if steps else {}
        self._results[side.name].add(name, "s", 1, seconds, **more, **meter.fields)

    def _admin_settings(self, side: Side) -> dict[str, Any]:
        return {"bootstrap.servers": side.bootstrap("SSL"), "log_level": 0, **side.settings(ADMIN, "SSL")}

    # -- fairness

    def fairness(self) -> None:
        wanted = [kind for kind in NOISES if self.is_wanted(f"fairness.beside-{kind}")]
        if not wanted:
            return
        with self._topic_of_each() as topic_of:
            for run in range(1, self._options.repeat + 1):
                for kind in wanted:
                    for side in self._sides:
                        try:
                            self._compare(side, kind, topic_of[side.name], run)
                        except Exception as error:
                            self._failed(side, f"fairness.beside-{kind}", "× idle p99", run, error)
                        time.sleep(SETTLE_SECONDS)

    def _compare(self, side: Side, kind: str, topic: str, run: int) -> None:
        """p99 of a quiet producer without and with the noise."""
        seconds = self._options.seconds
        job = self._job(side, WELL_BEHAVED, "SASL_PLAINTEXT", topic, SMALL_BYTES, seconds)
        idle = Load("quiet", job).result()
        with self.topics(side, NOISY).topic() as noisy_topic:
            self.topics(side, NOISY).fill(noisy_topic, SMALL_BYTES, SMALL_BYTES * 10_000)
            noisy = self._job(side, NOISY, NOISES[kind], noisy_topic, SMALL_BYTES, seconds + LATE_SECONDS)
            noise = Load(kind, noisy)
            noise.wait_ready()
            with Meter(side.read_pids()) as meter:
                loaded = Load("quiet", job).result()
            made = noise.end()
        before, during = (percentile(each.latencies_ms, 0.99) for each in (idle, loaded))
        more = {"idle_p99_ms": before, "p99_ms": during, "p50_ms": percentile(loaded.latencies_ms, 0.5)}
        more["noise_per_s"] = made.records / made.seconds
        name, ratio = f"fairness.beside-{kind}", during / before
        self._results[side.name].add(name, "× idle p99", run, ratio, **more, **meter.fields)

    # -- shared

    def _job(self, side: Side, user: str, protocol: str, topic: str, size: int, seconds: float) -> Job:
        return Job(side.bootstrap(protocol), topic, size, seconds, settings=side.settings(user, protocol))

    @contextmanager
    def _topic_of_each(self, *, filled: bool = False) -> Iterator[dict[str, str]]:
        with ExitStack() as made:
            topics = {side.name: self.topics(side, WELL_BEHAVED) for side in self._sides}
            names = {name: made.enter_context(each.topic()) for name, each in topics.items()}
            for name, each in topics.items():
                if filled:
                    each.fill(names[name], BATCHED_BYTES, FILLED_BYTES)
            yield names

    def _failed(self, side: Side, name: str, unit: str, run: int, error: Exception) -> None:
        self._results[side.name].add(name, unit, run, None, error=f"{type(error).__name__}: {error}"[:300])


KINDS = {"produce": "MB/s", "consume": "MB/s", "sync": "req/s", "metadata": "req/s", "connect": "conn/s"}
"""Loads and their units."""
NOISES = {"connections": "SASL_PLAINTEXT", "expensive": "SASL_PLAINTEXT", "handshakes": "SSL"}
"""Loads of the client that is not well-behaved, and their protocols."""
HEAD_LINES = 2
"""Lines of a table before its first row."""
NAMES = ("tls.", "authorizer.", "fairness.")
"""How the names of rows begin."""
ALSO = ("server_cpu_us", "p50_ms", "p99_ms", "idle_p99_ms", "noise_per_s", "longest_step_ms")
"""Further fields of the table."""


# -- the table


def table(paths: Sequence[str]) -> Iterator[str]:
    """Lines of Markdown, one for each row."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            result = json.loads(line)
            if result["name"].startswith(NAMES):
                found.setdefault(result["name"], {}).setdefault(result["target"], []).append(result)
    yield "| row | unit |" + "".join(f" {name} median (min–max, n) | also |" for name in (KAFKA, OURS)) + " ratio |"
    yield "|---|---|---:|---|---:|---|---:|"
    for name, of_target in found.items():
        unit = next(iter(of_target.values()))[0]["unit"]
        cells = "".join(f" {_cell(of_target.get(target, []))} |" for target in (KAFKA, OURS))
        middles = [_middle(of_target.get(target, []), "value") for target in (OURS, KAFKA)]
        ratio = f"{middles[0] / middles[1]:.3g}×" if middles[0] and middles[1] else ""
        yield f"| {name} | {unit} |{cells} {ratio} |"


def _cell(runs: list[dict[str, Any]]) -> str:
    """Two cells: the value, and the other numbers."""
    values = [run["value"] for run in runs if run["value"] is not None]
    if not values:
        return f"{'failed' if runs else '–'} |"
    failed = f", {len(runs) - len(values)} failed" if len(values) < len(runs) else ""
    spread = f"{_short(median(values))} ({_short(min(values))}–{_short(max(values))}, {len(values)}{failed})"
    also = [f"{key} {_short(middle)}" for key in ALSO if (middle := _middle(runs, key)) is not None]
    return f"{spread} | {'; '.join(also)}"


def _middle(runs: list[dict[str, Any]], key: str) -> float | None:
    values = [run[key] for run in runs if run.get(key) is not None]
    return float(median(values)) if values else None


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="directory of both clusters")
    parser.add_argument("--peer", required=True, type=Path, help="folder with kafka_peer.sh")
    parser.add_argument("--base-port", type=int, default=30_092)
    parser.add_argument("--sides", default=f"{KAFKA},{OURS}")
    parser.add_argument("--kafka-out", help="file to which Kafka's results are added")
    parser.add_argument("--out", help="file to which ours are added")
    parser.add_argument("--only", default=".", help="regular expression on names of rows")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6, help="of each load")
    parser.add_argument("--warmup", type=float, default=60, help="seconds of load on Kafka before")
    options = parser.parse_args()
    results = {KAFKA: Results(options.kafka_out, KAFKA), OURS: Results(options.out, OURS)}
    data = options.data.absolute()
    with secure_clusters(data, options.peer.absolute(), options.base_port, options.sides.split(",")) as sides:
        rows = Rows(sides, results, options)
        if options.warmup:
            rows.warm_up(options.warmup)
        parts: tuple[Callable[[], None], ...] = (rows.tls, rows.fairness, rows.authorizer)
        for part in parts:
            part()


if __name__ == "__main__":
    main()
