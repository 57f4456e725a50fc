"""The table of states by faults: its points are those of the code, and what a fault meets is counted once."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cluster.fault_points import FAULT_POINTS, RECLEAN_POINTS, REMOTE_POINTS
from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.disk import renamed_point
from simulation.coverage import POINTS, STATES, Coverage, merged

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.feature("FI-12")


def node(*, running: bool, is_up: bool) -> Any:
    named = SimpleNamespace(name="broker-1", id=1)
    return SimpleNamespace(node=named, running=running, is_up=is_up, broker=None)


def test_the_fault_points_of_the_table_are_those_of_the_code() -> None:
    found = set()
    for room in ("broker", "kraft", "storage"):
        for path in (ROOT / room).rglob("*.py"):
            found |= set(re.findall(r'fault_point\("([^"]+)"\)', path.read_text(encoding="utf-8")))
    of_nodes = {point for points in FAULT_POINTS.values() for point in points}
    assert {*of_nodes, *REMOTE_POINTS, *RECLEAN_POINTS} == found


def test_a_rename_is_a_fault_point_by_the_kind_of_file() -> None:
    assert renamed_point("/broker-1/data/replication-offset-checkpoint") in POINTS
    assert renamed_point("/n/data/__cluster_metadata-0/00000000000000000123-0000000007.checkpoint") in POINTS
    assert renamed_point("/n/data/t-0.6f1b2c-delete") == "disk.renamed.*-delete"
    assert renamed_point("/n/data/t-0/00000000000000000000.log.swap") == "disk.renamed.*.swap"


def test_a_fault_meets_the_states_that_a_node_is_in_and_the_points_it_has_just_passed() -> None:
    universe = Universe(1)
    coverage = Coverage(universe, ("kill", "kill-at"))
    universe.last_reached["broker-1", "raft.fetched.written"] = 0.0
    coverage.strike("kill", node(running=True, is_up=False))
    coverage.strike("kill", node(running=True, is_up=False))
    universe.time.now = 1.0
    coverage.strike("kill", node(running=False, is_up=False))
    coverage.strike("kill-at", node(running=True, is_up=False), "replica.truncated")
    table = coverage.table()
    assert table["struck"] == {"kill": 2, "kill-at": 1}
    assert table["cells"]["is starting"] == {"kill": 1, "kill-at": 1}
    assert table["cells"]["after raft.fetched.written"] == {"kill": 1, "kill-at": 0}
    assert table["cells"]["after replica.truncated"] == {"kill": 0, "kill-at": 1}
    assert set(table["cells"]) == set(STATES)
    assert ["after replica.truncated", "kill"] in table["never"]
    both = merged([table, table])
    assert both["cells"]["is starting"] == {"kill": 2, "kill-at": 2} and both["never"] == table["never"]
