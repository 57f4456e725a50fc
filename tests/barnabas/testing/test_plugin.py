"""The plug-in in projects of others: whatever folders they have, and whichever plug-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """pytest in a project's own folder, as its owner would run it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=300,
        check=False,
    )


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


SIMULATED = """
import pytest

async def test_virtual_time(barnabas_simulated_cluster):
    await barnabas_simulated_cluster.create_topic("t")

async def test_of_another_kind():
    pass

def test_that_is_no_coroutine(barnabas_simulated_cluster):
    pass

class TestInAClass:
    @pytest.mark.parametrize("partitions", [1, 2])
    async def test_of_it(self, barnabas_simulated_cluster, partitions, tmp_path):
        await barnabas_simulated_cluster.create_topic("t", partitions)
        assert tmp_path.exists()
        assert partitions == 1, "as it should"
"""


def test_simulated_tests_run_with_and_without_other_plug_ins(tmp_path: Path) -> None:
    write(tmp_path, {"test_it.py": SIMULATED, "pytest.ini": "[pytest]\ntrio_mode = true\n"})
    with_trio = run_pytest(tmp_path)
    assert "1 failed, 3 passed, 1 error" in with_trio.stdout, with_trio.stdout
    assert "AssertionError: as it should" in with_trio.stdout
    assert "is for tests that are coroutine functions: async def test_that_is_no_coroutine" in with_trio.stdout
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    without = run_pytest(tmp_path, "-p", "no:trio", "-k", "virtual_time")
    assert "1 passed, 4 deselected" in without.stdout, without.stdout


OWN_FOLDERS = {
    "protocol/__init__.py": "HERE = 'of the project'",
    "storage/__init__.py": "",
    "runtime/__init__.py": "raise RuntimeError('nothing imports this')",
    "conftest.py": (
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def barnabas_settings():\n"
        "    return {'num.partitions': '2'}\n"
    ),
    "test_it.py": (
        "import protocol, storage, sys\n"
        "def test_it(barnabas_cluster):\n"
        "    assert protocol.HERE == 'of the project'\n"
        "    barnabas_cluster.create_topic('t', partitions=-1, replicas=3)\n"
        "def test_two(barnabas_cluster):\n"
        "    assert [part.partition for part in barnabas_cluster.partitions('t')] == [0, 1]\n"
        "    assert not {'barnabas.kraft', 'barnabas.settings'} & set(sys.modules)\n"
        "async def test_three(barnabas_simulated_cluster):\n"
        "    assert {'barnabas.kraft', 'barnabas.settings'} <= set(sys.modules)\n"
    ),
}


def test_a_project_may_have_folders_of_our_names(tmp_path: Path) -> None:
    write(tmp_path, OWN_FOLDERS)
    result = run_pytest(tmp_path)
    assert "3 passed" in result.stdout, result.stdout + result.stderr
