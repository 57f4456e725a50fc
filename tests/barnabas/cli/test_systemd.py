"""The unit that `barnabas systemd` prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cli.systemd import STOP_SECONDS

CONFIG = """\
process.roles=broker
node.id=7
listeners=PLAINTEXT://10.0.0.7:9092
controller.listener.names=CONTROLLER
controller.quorum.voters=101@10.0.0.1:9093
log.dirs={log_dirs}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker 7.properties"
    path.write_text(CONFIG.format(log_dirs="/var/lib/barnabas/a,/var/lib/barnabas/b"))
    return path


def test_the_unit_runs_the_node_with_its_directories_writable(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["systemd", str(config), "--user", "kafka", "--program", "/opt/barnabas/bin/barnabas"]) == 0
    unit = capsys.readouterr().out
    assert unit.startswith("# /etc/systemd/system/barnabas-broker-7.service\n")
    assert f'\nExecStart=/opt/barnabas/bin/barnabas broker "{config}"\n' in unit
    assert "\nUser=kafka\n" in unit
    assert "\nReadWritePaths=/var/lib/barnabas/a /var/lib/barnabas/b" in unit
    assert STOP_SECONDS > 30, "a controlled shutdown may take 30 s"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["systemd", str(config), "--user", "root", "--program", "/bin/true"]) == 0
    unit = tmp_path / "barnabas-broker-7.service"
    unit.write_text(capsys.readouterr().out)
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in checked.stderr.splitlines() if unit.name in line] == []


def test_relative_log_directories_are_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG.format(log_dirs=".cluster/data"))
    assert run(["systemd", str(config)]) == 2
    assert "must be absolute paths for a service; got '.cluster/data'" in capsys.readouterr().err
