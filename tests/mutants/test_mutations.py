"""Mutations of a file, and code that is not mutated."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.mutations import mutated, mutations_of

SOURCE = '''\
LIMIT = 3


class Counter:
    start: int = 0

    def count(self, wanted, more=1):
        """Counts."""
        log.info("asked for %d", wanted)
        assert wanted > 0
        if wanted < LIMIT and not self.full:
            self.start += more
            return None
        return max(self.start, 0)

    def __repr__(self):
        return "one" + "two"
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "counter.py"
    path.write_text(SOURCE)
    return path


def test_every_place_that_decides_is_changed_and_nothing_that_only_informs(file: Path) -> None:
    assert [(each.line, each.change) for each in mutations_of(file)] == [
        (11, "the condition is negated"),
        (11, "and becomes or"),
        (11, "< becomes <="),
        (12, "the statement is dropped"),
        (12, "+ becomes -"),
        (13, "the statement is dropped"),
        (14, "the statement is dropped"),
        (14, "max becomes min"),
        (14, "0 becomes 1"),
        (14, "0 becomes -1"),
    ]


def test_each_mutation_changes_one_place(file: Path) -> None:
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    seen = set()
    for mutation in mutations_of(file):
        after = ast.unparse(mutated(mutation)).splitlines()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(changed) == 1, mutation
        seen.add(changed[0][1].strip())
        assert mutation.function == "Counter.count" and mutation.source in SOURCE
    assert "return min(self.start, 0)" in seen
    assert "if wanted <= LIMIT and (not self.full):" in seen
    assert len(seen) == 8, "three statements are dropped"


def test_equal_changes_of_one_line_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "between.py"
    path.write_text("def between(a, b, c):\n    return a < b < c\n")
    found = [each.change for each in mutations_of(path)]
    assert found == ["the statement is dropped", "< becomes <=", "< becomes <= (2)"]


def test_a_return_behind_which_nothing_comes_stays(tmp_path: Path) -> None:
    path = tmp_path / "last.py"
    path.write_text(
        "def look(items):\n"
        "    for item in items:\n"
        "        if item:\n"
        "            continue\n"
        "    if items:\n"
        "        return\n"
        "    else:\n"
        "        return None\n"
    )
    assert {each.change for each in mutations_of(path)} == {"the condition is negated"}


def test_code_that_only_informs_is_not_mutated(tmp_path: Path) -> None:
    path = tmp_path / "informs.py"
    path.write_text(
        "def check(code, limit):\n"
        "    if code > limit:\n"
        "        log.info('above %d', limit)\n"
        "    elif not code:\n"
        "        self._log.info('none')\n"
        "    if limit:\n"
        "        raise ValueError(f'below {limit - 1}') from None\n"
        "    raise (KeyError if code else OSError)(1)\n"
    )
    assert [(each.line, each.change) for each in mutations_of(path)] == [
        (2, "the condition is negated"),
        (2, "> becomes >="),
        (6, "the condition is negated"),
        (7, "the statement is dropped"),
        (8, "the statement is dropped"),
        (8, "the condition is negated"),
    ]


def test_a_file_that_was_edited_meanwhile_is_refused(file: Path) -> None:
    last = mutations_of(file)[-1]
    file.write_text("def nothing():\n    return None\n")
    with pytest.raises(LookupError, match="was changed meanwhile"):
        mutated(last)
