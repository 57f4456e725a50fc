"""The projects under examples/, tested as their owners would."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.barnabas.testing.test_plugin import ROOT, run_pytest


@pytest.mark.parametrize("project", ["flights", "orders", "queue"])
def test_an_example(project: str, tmp_path: Path) -> None:
    if project == "flights":
        pytest.importorskip("confluent_kafka")
    shutil.copytree(ROOT / "examples" / project, tmp_path / project)
    result = run_pytest(tmp_path / project)
    assert result.returncode == 0, result.stdout + result.stderr
