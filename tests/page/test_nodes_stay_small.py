"""Nodes never load what only the page needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ("quart", "quart_trio", "hypercorn", "werkzeug", "jinja2", "h11", "barnabas.page")


@pytest.mark.parametrize("module", ["broker.process", "kraft.process", "barnabas.cluster.proxied_node"])
def test_a_node_imports_no_web_library(module: str) -> None:
    program = f"import sys, {module}; print(*sorted(set({WEB!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
