"""The projects under examples/, tested as their owners would."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.barnabas.testing.test_plugin import ROOT, run_pytest
from tests.compat.available import lacking


@pytest.mark.parametrize("project", ["flights", "orders", "payments", "queue"])
def test_an_example(project: str, tmp_path: Path) -> None:
    if project == "flights":
        pytest.importorskip("confluent_kafka")
    if project == "payments":
        pytest.importorskip("psycopg")
        if why := lacking("postgresql"):
            pytest.skip(why)
    shutil.copytree(ROOT / "examples" / project, tmp_path / project)
    result = run_pytest(tmp_path / project)
    assert result.returncode == 0, result.stdout + result.stderr
