"""Checkers travel to executors as a zip: they need nothing of the program that is not in it, and no event loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.pipeline.jobs.history import checkers_folder, zipped

pytestmark = pytest.mark.feature("PL-05")


def test_the_zip_is_enough(tmp_path: Path) -> None:
    with zipped(checkers_folder()) as archive:
        program = f"import sys; sys.path.insert(0, {archive!r})\nfrom checkers import split\nimport histories.columns\n"
        program += "print(split.__file__.startswith(sys.path[0]), 'trio' in sys.modules)"
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True False\n", "")
