"""Nodes never load what only the page needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WEB = ("quart", "quart_trio", "hypercorn", "werkzeug", "jinja2", "h11", "barnabas.page")


def test_nodes_import_no_web_library() -> None:
    nodes = "barnabas.broker.process, barnabas.kraft.process, barnabas.cluster.breakable_node"
    program = f"import sys, {nodes}; print(*sorted(set({WEB!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
