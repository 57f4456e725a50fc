"""Nodes that start together share one file of memory."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

from barnabas.cluster.shared_memory import map_shared


def _add(path: str, place: int) -> None:
    map_shared(Path(path), 36)[place] = place


def test_processes_that_create_the_file_at_once_share_it(tmp_path: Path) -> None:
    path = tmp_path / "run" / "wires"
    with get_context("fork").Pool(4) as pool:
        pool.starmap(_add, [(str(path), place) for place in range(36)])
    assert bytes(map_shared(path, 36)) == bytes(range(36))


def test_a_file_that_was_only_begun_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "wires"
    path.touch()
    assert bytes(map_shared(path, 36)) == bytes(36)
