"""Modules that a node for development loads before it serves: each costs its start time and memory."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from barnabas.cluster.local import code_environment
from barnabas.cluster.ports import free_base_port

MOST_OF_OURS = 440
"""Modules of ours; 750 took 0.48 s of CPU and 45 MiB."""
MOST_OF_OTHERS = 260

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
        ("importlib.metadata", "no version of a package is asked for"),
        ("argparse", "plain options need no parser"),
        ("difflib", "no key is misspelt"),
        ("logging.handlers", "the log goes to the terminal"),
        ("http", "there are no pages"),
        ("barnabas.broker.rooms", "no client has asked for one"),
        ("barnabas.broker.groups.machine", "no client is in a group"),
        ("barnabas.broker.groups.share_groups", "no client is in a share group"),
        ("barnabas.broker.groups.streams", "no client is in a streams group"),
        ("barnabas.broker.shares.share_partition", "no client is in a share group"),
        ("barnabas.broker.transactions.machine", "no client has a transaction"),
        ("barnabas.broker.delayed", "no topic delays its records"),
        ("barnabas.broker.telemetry", "clients are not asked for metrics"),
        ("barnabas.broker.metrics", "there are no pages"),
        ("barnabas.broker.node_pages", "there are no pages"),
        ("barnabas.broker.apis.configs", "no administrator asks"),
        ("barnabas.kraft.authorization", "everybody may do everything"),
        ("barnabas.kraft.authorizer.compiled", "everybody may do everything"),
        ("barnabas.kraft.controller.delegation_tokens", "nobody has asked for a token"),
        ("barnabas.kraft.controller.scram", "there are no users"),
        ("barnabas.kraft.controller.features", "no level was changed"),
        ("barnabas.kraft.metrics", "there are no pages"),
        ("barnabas.protocol.messages.group_log", "no client is in a group"),
        ("barnabas.protocol.sasl.scram_credentials", "there are no users"),
        ("barnabas.runtime.metrics", "there are no pages"),
        ("barnabas.runtime.http", "there are no pages"),
        ("barnabas.runtime.stores", "there are no tiers"),
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
    others = len(loaded()) - len(ours)
    assert others <= MOST_OF_OTHERS, f"{others} modules of others are loaded before the node serves"


def test_a_client_is_loaded_for_topics() -> None:
    assert "barnabas.client.admin" in loaded("--topic", "orders")


def test_pages_are_loaded_for_a_port() -> None:
    assert {"barnabas.broker.node_pages", "barnabas.runtime.metrics"} <= loaded("--http-port", str(free_base_port([0])))
