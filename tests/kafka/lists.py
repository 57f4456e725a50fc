"""Reads the data files on Kafka's tests: which run, which cannot, and which are known to fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ANY = "*"
SAID = "(said)"
"""A principal of principals.tsv: the one that the test says at the moment."""


@dataclass(frozen=True, slots=True)
class TestClass:
    name: str
    """With its package."""
    selection: str
    """The methods that belong to the selection, as a regular expression; empty: none."""

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Gap:
    """A kind of test that does not run."""

    by: str
    """name or setting"""
    pattern: str
    kind: str
    why: str

    @property
    def reason(self) -> str:
        return f"{self.kind}: {self.why}"


def classes() -> list[TestClass]:
    return [TestClass(name, selection) for name, selection in _rows("classes.tsv")]


def gaps() -> list[Gap]:
    return [Gap(*row) for row in _rows("gaps.tsv")]


def known() -> dict[str, str]:
    """By Class.method, why it fails."""
    return {test: f"{kind}: {why}" for test, kind, why in _rows("known.tsv")}


def never() -> list[str]:
    """Tests, as Class.method."""
    return [test for test, _ in _rows("never.tsv")]


def principals() -> list[tuple[str, str, str]]:
    """Builder, listener and principal."""
    return [(builder, listener, principal) for builder, listener, principal in _rows("principals.tsv")]


def mapping_rules() -> list[tuple[str, str]]:
    """Builder, and rules that take its place."""
    return [(builder, rules) for builder, rules in _rows("mapping_rules.tsv")]


def authorizers() -> list[tuple[str, str, str]]:
    """Authorizer, principal and the name of the requests that it denies this principal."""
    return [(authorizer, principal, api) for authorizer, principal, api in _rows("authorizers.tsv")]


def selection_pattern() -> str:
    """Fits Class.method of all tests of the selection."""
    chosen = [rf"{re.escape(each.simple_name)}\.({each.selection})" for each in classes() if each.selection]
    return f"^({'|'.join(chosen)})$"


def _rows(name: str) -> Iterator[list[str]]:
    lines = [line for line in (FOLDER / name).read_text().splitlines() if line and not line.startswith("#")]
    columns = len(lines[0].split("\t"))
    for line in lines[1:]:
        row = line.split("\t")
        if len(row) != columns:
            raise ValueError(f"{name}: {line!r} has {len(row)} columns, not {columns}")
        yield row
