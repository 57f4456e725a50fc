"""The guardian of a run ends what the run has started, with its children where these are to go, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

from barnabas.cluster.guardian import Guardian
from barnabas.cluster.processes import ProcessId


def test_a_group_ends_as_a_whole(tmp_path: Path) -> None:
    guardian = Guardian()
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert shell.stdout is not None
    child = ProcessId.of(int(shell.stdout.readline()))
    leader = ProcessId.of(shell.pid)
    assert child is not None and leader is not None
    leader.write(tmp_path / "run" / "instance-0.pid")
    guardian.end_groups_of(tmp_path / "run")
    assert child.alive
    guardian.close()
    assert shell.wait(30) == -9
    assert child.wait_gone(30)
    shell.stdout.close()
