"""Modules that a node for development loads before it serves: each costs its start time and memory."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from barnabas.cluster.local import code_environment

MOST_OF_OURS = 750
"""Modules of ours; 1,105 in all took 0.66 s of CPU."""

PROGRAM = """
import sys
from barnabas.runtime import process

def report():
    print("loaded", *sys.modules)
    raise KeyboardInterrupt

process.settle_memory = report
sys.argv = ["barnabas", "dev", "--port", "0", *sys.argv[1:]]
from barnabas.cli.main import main
main()
"""


@cache
def loaded(*options: str) -> frozenset[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *options],
        capture_output=True,
        text=True,
        env=code_environment(),
        timeout=120,
        check=False,
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith("loaded ")] or [done.stderr]
    return frozenset(line.split()[1:])


@pytest.mark.parametrize(
    ("room", "why"),
    [
        ("pydantic", "settings of nodes are parsed by their keys; only those of clients need it"),
        ("typer", "plain options need no parser"),
        ("rich", "one line is printed"),
        ("prometheus_client", "metrics are gathered on request"),
        ("cryptography", "there is no TLS"),
        ("jwt", "there is no OAUTHBEARER"),
        ("structlog", "nothing is logged in JSON"),
        ("re2", "no client has sent a pattern"),
        ("obstore", "there are no tiers"),
        ("quart", "there is no page"),
        ("hypercorn", "there is no registry"),
        ("asyncio", "trio runs the node"),
        ("barnabas.runtime.tls", "listeners are plain"),
        ("barnabas.runtime.sasl.server", "nobody logs in"),
        ("barnabas.runtime.sasl.mechanisms", "nobody logs in"),
        ("barnabas.broker.remote.parts", "there are no tiers"),
        ("barnabas.broker.remote.reader", "there are no tiers"),
        ("barnabas.client", "no client runs in the node"),
        ("barnabas.registry", "there is no registry"),
        ("barnabas.page", "there is no page"),
        ("barnabas.rest", "there is no page"),
        ("barnabas.check", "nothing is checked"),
        ("barnabas.fault_proxy", "there is no proxy"),
        ("barnabas.testing", "it is no test"),
    ],
)
def test_a_node_does_not_load_what_it_does_not_need(room: str, why: str) -> None:
    assert "barnabas.broker.node" in loaded()
    assert sorted(name for name in loaded() if name == room or name.startswith(f"{room}.")) == [], why


def test_a_node_loads_few_modules() -> None:
    ours = [name for name in loaded() if name.startswith("barnabas.")]
    assert len(ours) <= MOST_OF_OURS, f"{len(ours)} modules are loaded before the node serves"


def test_a_client_is_loaded_for_topics() -> None:
    assert "barnabas.client.admin" in loaded("--topic", "orders")
