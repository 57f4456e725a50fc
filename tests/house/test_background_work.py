"""Work of requests goes on in the background in one way only: `Call.spawn` and `Background.spawn`, where a mistake ends
neither the node nor other requests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

SERVES_REQUESTS = ("broker/apis", "broker/groups", "broker/transactions", "broker/coordinator", "broker/forwarding.py")

STARTERS = {"start_soon", "open_nursery", "spawn_system_task"}


def files() -> list[Path]:
    found: list[Path] = []
    for place in SERVES_REQUESTS:
        path = ROOT / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def started_tasks(source: str) -> list[str]:
    """Lines that start tasks other than by `Background.spawn` and `Call.spawn`."""
    return [
        f"line {node.lineno}: {node.func.attr}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTERS
    ]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_request_work_goes_on_only_where_a_mistake_fails_the_request(path: Path) -> None:
    assert started_tasks(path.read_text()) == []


def test_a_task_in_a_nursery_is_found() -> None:
    source = "async def go(nursery):\n    nursery.start_soon(work)\n    async with trio.open_nursery(): pass\n"
    assert started_tasks(source) == ["line 2: start_soon", "line 3: open_nursery"]
