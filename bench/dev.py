"""`barnabas dev` beside what else stands in for a Kafka in tests: start, memory, reset, clients; and our proxy beside
Toxiproxy. Writes a table of Markdown.

Measured are `barnabas dev`, `barnabas.embedded()`, kfake (franz-go), Apache Kafka 4.3.1 in a JVM (what the images of
testcontainers run), tansu, mockafka-py, `barnabas proxy`, Toxiproxy. Newest versions come from their registries into
.cache/dev-bench; what cannot be had, or does not run, is left out with one line. Servers run one after the other, on
loopback.

- ready: from exec to the first answer to Metadata; `cpu`: what the process and its children used by then
- memory: PSS when it is ready, and after 20,000 records of 100 bytes
- reset: a topic with records is deleted and made again, or what the tool has for it, until an empty topic is there
- clients: each writes, reads in a group, and writes in a transaction

Usage: dev.py [--out FILE] [--runs N] [--only NAME,…] [--tansu] (builds tansu by cargo, which takes many minutes)
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from measuring import cpu_s, memory_mib, with_descendants

from barnabas import NewTopic, sync
from barnabas.cluster.probe import NoAnswer, ask
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "dev-bench"
LIBS = Path(os.environ.get("KAFKA_LIBS", ROOT / ".cache" / "kafka-libs"))
BARNABAS = (sys.executable, "-P", "-m", "barnabas.cli.main")
RECORDS, VALUE = 20_000, b"x" * 100
READY_SECONDS, BUILD_SECONDS = 60.0, 1_800.0
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "barnabas")
ROUND_TRIPS = 300


class CannotBeHad(Exception):
    """One line: why something is left out."""


@dataclass
class Row:
    """The figures of one tool; None: not measured, or there is no such thing."""

    name: str
    version: str
    ready_s: float | None = None
    cpu_s: float | None = None
    memory_mib: float | None = None
    loaded_mib: float | None = None
    reset_ms: float | None = None
    clients: list[str] = field(default_factory=list)
    round_trip_ms: float | None = None

    def cells(self) -> list[str]:
        return [
            f"{self.name} {self.version}".strip(),
            _number(self.ready_s, 2),
            _number(self.cpu_s, 2),
            _number(self.memory_mib, 0),
            _number(self.loaded_mib, 0),
            _number(self.reset_ms, 1),
            "; ".join(self.clients),
        ]


HEADS = ("", "ready s", "cpu s", "memory MiB", "after records MiB", "reset ms", "clients")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


# ---- programs


def run(*words: str, cwd: Path | None = None, seconds: float = BUILD_SECONDS, **environment: str) -> str:
    """Standard output. Raises `CannotBeHad` with the last line of the program."""
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBeHad(f"{words[0]}: {error}") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise CannotBeHad(f"{Path(words[0]).name} {words[1]}: {last[:200]}")
    return done.stdout


def _needs(program: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/local/go/bin")
    if found is None:
        raise CannotBeHad(f"there is no {program} on this machine")
    return found


def kfake() -> tuple[list[str], str]:
    go, source = _needs("go"), CACHE / "kfake"
    source.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "bench" / "kfake" / "main.go", source)
    if not (source / "go.mod").exists():
        run(go, "mod", "init", "bench/kfake", cwd=source)
    # kfake names an older client than the one that it needs.
    modules = [f"github.com/twmb/franz-go{each}@latest" for each in ("/pkg/kfake", "", "/pkg/kmsg")]
    run(go, "get", *modules, cwd=source)
    run(go, "build", "-o", "kfake", ".", cwd=source)
    released = run(go, "list", "-m", "-f", "{{.Version}}", "github.com/twmb/franz-go/pkg/kfake", cwd=source).strip()
    return [str(source / "kfake"), "{port}"], released


def toxiproxy() -> tuple[str, str]:
    go = _needs("go")
    run(go, "install", "github.com/Shopify/toxiproxy/v2/cmd/server@latest", GOBIN=str(CACHE / "bin"))
    released = run(go, "version", "-m", str(CACHE / "bin" / "server"))
    return str(CACHE / "bin" / "server"), next(
        (words[2] for words in map(str.split, released.splitlines()) if words[:1] == ["mod"]), ""
    )


def tansu(*, build: bool) -> tuple[list[str], str]:
    program = CACHE / "bin" / "tansu"
    if not program.exists():
        if not build:
            raise CannotBeHad("it is not built; --tansu does that")
        run(_needs("cargo"), "install", "--locked", "--root", str(CACHE), "--features", "dynostore", "tansu")
    words = ["broker", "--listener-url", "tcp://127.0.0.1:{port}", "--storage-engine", "memory://tansu/"]
    advertised = ["--advertised-listener-url", "tcp://127.0.0.1:{port}"]
    return [str(program), *words, *advertised], run(str(program), "--version", seconds=10).split()[-1]


def apache_kafka(directory: Path, port: int) -> list[str]:
    java = _needs("java")
    if not list(LIBS.glob("kafka_2.13-*.jar")):
        raise CannotBeHad(f"there are no jars in {LIBS}; tests/compat/install.sh fetches them")
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "log.dirs": str(directory / "logs"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    config = directory / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java_of_kafka = [java, "-Xmx512m", "-cp", f"{LIBS}/*"]
    run(*java_of_kafka, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(config))
    return [*java_of_kafka, "kafka.Kafka", str(config)]


def docker() -> None:
    """Raises `CannotBeHad` if there is no daemon."""
    run(_needs("docker"), "version", seconds=10)


# ---- measurements


def free_port() -> int:
    """The first of two neighbours that nobody listens on."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port: int = one.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except (OSError, OverflowError):
                continue
            return port


@contextmanager
def running(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def wait_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if ask(port, MetadataRequest(topics=[]), MetadataResponse).brokers:
                return
        except NoAnswer:
            pass
        if process.poll() is not None:
            assert process.stderr is not None
            last = process.stderr.read().decode(errors="replace").strip().splitlines() or ["without a word"]
            raise CannotBeHad(f"it ended with {process.returncode}: {last[-1][:200]}")
        if time.monotonic() > deadline:
            raise CannotBeHad(f"no answer to Metadata within {READY_SECONDS:g} s")
        time.sleep(0.002)


def measure(row: Row, command: Callable[[Path, int], Sequence[str]], runs: int) -> Row:
    """Start the server several times; load and try the last one."""
    ready, cpu = [], []
    for number in range(runs):
        port = free_port()
        with tempfile.TemporaryDirectory() as directory:
            words = command(Path(directory), port)
            began = time.perf_counter()
            with running(words) as process:
                wait_ready(process, port)
                ready.append(time.perf_counter() - began)
                pids = with_descendants([process.pid])
                cpu.append(cpu_s(pids))
                if number == runs - 1:
                    row.memory_mib = memory_mib(pids)[0]
                    servers = f"127.0.0.1:{port}"
                    _load(row, servers, [process.pid])
                    row.clients = clients_of(servers)
    row.ready_s, row.cpu_s = statistics.median(ready), statistics.median(cpu)
    return row


def _load(row: Row, servers: str, pids: Sequence[int]) -> None:
    with sync.Admin(bootstrap_servers=servers) as admin, sync.Producer(bootstrap_servers=servers) as producer:
        times = []
        for _ in range(5):
            admin.create_topics([NewTopic("load")])
            producer.send_all("load", [VALUE] * (RECORDS // 5))
            began = time.perf_counter()
            admin.delete_topics("load")
            admin.create_topics([NewTopic("load")])
            times.append((time.perf_counter() - began) * 1000)
            admin.delete_topics("load")
        row.reset_ms = statistics.median(times)
    row.loaded_mib = memory_mib(pids)[0]


def clients_of(servers: str) -> list[str]:
    """A word for each client."""
    found = []
    for client in CLIENTS:
        program = Path(__file__).parent / "dev_clients.py"
        done = subprocess.run(
            [sys.executable, str(program), client, servers, client],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode == 0:
            found.append(client)
        else:
            worked = ", ".join(done.stdout.split()) or "nothing"
            found.append(f"{client}: {worked} works")
            print(f"  {client} on {servers}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return found


def embedded(runs: int) -> Row:
    """In a process of its own: what the import and the broker add."""
    program = (
        "import time, resource, sys; began = time.perf_counter(); import barnabas\n"
        "with barnabas.embedded() as servers:\n"
        "    ready = time.perf_counter() - began\n"
        "    cpu = time.process_time()\n"
        "    from barnabas import sync\n"
        "    times = []\n"
        "    with sync.Producer(bootstrap_servers=servers) as producer:\n"
        "        for _ in range(5):\n"
        f"            servers.create_topic('load'); producer.send_all('load', [b'x' * 100] * {RECORDS // 5})\n"
        "            began = time.perf_counter(); servers.reset(); times.append(time.perf_counter() - began)\n"
        "    print(ready, cpu, sorted(times)[2] * 1000)\n"
        "    sys.stdout.flush(); sys.stdin.read()\n"
    )
    found, memory = [], 0.0
    for _ in range(runs):
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            found.append([float(word) for word in process.stdout.readline().split()])
            memory = memory_mib([process.pid])[0]
            process.communicate()
    ready, cpu, reset = (statistics.median(column) for column in zip(*found, strict=True))
    return Row("barnabas.embedded()", version("barnabas"), ready, cpu, None, memory, reset, ["as barnabas dev"])


def mockafka(runs: int) -> Row:
    """Has no port: classes in place of confluent-kafka's."""
    place = CACHE / "mockafka"
    run(sys.executable, "-m", "venv", str(place))
    python = str(place / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--upgrade", "mockafka-py")
    program = (
        "import time; began = time.perf_counter()\n"
        "from mockafka import FakeAdminClientImpl, FakeProducer\n"
        "from mockafka.admin_client import NewTopic\n"
        "from mockafka.kafka_store import KafkaStore\n"
        "FakeAdminClientImpl().create_topics([NewTopic(topic='t', num_partitions=1)])\n"
        "producer = FakeProducer(); producer.produce(topic='t', value='x', partition=0)\n"
        "ready, cpu = time.perf_counter() - began, time.process_time()\n"
        "began = time.perf_counter(); KafkaStore(clear=True); reset = time.perf_counter() - began\n"
        "rss = [line.split()[1] for line in open('/proc/self/smaps_rollup') if line.startswith('Pss:')][0]\n"
        "print(ready, cpu, reset * 1000, int(rss) / 1024)\n"
    )
    found = [[float(word) for word in run(python, "-c", program).split()] for _ in range(runs)]
    ready, cpu, reset, memory = (statistics.median(column) for column in zip(*found, strict=True))
    released = run(python, "-c", "from importlib.metadata import version; print(version('mockafka-py'))").strip()
    only = ["confluent-kafka's and aiokafka's classes in Python, replaced"]
    return Row("mockafka-py", released, ready, cpu, memory, None, reset, only)


# ---- proxies


def round_trip_ms(servers: str) -> float:
    """Median of one record after the other with acks=1."""
    times = []
    with sync.Producer(bootstrap_servers=servers, acks=1, linger_ms=0, enable_idempotence=False) as producer:
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            producer.send("trips", VALUE)
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def measure_proxy(row: Row, words: Sequence[str], port: int, runs: int, prepare: Callable[[], None]) -> Row:
    ready, cpu = [], []
    for number in range(runs):
        began = time.perf_counter()
        with running(words) as process:
            prepare()
            wait_ready(process, port)
            ready.append(time.perf_counter() - began)
            pids = with_descendants([process.pid])
            cpu.append(cpu_s(pids))
            if number == runs - 1:
                row.memory_mib = memory_mib(pids)[0]
                row.round_trip_ms = round_trip_ms(f"127.0.0.1:{port}")
                row.loaded_mib = memory_mib(pids)[0]
    row.ready_s, row.cpu_s = statistics.median(ready), statistics.median(cpu)
    return row


def proxies(runs: int) -> list[Row]:
    from barnabas import embedded as embedded_broker

    rows = []
    port = free_port()
    # Toxiproxy leaves addresses as they are, so the broker has to advertise that of its proxy.
    with embedded_broker(topics=["trips"]) as direct:
        rows.append(Row("no proxy", "", round_trip_ms=round_trip_ms(direct)))
        words = [*BARNABAS, "proxy", "--to", str(direct), "--listen", str(port)]
        rows.append(measure_proxy(Row("barnabas proxy", version("barnabas")), words, port, runs, lambda: None))
    try:
        program, released = toxiproxy()
    except CannotBeHad as error:
        print(f"Toxiproxy is left out: {error}", file=sys.stderr)
        return rows
    port, api = free_port(), free_port()
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with embedded_broker(topics=["trips"], settings=settings) as advertised:
        place = str(advertised)

        def create() -> None:
            import json
            import urllib.error
            import urllib.request

            body = json.dumps({"name": "kafka", "listen": f"127.0.0.1:{port}", "upstream": place}).encode()
            headers = {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"http://127.0.0.1:{api}/proxies", body, headers)
            deadline = time.monotonic() + 10
            while True:
                try:
                    urllib.request.urlopen(asked, timeout=5).close()
                    return
                except urllib.error.URLError:
                    if time.monotonic() > deadline:
                        raise CannotBeHad("Toxiproxy does not answer on its API") from None
                    time.sleep(0.005)

        words = [program, "-host", "127.0.0.1", "-port", str(api)]
        rows.append(measure_proxy(Row("Toxiproxy", released), words, port, runs, create))
    return rows


# ---- the table


def tools(runs: int, *, build_tansu: bool) -> dict[str, Callable[[], Row]]:
    """Each returns a row, or raises `CannotBeHad`."""

    def ours() -> Row:
        words = lambda _directory, port: [*BARNABAS, "dev", "--port", str(port)]  # noqa: E731
        return measure(Row("barnabas dev", version("barnabas")), words, runs)

    def go() -> Row:
        command, released = kfake()
        return measure(Row("kfake", released), lambda _directory, port: _on(command, port), runs)

    def rust() -> Row:
        command, released = tansu(build=build_tansu)
        return measure(Row("tansu", released), lambda _directory, port: _on(command, port), runs)

    def java() -> Row:
        return measure(Row("Apache Kafka (JVM)", "4.3.1"), apache_kafka, min(runs, 2))

    def image() -> Row:
        docker()
        raise CannotBeHad("its row needs testcontainers and the image apache/kafka-native, which this does not start")

    return {
        "dev": ours,
        "embedded": lambda: embedded(runs),
        "kfake": go,
        "mockafka": lambda: mockafka(runs),
        "tansu": rust,
        "kafka": java,
        "testcontainers": image,
    }


def _on(command: Sequence[str], port: int) -> list[str]:
    return [word.format(port=port) for word in command]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 2), "---"], *rows]
    return "\n".join("| " + " | ".join(each) + " |" for each in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--tansu", action="store_true")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    CACHE.mkdir(parents=True, exist_ok=True)
    rows, left_out = [], []
    for name, measured in tools(arguments.runs, build_tansu=arguments.tansu).items():
        if only and name not in only:
            continue
        try:
            rows.append(measured())
            print(" | ".join(rows[-1].cells()), flush=True)
        except (CannotBeHad, PackageNotFoundError) as error:
            left_out.append(f"{name}: {error}")
            print(f"{name} is left out: {error}", file=sys.stderr)
    proxied = proxies(arguments.runs) if not only or "proxies" in only else []
    cells = [
        [
            f"{it.name} {it.version}".strip(),
            *(_number(each, 2) for each in (it.ready_s, it.cpu_s)),
            *(_number(each, 0) for each in (it.memory_mib, it.loaded_mib)),
            _number(it.round_trip_ms, 2),
        ]
        for it in proxied
    ]
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    measured = f"{time.strftime('%Y-%m-%d')}, {machine}; medians of {arguments.runs} starts."
    parts = [measured, _table(HEADS, [it.cells() for it in rows])]
    if cells:
        parts.append(_table(("", "ready s", "cpu s", "memory MiB", "after load MiB", "round trip ms"), cells))
    if left_out:
        parts.append("Left out: " + "; ".join(left_out) + ".")
    text = "\n\n".join(parts) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
