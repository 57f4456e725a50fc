"""Rolls six nodes from an earlier version to this one and back, under a producer; loses and repeats no record.

    python tests/packaging/try_upgrade.py [COMMIT]

The earlier version is that of COMMIT, by default the last tag, or the tenth commit before this one if there is none:
its wheel is built, unpacked, and its nodes run from it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLERS = ("controller-101", "controller-102", "controller-103")
COMMAND_SECONDS = 120
WAIT_SECONDS = 120


class Version:
    """The command `barnabas` of one version."""

    def __init__(self, name: str, path: Path | None, data: Path) -> None:
        self.name = name
        self._data = data
        self._environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})

    def __call__(self, *words: str, stdin: str = "") -> str:
        program = "from barnabas.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *words, "--data", str(self._data)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env=self._environment,
            check=False,
        )
        if done.returncode:
            said = f"{done.stdout}{done.stderr}"
            raise SystemExit(f"{self.name}: {' '.join(words)} ended with {done.returncode}:\n{said}")
        return done.stdout


class Writer(threading.Thread):
    """Sends numbered records until it is stopped; `produce` fails unless all of its records are acked."""

    def __init__(self, barnabas: Version) -> None:
        super().__init__(daemon=True)
        self._barnabas = barnabas
        self._ends = threading.Event()
        self.acked = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                lines = "".join(f"{number}\n" for number in range(self.acked, self.acked + 50))
                self._barnabas("produce", "t", stdin=lines)
                self.acked += 50
        except BaseException as error:
            self.failure = error

    def end(self) -> int:
        self._ends.set()
        self.join()
        if self.failure is not None:
            raise self.failure
        return self.acked


def build(commit: str, folder: Path) -> Path:
    """A directory with the unpacked wheel of a commit."""
    source, wheels, target = folder / "source", folder / "wheels", folder / "old"
    source.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "xf", "-", "-C", source], input=archive, check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", wheels]
    subprocess.run([*pip, "--no-build-isolation", source], check=True)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as file:
        file.extractall(target)
    return target


def earlier_commit() -> str:
    def ask(*words: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return ask("describe", "--tags", "--abbrev=0") or ask("rev-list", "--first-parent", "-n", "1", "--skip=10", "HEAD")


def wait_whole(barnabas: Version) -> None:
    """Until all replicas are in sync and there is an active controller."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        status = json.loads(barnabas("cluster", "status", "--json"))
        parts = status["partitions"]
        behind = [part for part in parts if len(part["isr"]) < len(part["replicas"])]
        if parts and not behind and len(status["brokers"]) == len(BROKERS):
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"not in sync after {WAIT_SECONDS} s: {json.dumps(status)}")
        time.sleep(0.5)


def roll(old: Version, new: Version) -> None:
    began = time.monotonic()
    for node in (*BROKERS, *CONTROLLERS):
        old("cluster", "stop", node)
        new("cluster", "start", node)
        wait_whole(new)
    print(f"rolled from {old.name} to {new.name} in {time.monotonic() - began:.0f} s", flush=True)


def check(barnabas: Version, count: int) -> None:
    read = barnabas("consume", "t", "--from-beginning", "-n", str(count)).split()
    expected = [str(number) for number in range(count)]
    if sorted(read) != sorted(expected):
        lost = sorted(set(expected) - set(read))
        doubled = len(read) - len(set(read))
        raise SystemExit(f"{barnabas.name}: {len(lost)} acked records are lost, {doubled} are doubled")
    print(f"{count} acked records are there once each", flush=True)


def main() -> None:
    commit = sys.argv[1] if len(sys.argv) > 1 else earlier_commit()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data"
        old, new = Version(commit[:8], build(commit, folder), data), Version("this version", None, data)
        old("cluster", "up", "--base-port", os.environ.get("BASE_PORT", "29092"))
        try:
            old("topics", "create", "t", "-p", "3", "-r", "3")
            writer = Writer(new)
            writer.start()
            roll(old, new)
            roll(new, old)
            check(old, writer.end())
        finally:
            for version in (old, new):  # each stops the nodes that it started
                version("cluster", "down")


if __name__ == "__main__":
    main()
