"""A run from the command line on real processes, with every client library that is here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clients import java_program
from clients.missing import LibraryMissing
from running.libraries import check_libraries

ROOT = Path(__file__).resolve().parents[2]
LEFT_BEHIND = ("history.jsonl", "history.parquet", "mops.parquet", "views.parquet", "verdict.json", "report.html")


def here() -> list[str]:
    found = ["barnabas"]
    for name in ("confluent", "java"):
        try:
            check_libraries([name])
        except LibraryMissing:
            continue
        found.append(name)
    return found


@pytest.mark.slow
@pytest.mark.feature("FI-01", "FI-02")
def test_a_run_with_all_clients_through_kills_and_pauses(tmp_path: Path) -> None:
    if "java" in (clients := here()):
        java_program.command()  # compiled before the run's time begins
    words = ["run", "queue", "--nemesis", "kill,pause", "--interval", "6", "--time", "25", "--quiet", "3"]
    words += ["--concurrency", "6", "--seed", "1", "--client", ",".join(clients), "--store", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "jepsen-style", *words], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("VALID | ")

    [directory] = tmp_path.iterdir()
    for name in LEFT_BEHIND:
        assert (directory / name).stat().st_size > 0
    run = json.loads((directory / "run.json").read_text())
    assert run["final_done"] and run["clients"] == clients and run["replay"].startswith("python jepsen-style run queue")
    lines = [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]
    for client in clients:
        assert any(line["type"] == "ok" and line.get("client") == client for line in lines)
    assert any(line["process"] == "nemesis" for line in lines)
