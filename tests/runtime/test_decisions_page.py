"""The page about decisions, held to the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.runtime.decision_pages import MAX_LIMIT
from barnabas.runtime.decisions import MAX_TEXT, RING_SIZE, ROUTINE_SHARE, DecisionKind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "decisions.md").read_text()


@pytest.mark.feature("OB-07")
def test_the_page_has_all_kinds_and_no_others() -> None:
    kinds = PAGE.partition("## Kinds")[2].partition("## For programs")[0]
    named = re.findall(r"^\| `([a-z]+)` \|", kinds, re.MULTILINE)
    assert sorted(named) == sorted(kind.value for kind in DecisionKind)


@pytest.mark.feature("OB-07")
def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    for number in (RING_SIZE, RING_SIZE // ROUTINE_SHARE, MAX_LIMIT):
        assert f"{number:,}" in PAGE
    assert f"cut at {MAX_TEXT} characters" in " ".join(PAGE.split())
