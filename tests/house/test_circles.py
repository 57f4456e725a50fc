"""Files of a room import each other in one direction: no file needs itself, however far around."""

from __future__ import annotations

import ast

import pytest

from tests.house.test_arrows import ROOT, strongly_connected, without_package

ROOMS = ("broker", "protocol", "runtime", "settings", "storage")


def imports_of(room: str) -> dict[str, set[str]]:
    """The files of the room that each of its files imports, also those for type checkers only."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / room).rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                names = {without_package(name) for name in names}
                found[name] |= names.intersection(files)
    return found


def circles_in(imports: dict[str, set[str]]) -> list[list[str]]:
    return [sorted(circle) for circle in strongly_connected(imports) if len(circle) > 1]


@pytest.mark.parametrize("room", ROOMS)
def test_there_is_no_circle(room: str) -> None:
    assert circles_in(imports_of(room)) == []


def test_a_circle_is_found() -> None:
    assert circles_in({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"a"}}) == [["a", "b", "d"]]
