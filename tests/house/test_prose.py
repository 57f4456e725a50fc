"""Docstrings, comments, messages and names of tests are plain English: no headless fragments, and none of the words
that we overused."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_arrows import ROOT

FRAGMENT = re.compile(r"(?:Core: |Shell: )?(?:Of|What|Who|Whose|Whom|Whoever|So|That|Behind)\b", re.IGNORECASE)
"""Beginnings of a docstring that has no subject: "Of them, open" for "Partitions with an open transaction"."""

HEADLESS = re.compile(r"(?:Of|Who|Whose|Whom|Whoever|So|That|Behind)\b")
"""Beginnings of a comment without a subject. A comment may begin in the middle of a sentence, in lower case."""

NAME = re.compile(r"test_(?:of|what|who|whose|whom|whoever|so|that|behind)_")
"""Beginnings of a test's name that has no subject: `test_what_is_lost_is_found` for `test_losses_are_found`."""

WORD = re.compile(
    r"(?<![a-z\"'-])(?<![\"']\.)(?:told|tells|anew|whoever|hears|(?:is|are|was|were) no more(?! than))(?![a-z=])",
    re.IGNORECASE,
)
"""The plain words are: reports, returns, logs; again; a client that; receives; has ended. `"told"` is a key of
decisions in JSON, `.told` and `#links-told` are names on the page."""

PLACES = (
    "barnabas",
    "bench",
    "broker",
    "docs",
    "examples",
    "jepsen-style",
    "kraft",
    "protocol",
    "runtime",
    "settings",
    "storage",
    "tests",
)

MINE = Path(__file__)


def files(suffix: str) -> Iterator[Path]:
    for place in PLACES:
        yield from (path for path in sorted((ROOT / place).rglob(f"*{suffix}")) if path != MINE)
    yield from sorted(ROOT.glob(f"*{suffix}"))


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of docstrings, those of fields and constants included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of the first line of each comment."""
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield token.start[0], token.string.lstrip("# ")
            last = token.start[0]


def names(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


def fragments(text: str) -> Iterator[tuple[int, str]]:
    yield from ((line, each) for line, each in docstrings(text) if FRAGMENT.match(each))
    yield from ((line, each) for line, each in comments(text) if HEADLESS.match(each))
    yield from ((line, each) for line, each in names(text) if NAME.match(each))


def words(text: str) -> Iterator[tuple[int, str]]:
    yield from ((number, line) for number, line in enumerate(text.splitlines(), 1) if WORD.search(line))


def test_sentences_have_a_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {each.splitlines()[0]}"
        for path in files(".py")
        for line, each in fragments(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_words_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {each.strip()}"
        for suffix in (".py", ".md")
        for path in files(suffix)
        for line, each in words(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ['x = 1\n"""Of them, open."""', "# Who reads it.", "x = 1  # So it ends.", "def test_what_is_lost(): ..."],
)
def test_a_fragment_is_found(text: str) -> None:
    assert list(fragments(text))


@pytest.mark.parametrize(
    "text",
    ['"""Open ones."""', "# It ends here,\n# so nobody reads it", "def of(): ...", 'assert answer["told"] != ".told"'],
)
def test_plain_sentences_pass(text: str) -> None:
    assert not list(fragments(text)) and not list(words(text))


@pytest.mark.parametrize("text", ["it is told so", "_told = 1", "it begins anew", "it hears", "it is no more"])
def test_a_word_is_found(text: str) -> None:
    assert list(words(text))
