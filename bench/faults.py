"""Cost of fault injection: a simulated cluster second, a fault, the check of an operation.

Seeds run one after the other in this process. Histories are synthetic: processes send unique values, others poll each
of them soon afterwards, every promise is kept, and a few anomalies are planted. Each history is checked in a process of
its own, whose peak memory is reported.

Usage: faults.py [--seeds A-B] [--operations N …] [--out F]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import Meter, Results

sys.path.append(str(Path(__file__).resolve().parents[1] / "jepsen-style"))

from running.many_seeds import Summary, parse_seeds
from running.seed import run_seed

SUITE = Path(__file__).resolve().parent.parent / "jepsen-style"
KEYS = 64
SENDERS = 40
LIES = 10


def simulate(seeds: Sequence[int], results: Results) -> None:
    summary = Summary()
    for seed in seeds:
        summary.add(run_seed(seed))
    results.add(
        "faults.simulation",
        "simulated s/CPU s",
        1,
        summary.simulated_seconds / summary.cpu_seconds,
        seeds=summary.seeds,
        failed=len(summary.failed),
        simulated_hours=summary.simulated_seconds / 3600,
        faults_per_cpu_s=summary.faults / summary.cpu_seconds,
        cpu_s_per_seed=summary.cpu_seconds / summary.seeds,
    )


def check(operations: int, results: Results) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), operations, LIES)
        done = subprocess.run([sys.executable, __file__, "--check", directory], capture_output=True, check=True)
    fields: dict[str, Any] = json.loads(done.stdout)
    name = f"faults.one.{operations // 1_000_000}M"
    results.add(name, "operations/s", 1, operations / fields["wall_s"], operations=operations, **fields)


def write(directory: Path, operations: int, lies: int) -> None:
    """A run's directory. Every second operation polls what the one before it has sent; an anomaly is a poll of a value
    that was never sent."""
    run = {"workload": "queue", "options": {"subscribe": False}, "final_done": True}
    (directory / "run.json").write_text(json.dumps(run))
    (directory / "views.jsonl").touch()
    lie_at = {number * (operations // (lies + 1)) // 2 * 2 + 1 for number in range(1, lies + 1)}
    with (directory / "history.jsonl").open("w") as file:
        for number in range(operations):
            file.writelines(lines(number, number in lie_at))


def lines(number: int, is_lie: bool) -> Iterator[str]:
    """The invocation and the completion of one operation."""
    sent, is_poll = number // 2, number % 2 == 1
    key, offset = sent % KEYS, sent // KEYS
    process = SENDERS + sent % KEYS if is_poll else sent % SENDERS
    asked: list[Any] = ["poll"] if is_poll else ["send", key, sent]
    found = (
        ["poll", {str(key): [[offset, -1 - sent if is_lie else sent]]}] if is_poll else ["send", key, [offset, sent]]
    )
    for i, kind, micro in ((2 * number, "invoke", asked), (2 * number + 1, "ok", found)):
        line = {"i": i, "process": process, "type": kind, "f": micro[0], "value": [micro], "t_ns": 1000 * i}
        yield json.dumps({**line, "wall_ms": i // 1000, "client": "barnabas"}, separators=(",", ":")) + "\n"


def check_here(directory: Path) -> dict[str, Any]:
    """All checkers over one history, in this process."""
    sys.path.insert(0, str(SUITE))
    from histories.history import History
    from running.judging import judge

    began = time.monotonic()
    with Meter([]) as meter:
        history = History.load(directory)
        loaded = time.monotonic()
        verdict = judge(directory, history)
    return {
        "loaded_s": round(loaded - began, 1),
        "wall_s": meter.fields["wall_s"],
        "cpu_s": meter.fields["client_cpu_s"],
        "valid": verdict.valid,
        "findings": len(verdict.findings),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024, 2),
    }


def table(files: Sequence[str]) -> list[str]:
    """Lines of Markdown: a row for each measurement."""
    rows = ["| | |", "|---|---|"]
    for file in files:
        for row in map(json.loads, Path(file).read_text().splitlines()):
            if row["name"] == "faults.simulation":
                rows.append(
                    f"| simulation, {row['seeds']} seeds, {row['simulated_hours']:.1f} simulated hours | "
                    f"{row['value']:.1f} simulated seconds and {row['faults_per_cpu_s']:.1f} faults for a CPU second; "
                    f"{row['cpu_s_per_seed']:.1f} CPU seconds a seed |"
                )
            elif row["name"].startswith("faults."):
                rows.append(
                    f"| all checkers, {row['operations']:,} operations, one process | {row['value']:,.0f} operations/s "
                    f"({row['wall_s']:.0f} s, {row['cpu_s']:.0f} CPU s), {row['peak_gib']:.1f} GiB |"
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1-40")
    parser.add_argument("--operations", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--check", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--label", default="barnabas")
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.check is not None:
        print(json.dumps(check_here(options.check)))
        return
    results = Results(options.out, options.label)
    seeds = parse_seeds(options.seeds) if options.seeds else []
    if seeds:
        simulate(seeds, results)
    for operations in options.operations:
        check(operations, results)


if __name__ == "__main__":
    main()
