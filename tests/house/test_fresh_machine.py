"""`make test` needs nothing but what the `dev` extra gives: on a machine that has never seen `make compat`, too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

FOREIGN = {"confluent_kafka", "kafka", "aiokafka", "snappy", "pyspark", "matplotlib", "playwright"}
"""Packages that only `make compat`, `make spark-test` and `make page-test` install."""

COLLECTED = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path.name.startswith(("test_", "conftest"))]


@pytest.mark.parametrize("path", COLLECTED, ids=[str(path.relative_to(ROOT)) for path in COLLECTED])
def test_a_file_that_is_collected_imports_no_foreign_client(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] not in FOREIGN, f"{name}: ask for it with pytest.importorskip"
