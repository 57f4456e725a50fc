"""What fault injection costs: a simulated cluster second, a fault, the check of an operation.

Seeds run one after the other in this process. Histories are made up (bench/long_histories.py), and each is checked in a
process of its own, whose memory is told; over executors if `--spark-operations` says so.

Usage: faults.py [--seeds A-B] [--operations N …] [--spark-operations N …] [--master MASTER] [--out F]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import Results

sys.path.append(str(Path(__file__).resolve().parents[1] / "jepsen-style"))

from simulation.many_seeds import Summary, parse_seeds
from simulation.seed import run_seed

HISTORIES = Path(__file__).parent / "long_histories.py"


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


def check(operations: int, results: Results, words: Sequence[str], name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, str(HISTORIES), "--operations", str(operations), "--directory", directory, *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    results.add(f"faults.{name}.{operations // 1_000_000}M", "operations/s", 1, operations / told["wall_s"], **told)


def table(files: Sequence[str]) -> list[str]:
    """Lines of Markdown: a row for each measurement."""
    lines = ["| | |", "|---|---|"]
    for file in files:
        for row in map(json.loads, Path(file).read_text().splitlines()):
            if row["name"] == "faults.simulation":
                lines.append(
                    f"| simulation, {row['seeds']} seeds, {row['simulated_hours']:.1f} simulated hours | "
                    f"{row['value']:.1f} simulated seconds and {row['faults_per_cpu_s']:.1f} faults for a CPU second; "
                    f"{row['cpu_s_per_seed']:.1f} CPU seconds a seed |"
                )
            elif row["name"].startswith("faults."):
                where = "one process" if ".one." in row["name"] else f"Spark, {row['parts']} parts"
                lines.append(
                    f"| all checkers, {row['operations']:,} operations, {where} | {row['value']:,.0f} operations/s "
                    f"({row['wall_s']:.0f} s, {row['cpu_s']:.0f} CPU s), {row['peak_gib']:.1f} GiB |"
                )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1-40")
    parser.add_argument("--operations", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--spark-operations", type=int, nargs="*", default=[])
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--label", default="barnabas")
    parser.add_argument("--out")
    options = parser.parse_args()
    results = Results(options.out, options.label)
    seeds = parse_seeds(options.seeds) if options.seeds else []
    if seeds:
        simulate(seeds, results)
    for operations in options.operations:
        check(operations, results, ["--one"], "one")
    for operations in options.spark_operations:
        check(operations, results, ["--master", options.master], "spark")


if __name__ == "__main__":
    main()
