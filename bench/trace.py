"""Cost of the decision trace: decisions that nodes note while records are produced, times the cost of one, as a share
of the CPU of the six processes.

Nothing is noted for a record, a batch or a request, so producing should note nothing at all, and a transaction two
decisions; that is counted on the nodes' own pages. The cost of one decision, with its line in a log file, is measured
in this process.

Usage: trace.py --bootstrap H:P,… --data DIR --pids CMD [--out F] [--only REGEX] [--repeat N] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import Meter, Results, read_pids

from barnabas import NewTopic, sync
from barnabas.cli.connection import Connection
from barnabas.client.admin.settings import AdminSettings
from barnabas.client.producer.settings import ProducerSettings
from barnabas.cluster.layout import Layout
from barnabas.runtime.decisions import DecisionKind, Decisions

PARTITIONS = 12
NOTES = 20_000
VALUE = b"x" * 1000


def noted(layout: Layout) -> int:
    """Decisions that the nodes have noted since they started."""
    total = 0
    for node in layout.nodes:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/decisions?limit=0", timeout=10) as answer:
            total += json.load(answer)["next"] - 1
    return total


def cost_of_a_note(*, routine: bool) -> float:
    """CPU seconds, with the line in the log that others than routine decisions have."""
    logger = logging.getLogger("decisions")
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        handler = logging.FileHandler(file.name)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        decisions = Decisions("broker-1", lambda: int(time.time() * 1000))
        began = time.process_time()
        for number in range(NOTES):
            decisions.note(
                DecisionKind.TRANSACTION,
                "transaction payments-17",
                "transaction payments-17 is to be committed, its producer's epoch goes 0 -> 1",
                cause="requested by its producer (EndTxn)",
                producer_id=number,
                producer_epoch=1,
                partitions=3,
                open_ms=20,
                routine=routine,
            )
        spent = time.process_time() - began
        logger.removeHandler(handler)
        handler.close()
    return spent / NOTES


def produce(producer: sync.Producer, topic: str, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        for _ in range(1000):
            producer.send_nowait(topic, VALUE)
        producer.flush()
        count += 1000
    return count


def transact(producer: sync.Producer, topic: str, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        with producer.transaction():
            producer.send_nowait(topic, VALUE)
        count += 1
    return count


def measure(results: Results, options: argparse.Namespace, name: str) -> None:
    """One row: the share of the servers' CPU."""
    layout = Layout.open(Path(options.data))
    routine = name == "trace.transactions.1rec"
    topic = f"bench-trace-{uuid.uuid4().hex[:8]}"
    work: Callable[[sync.Producer, str, float], int] = transact if routine else produce
    own: dict[str, Any] = {"transactional_id": topic} if routine else {}
    connection = Connection(options.bootstrap, client_config=options.command_config)
    with sync.Admin(**connection.settings(AdminSettings.model_fields)) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3)])
        for run in range(options.repeat):
            producing = connection.settings(ProducerSettings.model_fields, acks="all", **own)
            with sync.Producer(**producing) as producer:
                work(producer, topic, time.monotonic() + 1)
                before = noted(layout)
                meter = Meter(read_pids(options.pids))
                with meter:
                    count = work(producer, topic, time.monotonic() + options.seconds)
                decisions = noted(layout) - before
            note_s = cost_of_a_note(routine=routine)
            share = 100 * decisions * note_s / meter.fields["server_cpu_s"]
            more = {"records" if not routine else "transactions": count, "decisions": decisions}
            results.add(name, "%", run, share, **more, note_us=1e6 * note_s, **meter.fields)
        admin.delete_topics([topic])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--command-config", type=Path, help="properties file with client settings, e.g. of TLS")
    parser.add_argument("--data", required=True)
    parser.add_argument("--pids", required=True)
    parser.add_argument("--out")
    parser.add_argument("--only", default=".")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    results = Results(options.out, "barnabas")
    for name in ("trace.produce.acks=all.p12.1000B", "trace.transactions.1rec"):
        if re.search(options.only, name):
            measure(results, options, name)


if __name__ == "__main__":
    main()
