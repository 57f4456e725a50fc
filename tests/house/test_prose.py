"""Docstrings, comments and messages are plain English: no headless fragments, and none of the words that we
overused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.test_arrows import ROOT

FRAGMENT = re.compile(r"(?:Core: |Shell: )?(?:Of|What|Who|Whose|Whom|Whoever|So|That|Behind)\b", re.IGNORECASE)
"""Beginnings of a docstring that has no subject: "Of them, open" for "Partitions with an open transaction"."""

WORD = re.compile(r"(?<![a-z\"'])(told|tells|anew|whoever)(?![a-z=])", re.IGNORECASE)
"""The plain words are: reports, returns, logs; again; a client that. `"told"` is a key of decisions in JSON."""

PLACES = (
    "barnabas",
    "bench",
    "broker",
    "docs",
    "jepsen-style",
    "kraft",
    "protocol",
    "runtime",
    "settings",
    "storage",
)


def files(suffix: str) -> Iterator[Path]:
    for place in PLACES:
        yield from sorted((ROOT / place).rglob(f"*{suffix}"))
    yield from sorted(ROOT.glob(f"*{suffix}"))


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of a file, those of fields and constants included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def test_docstrings_have_a_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in files(".py")
        for line, text in docstrings(path)
        if FRAGMENT.match(text)
    ]
    assert not found, "\n".join(found)


def test_words_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for suffix in (".py", ".md")
        for path in files(suffix)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WORD.search(line)
    ]
    assert not found, "\n".join(found)
