"""Puts the measurements of one run into docs/benchmarks.md: how it was measured, then the table with ratios.

Usage: report.py TABLE_PROGRAM KAFKA.jsonl OURS.jsonl; the first makes the Markdown table out of the others.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import faults
import python_clients
import secure
from secure_loads import CONNECTIONS

from barnabas.protocol.records.record import COMPILED

HEAD = """# Beside Apache Kafka

Made by `make bench`: the same loads by the same foreign clients (the Java client and tools 4.3.1, librdkafka), on
Apache Kafka 4.3.1 and on Barnabas, three controllers and three brokers each, one cluster after the other in one run
on one machine. Clients and all six servers share the cores, so a client's cost is in every figure; `server cpu` is
the CPU of all six processes for one record or request, and travels better between machines than a rate does.
acks=all means three replicas, `min.insync.replicas=2`. Nothing syncs data logs; metadata logs are synced. The ratio is
ours by Kafka's: above 1 is better for rates (something per second), below 1 for times, memory and CPU.

Both sides have `group.initial.rebalance.delay.ms=0`; members of groups send a heartbeat each 500 ms and are missed
after 6 s. `group.join.PROTOCOL.N`: from subscribing until N members own 60 partitions; `group.member-killed`: from
SIGKILL of one of ten until the others own its partitions; `group.coordinator-killed`: from SIGKILL of the coordinator's
broker until both members of a group have committed again, which includes how long librdkafka pauses before it looks
again; `group.join.streams.N`: until N members that speak only heartbeats own 100 tasks, each task once and all in one
epoch; `group.member-left.streams.N`: the same, from the heartbeat by which one leaves; streams groups have an initial
rebalance delay and an assignment interval of 0; `share.consume.N`: N members of a share group (Java's share consumer)
accept with the next poll; `share.acknowledge.N`: from the acceptance of one record to its confirmation; `tiers.copy`:
500 MB of closed segments go to a directory that is the remote store (LocalTieredStorage); `tiers.read`: one consumer
reads them from there; `tiers.tail`: p99 from `produce` to the consumer of the newest records, 200 a second, while two
consumers read remote ones, and `.quiet` without these; `memory_pss`: of all six processes; `trace`: what the decisions
that nodes noted meanwhile cost, as a share of the servers' CPU.

{machine}

"""

CLIENTS = """
## Clients of Python programs

Three partitions with three replicas; each client in a process of its own, sending with acks=all and idempotence, in
batches of 16384 bytes (librdkafka: of its own 1000000) with 5 ms of linger (none where each record is waited for), or
reading what it is assigned, 500 records at a time. Clients and servers share the cores, so rates are those of the
whole; CPU is the client's alone, of all its threads, and in brackets what it is of ours. kafka-python is all Python,
aiokafka has its record codec in C, confluent-kafka is librdkafka. {compiled} MiB is the most the process ever had.

{table}
"""

SECURE = """
## TLS, SASL, the authorizer, and fairness

Both clusters ran at the same time, and each load visited them in turn; an idle Kafka takes a quarter of a core from
both. The clusters are those of `barnabas cluster up --secure`, Kafka with the same settings: TLS 1.3 with
`TLS_AES_256_GCM_SHA384` and RSA keys of 2,048 bits, SCRAM-SHA-512, nodes talk TLS to each other, and the user has no
rights but those by ACLs. `produce` and `consume`: records of 1 KiB by librdkafka over three partitions; `sync`: one
record of 100 bytes at a time with acks=all; `metadata`: one request at a time; `connect`: new connections that
authenticate, ask for ApiVersions and are closed, four threads. `server_cpu_us` is the CPU of all six processes for one
record, request or connection.

`authorizer`: the same small requests over SASL_PLAINTEXT with six ACLs, and with {acls:,} more: half of them literal,
half prefixed, {same} of them on the resource under load for other users; `longest_step_ms` is the longest step
of CreateAcls on a node of ours, 0 if none was above 20 ms.

`fairness`: p99 of a producer that sends 100 records a second with acks=all, as a multiple of its p99 just before, while
another user of the same address keeps one broker busy: `connections`: {connections:,} connections that each ask for
Metadata again and again; `expensive`: one that sends only ListOffsets of 2,000 entries, OffsetFetch of 20,000 groups,
FindCoordinator of 65,000 keys and Metadata of 65,000 unknown topics; `handshakes`: TLS handshakes, four at a time.
Clients share the cores with the servers.

{table}
"""

PIPELINE = """
## Records to Spark and back

Four partitions with three replicas (or what the row says), uncompressed; one Spark session on all cores, which it
shares with the servers, and in which jobs that are compared take turns, for the JVM becomes faster all the time.
`source` is `format("barnabas")`, `segments` reads the brokers' files, `connector` is spark-sql-kafka-0-10 4.2.0 on the
JVM; `sum` adds up the lengths of values, `parquet` writes all columns. `sink` is one transaction, exactly once; the
connector's is at least once. CPU of Spark is of the driver, the JVM and the Python workers.

{table}
"""

FAULTS = """
## Fault injection

A seed is a whole cluster with its clients under faults, all in one thread; faults are those that the nemesis caused. A
history has half of its operations send and the other half poll; all checkers go through it, and find the ten lies that
were planted. Time and memory over Spark are of all its processes, with its start.

{table}
"""


def main() -> None:
    program, *files = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        general = [only_general(Path(file), Path(directory)) for file in files]
        made = subprocess.run([sys.executable, program, *general], check=True, capture_output=True, text=True).stdout
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    machine = (
        f"{date.today()}, {os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}; "
        f"load average at the end {load}. Kafka's JVMs had {os.environ.get('WARMUP', '60')} s of load before the loads"
        " that count; they go on to become faster until about 100 s."
    )
    sys.stdout.write(HEAD.format(machine=machine) + made)
    if any('"name": "client.' in Path(file).read_text() for file in files):
        compiled = "Ours walks and lays out records in " + ("compiled Python." if COMPILED else "Python as it stands.")
        sys.stdout.write(CLIENTS.format(compiled=compiled, table="\n".join(python_clients.table(files))))
    rows = list(secure.table(files))
    if len(rows) > secure.HEAD_LINES:
        numbers = {"acls": secure.ACLS, "same": secure.SAME_RESOURCE_ACLS, "connections": CONNECTIONS}
        sys.stdout.write(SECURE.format(table="\n".join(rows), **numbers))
    if any('"name": "pipeline.' in Path(file).read_text() for file in files):
        # Here, because it needs Spark.
        import pipeline

        sys.stdout.write(PIPELINE.format(table="\n".join(pipeline.table(files))))
    if any('"name": "faults.' in Path(file).read_text() for file in files):
        sys.stdout.write(FAULTS.format(table="\n".join(faults.table(files))))
    sys.stdout.write((Path(__file__).parent / "behind.md").read_text())


def only_general(file: Path, directory: Path) -> str:
    """A copy that lacks what has a table of its own."""
    lines = file.read_text().splitlines(keepends=True)
    copy = directory / file.name
    copy.write_text("".join(line for line in lines if not is_apart(line)))
    return str(copy)


def is_apart(line: str) -> bool:
    return json.loads(line)["name"].startswith(("client.", "pipeline.", "faults.", *secure.NAMES))


if __name__ == "__main__":
    main()
