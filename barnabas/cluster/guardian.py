"""A process that cleans up after a run, however the run ends: the run registers beforehand what to undo.

A small process of its own session, that Ctrl-C does not reach. When its input ends (the run is over, or was killed)
it ends the registered nodes and runs the registered commands, the last first. `Guardian` is the run's side.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.cluster.local import code_environment
from barnabas.cluster.processes import ProcessId

END_SECONDS = 120.0
_STEP_SECONDS = 60.0


class Guardian:
    """The process, as the run has it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "barnabas.cluster.guardian"],
            stdin=subprocess.PIPE,
            env=code_environment(),
            start_new_session=True,
            text=True,
        )

    def at_the_end(self, *command: str) -> None:
        """Registers a command to run at the end, before those registered so far, whether or not they succeed."""
        self._register({"run": command})

    def end_nodes_of(self, run_directory: Path) -> None:
        """Registers a directory with pid files, whose processes are killed at the end."""
        self._register({"kill": str(run_directory)})

    def end_groups_of(self, run_directory: Path) -> None:
        """Registers a directory with pid files of leaders of process groups, which are killed as a whole at the end."""
        self._register({"kill": str(run_directory), "groups": True})

    def close(self) -> None:
        """The end is now; returns when all is undone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(END_SECONDS)

    def _register(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()


def undo(steps: Sequence[dict[str, Any]]) -> None:
    """The last step first; one that fails does not keep the others."""
    for step in reversed(steps):
        if "kill" in step:
            _kill(Path(step["kill"]), groups=step.get("groups", False))
        else:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(step["run"], capture_output=True, timeout=_STEP_SECONDS, check=False)


def _kill(run_directory: Path, *, groups: bool) -> None:
    for path in sorted(run_directory.glob("*.pid")):
        process = ProcessId.read(path)
        if process is not None and process.alive:
            if groups and os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
            process.send(signal.SIGKILL)
            process.wait_gone(_STEP_SECONDS)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    undo([json.loads(line) for line in sys.stdin])


if __name__ == "__main__":
    main()
