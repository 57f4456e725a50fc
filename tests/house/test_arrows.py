"""The plan of the house, kept: imports go down only, and not in circles. What cores may import is in test_cores.py."""

from __future__ import annotations

import ast
import re
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

LATE = re.compile(r"barnabas(\.\w+)+:\w+")
"""The name of a late part of a node."""

CLIENT_SEES = {"barnabas", "runtime", "protocol"}


def sources(place: str) -> list[Path]:
    path = ROOT / place
    found = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
    assert found, f"{place} is not there"
    return found


def imports(path: Path) -> Iterator[str]:
    """Full names that a file imports, also inside functions and late (`runtime/late.py`); not those for type checkers.

    A room's name stands without the package that links to it: `broker.node` for `barnabas.broker.node`.
    """
    yield from map(without_package, _imports(ast.parse(path.read_text())))


def without_package(name: str) -> str:
    inside = name.removeprefix("barnabas.")
    return inside if inside.partition(".")[0] in FLOORS else name


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from (name for each in node.orelse for name in _imports(each))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and LATE.fullmatch(node.value):
            yield node.value.replace(":", ".")
        else:
            yield from _imports(node)


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


@pytest.mark.parametrize("room", FLOORS)
def test_imports_make_no_circle(room: str) -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources(room)}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    arrows = {
        name: {each if each in modules else each.rpartition(".")[0] for each in imports(path)} & modules.keys() - {name}
        for name, path in modules.items()
    }
    assert [circle for circle in strongly_connected(arrows) if len(circle) > 1] == []


def strongly_connected(arrows: dict[str, set[str]]) -> Iterator[set[str]]:
    """Sets of names that reach each other."""
    reached = {name: reach(arrows, name) for name in arrows}
    left = set(arrows)
    while left:
        name = min(left)
        circle = {each for each in reached[name] | {name} if each == name or name in reached[each]}
        yield circle
        left -= circle


def reach(arrows: dict[str, set[str]], start: str) -> set[str]:
    """All names that `start` leads to."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_a_circle_is_found() -> None:
    assert list(strongly_connected({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == [{"a"}, {"b", "c"}]


def test_only_the_real_world_touches_sockets_and_threads() -> None:
    doors = {
        "runtime/network.py",
        "runtime/real.py",
        "runtime/disk.py",
        "runtime/clocks.py",
        "runtime/process.py",
        "runtime/watchdog.py",
        "runtime/sasl/http_exchange.py",
        "runtime/simulated/chance.py",
        # It asks which thread it is in, and lets those of real event loops be.
        "runtime/simulated/determinism.py",
    }
    for room in ("runtime", "kraft", "broker"):
        for path in sources(room):
            if str(path.relative_to(ROOT)) in doors:
                continue
            for name in imports(path):
                assert name.split(".")[0] not in {"socket", "threading", "random", "time", "uuid"}, (
                    f"{path.relative_to(ROOT)} imports {name}; take it from the World"
                )
