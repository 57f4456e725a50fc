"""A healed cluster must become whole again, and is given time for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkers.convergence import Convergence
from checkers.verdict import Verdict
from histories.history import History
from histories.recorder import Recorder
from operations import NEMESIS, Completion, Moment, Place
from worlds.cluster import ReplicaView

PLACE = Place("t0", 0)
HEALED_SECONDS = 20
WHOLE: dict[str, tuple[int, int, tuple[int, ...]]] = {f"broker-{each}": (2, 5, (1, 2, 3)) for each in (1, 2, 3)}


def judged(
    directory: Path, minds: dict[str, tuple[int, int, tuple[int, ...]]], *, seconds: float, state: str = "running"
) -> Verdict:
    """The last view is `seconds` after the final repair; `minds`: leader, epoch and ISR by each node."""
    recorder = Recorder(directory, {"name": "story"})
    value: dict[str, Any] = {"number": 0, "kind": "all", "targets": []}
    for kind in ("invoke", "info"):
        at = Moment(HEALED_SECONDS * 10**9, 0)
        recorder.write(at, NEMESIS, kind, "heal", Completion("info", value))  # type: ignore[arg-type]
    views = [ReplicaView(node, PLACE, 10, 10, epoch, leader, isr) for node, (leader, epoch, isr) in minds.items()]
    t_ns = int((HEALED_SECONDS + seconds) * 1e9)
    recorder.view(t_ns, views, dict.fromkeys(minds, "running") | {"broker-3": state}, None)  # type: ignore[arg-type]
    recorder.close()
    return Convergence().check(History.load(directory))


def test_a_whole_cluster_is_fine(tmp_path: Path) -> None:
    assert judged(tmp_path / "run", WHOLE, seconds=20).valid == "true"


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize("mind", [(3, 4, (1, 2, 3)), (2, 5, (1, 2))], ids=["another leader", "a small ISR"])
def test_a_node_that_does_not_converge_is_found(tmp_path: Path, mind: tuple[int, int, tuple[int, ...]]) -> None:
    verdict = judged(tmp_path / "run", WHOLE | {"broker-3": mind}, seconds=20)
    assert verdict.valid == "false"
    assert [finding.anomaly for finding in verdict.findings] == ["not-whole"]
    assert "broker-3" in verdict.findings[0].description


def test_it_takes_time_and_all_nodes(tmp_path: Path) -> None:
    broken = WHOLE | {"broker-3": (3, 4, (3,))}
    assert judged(tmp_path / "soon", broken, seconds=5).valid == "true"
    assert judged(tmp_path / "away", broken, seconds=20, state="dead").valid == "true"
