"""The plan of the house, kept: imports go down only, and cores do not reach for the world."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

FLOORS = {
    "protocol": set(),
    "settings": set(),
    "runtime": {"protocol", "settings"},
    "storage": {"runtime", "protocol", "settings"},
    "kraft": {"storage", "runtime", "protocol", "settings"},
    "broker": {"kraft", "storage", "runtime", "protocol", "settings"},
    "barnabas": {"broker", "kraft", "storage", "runtime", "protocol", "settings"},
}
"""Each room, and what it may see. Think hard before you add a word here."""

CLIENT_SEES = {"barnabas", "runtime", "protocol"}

WORLD = {"trio", "os", "time", "random", "socket", "uuid", "subprocess", "secrets"}
"""What reaches outside by itself."""

CORES = [
    "runtime/decisions.py",
    "protocol",
    "settings",
    "storage",
    "kraft/raft",
    "kraft/metadata",
    "kraft/controller",
    "broker/replication/replica.py",
    "broker/replication/follower.py",
    "broker/replication/decision_notes.py",
    "broker/timing_wheel.py",
    "broker/purgatory.py",
    "broker/fetch_sessions.py",
    "broker/metadata_cache.py",
    "barnabas/client/consumer/fetch_session.py",
    "barnabas/client/consumer/fetched.py",
    "barnabas/client/consumer/partition_state.py",
    "barnabas/client/consumer/record.py",
    "barnabas/client/consumer/reset_policy.py",
    "barnabas/client/groups/assignor.py",
    "barnabas/client/groups/assignors.py",
    "barnabas/client/groups/classic_member.py",
    "barnabas/client/groups/consumer_member.py",
    "barnabas/client/groups/membership.py",
    "barnabas/client/groups/range_assignor.py",
    "barnabas/client/groups/sticky_assignor.py",
    "barnabas/client/metadata.py",
    "barnabas/client/offset_lookup.py",
    "barnabas/client/patience.py",
    "barnabas/client/producer/buffer_pool.py",
    "barnabas/client/producer/future.py",
    "barnabas/client/producer/memory_records_builder.py",
    "barnabas/client/producer/metrics.py",
    "barnabas/client/producer/partition_queue.py",
    "barnabas/client/producer/partitioner.py",
    "barnabas/client/producer/producer_batch.py",
    "barnabas/client/producer/record_accumulator.py",
    "barnabas/client/producer/record_metadata.py",
    "barnabas/client/producer/transaction_manager.py",
    "broker/keyed_queues.py",
    "broker/character_sets.py",
    "broker/pattern_parser.py",
    "broker/patterns.py",
    "broker/coordinator/outcome.py",
    "broker/groups",
    "broker/transactions/transaction.py",
    "broker/transactions/machine.py",
    "broker/transactions/told.py",
    "barnabas/why/story.py",
    "barnabas/cluster/proxy/frames.py",
    "barnabas/cluster/proxy/rules.py",
    "barnabas/cluster/proxy/stream.py",
    "barnabas/demo/ledger.py",
    "barnabas/page/feed.py",
    "barnabas/page/node_state.py",
    "barnabas/page/seeing.py",
    "jepsen-style/checkers",
    "jepsen-style/nemeses/budget.py",
    "jepsen-style/nemeses/choosing.py",
    "jepsen-style/nemeses/shapes.py",
    "jepsen-style/operations.py",
]
"""Files and folders that take time, chance, disk and network from their caller."""

DOORS = {"storage/dump.py", "protocol/check.py", "storage/__main__.py"}
"""Programs for the command line: they read files that a person names."""


def sources(place: str) -> list[Path]:
    path = ROOT / place
    found = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
    assert found, f"{place} is not there"
    return found


def imports(path: Path) -> Iterator[str]:
    """Full names that a file imports, also inside functions, but not for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


@pytest.mark.parametrize("room", FLOORS)
def test_imports_go_down_only(room: str) -> None:
    allowed = FLOORS[room] | {room}
    for path in sources(room):
        for name in imports(path):
            top = name.split(".")[0]
            assert top not in FLOORS or top in allowed, f"{path.relative_to(ROOT)} looks up at {name}"


def test_the_client_sees_runtime_and_protocol_alone() -> None:
    for path in sources("barnabas/client"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top not in FLOORS or top in CLIENT_SEES, f"{path.relative_to(ROOT)} imports {name}"
            assert top != "barnabas" or name.startswith("barnabas.client"), f"{path.relative_to(ROOT)}: {name}"


@pytest.mark.parametrize("core", CORES)
def test_cores_do_not_reach_for_the_world(core: str) -> None:
    for path in sources(core):
        if str(path.relative_to(ROOT)) in DOORS:
            continue
        for name in imports(path):
            assert name.split(".")[0] not in WORLD, f"{path.relative_to(ROOT)} is a core and imports {name}"


def test_only_the_real_world_touches_sockets_and_threads() -> None:
    doors = {
        "runtime/network.py",
        "runtime/real.py",
        "runtime/disk.py",
        "runtime/clocks.py",
        "runtime/process.py",
        "runtime/watchdog.py",
        "runtime/simulated/chance.py",
    }
    for room in ("runtime", "kraft", "broker"):
        for path in sources(room):
            if str(path.relative_to(ROOT)) in doors:
                continue
            for name in imports(path):
                assert name.split(".")[0] not in {"socket", "threading", "random", "time", "uuid"}, (
                    f"{path.relative_to(ROOT)} imports {name}; take it from the World"
                )
