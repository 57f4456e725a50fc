"""Runs the programs of docs/queues.md, and compares what they print with the text below them."""

from __future__ import annotations

import io
import itertools
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from barnabas.pytest_plugin import BarnabasCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "queues.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.feature("CG-17", "OP-10")
def test_the_programs_of_the_page_print_what_it_says(barnabas_cluster: BarnabasCluster) -> None:
    found = _BLOCK.findall(PAGE.read_text())
    programs = [pair for pair in itertools.pairwise(found) if pair[0][0] == "python"]
    assert len(programs) == 2
    for (_, program), (kind, expected) in programs:
        assert kind == "text"
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(program.replace("127.0.0.1:9092", barnabas_cluster.bootstrap_servers), {"__name__": "__main__"})
        assert printed.getvalue() == expected, program
