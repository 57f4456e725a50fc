"""A process that runs a cluster for tests: `python -P -m barnabas.testing.driver`.

Reads one JSON object from each line: first `{"data": DIRECTORY, "settings": {...}}`, then calls `{"call": NAME,
"arguments": [...]}`; answers each with a line `{"value": ...}` or `{"error": TEXT}`. When its input ends, for whatever
reason, it stops the nodes. So the test process imports no package of ours, and cannot leave a cluster behind.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.probe import NoAnswer
from barnabas.testing.cluster import QUICK_GROUPS, ClusterForTests

STOP_SECONDS = 10.0


def calls_of(cluster: ClusterForTests) -> dict[str, Callable[..., Any]]:
    """Callable methods, by name."""
    return {
        function.__name__: function
        for function in (
            cluster.active_controller,
            cluster.create_topic,
            cluster.fill_disk,
            cluster.heal,
            cluster.kill,
            cluster.leader_of,
            cluster.partition,
            cluster.partitions,
            cluster.pause,
            cluster.repair,
            cluster.resume,
            cluster.set_clock,
            cluster.start,
            cluster.stop,
            cluster.wait_ready,
        )
    }


def main() -> int:
    # Ctrl-C is for the test process; this one ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.loads(sys.stdin.readline())
    try:
        cluster = ClusterForTests.start_new(Path(order["data"]), {**QUICK_GROUPS, **order["settings"]})
    except (ClusterError, NoAnswer) as error:
        _write_line({"error": str(error)})
        return 1
    try:
        _write_line({"value": _description(cluster)})
        calls = calls_of(cluster)
        for line in sys.stdin:
            _write_line(_answer(calls, json.loads(line)))
    finally:
        cluster.heal()
        cluster.down(STOP_SECONDS)
    return 0


def _description(cluster: ClusterForTests) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": [node.name for node in cluster.layout.brokers],
        "controllers": [node.name for node in cluster.layout.controllers],
        "data": str(cluster.layout.data),
    }


def _answer(calls: Mapping[str, Callable[..., Any]], request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = calls[request["call"]](*request["arguments"])
    except (ClusterError, NoAnswer) as error:
        return {"error": str(error)}
    return {"value": value}


def _write_line(answer: Mapping[str, Any]) -> None:
    try:
        print(json.dumps(answer, default=asdict), flush=True)
    except BrokenPipeError:
        # The reader is gone: the input ends, too.
        sys.stdout = sys.stderr


if __name__ == "__main__":
    sys.exit(main())
