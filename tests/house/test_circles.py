"""Files of a room import each other in one direction: no file needs itself, however far around."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

ROOMS = ("broker", "runtime", "settings", "storage")


def imports_of(room: str) -> dict[str, set[str]]:
    """The files of the room that each of its files imports, also those for type checkers only."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / room).rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                found[name] |= names.intersection(files)
    return found


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """The names of one circle; empty if there is none."""
    done: set[str] = set()

    def follow(way: list[str]) -> list[str]:
        for name in sorted(imports[way[-1]]):
            if name in way:
                return way[way.index(name) :]
            if name not in done and (circle := follow([*way, name])):
                return circle
        done.add(way[-1])
        return []

    return next((circle for name in sorted(imports) if name not in done and (circle := follow([name]))), [])


@pytest.mark.parametrize("room", ROOMS)
def test_there_is_no_circle(room: str) -> None:
    assert circle_in(imports_of(room)) == []


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"a"}}) == ["a", "b", "d"]
