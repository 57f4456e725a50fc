"""Runs Apache Kafka's own integration tests on clusters of ours, or on Kafka itself.

    make kafka-tests                                     all classes of classes.tsv
    make kafka-tests ARGS=--selection                    a part that covers widely, in about two minutes
    make kafka-tests ARGS='PlaintextConsumer'            classes by regular expression
    make kafka-tests ARGS="Transactions --method Fenc"   and methods
    make kafka-tests ARGS='TopicCommand --on-kafka'      the control: brokers of Kafka's, by its own test kit

Each line is PASS, FAIL, KNOWN (failed as known.tsv says) or SKIP with its reason. The exit code is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.kafka import java, lists, results
from tests.kafka.results import Result, Verdict

NODES_NEED_BYTES = 2 << 30
"""Free bytes that /dev/shm needs for the nodes' files; otherwise a disk is used, which is slower."""


def main() -> int:
    arguments = _arguments()
    missing = (java.CACHE / "missing").read_text().splitlines() if (java.CACHE / "missing").exists() else []
    if missing or not (java.JARS / "complete").exists():
        print(f"Kafka's tests cannot run: {'; '.join(missing) or 'tests/kafka/install.sh has not fetched its jars'}")
        impossible = all(line.split("\t")[1] == "impossible" for line in missing) and bool(missing)
        return 0 if impossible and arguments.if_possible else 1
    out = _out_folder(arguments.out)
    found = [each.name for each in lists.classes() if re.search(arguments.classes, each.name)]
    if arguments.selection:
        found = [each.name for each in lists.classes() if each.selection and each.name in found]
    if not found:
        print(f"no class of classes.tsv fits {arguments.classes!r}")
        return 2
    failed = _run_classes(arguments, found, out)
    if failed and arguments.again:
        # Kafka's tests wait 15 s for most things: what fails beside others on a busy machine may pass alone.
        print(f"once more, alone: {', '.join(failed)}")
        arguments.selection, arguments.method = False, f"^({'|'.join(map(re.escape, failed))})$"
        classes = {test.partition(".")[0] for test in failed}
        failed = _run_classes(arguments, [each for each in found if each.rpartition(".")[2] in classes], out / "again")
    print(f"traces and logs: {out}")
    return 1 if failed else 0


def _run_classes(arguments: argparse.Namespace, classes: list[str], out: Path) -> list[str]:
    """Run tests of these classes. Returns the tests that failed, and "java" if it ended early."""
    (out / "tmp").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-tests-", dir=_nodes_parent(out)) as nodes:
        _write_plan(arguments, classes, out, Path(nodes))
        failed = _run(arguments, out)
        _keep_logs(Path(nodes), out / "nodes")
    return failed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make kafka-tests ARGS=", description="Apache Kafka's own integration tests.")
    parser.add_argument("classes", nargs="?", default="", help="a regular expression for names of classes")
    parser.add_argument("--method", default="", help="a regular expression for Class.method")
    parser.add_argument("--selection", action="store_true", help="only the methods that classes.tsv selects")
    parser.add_argument("--on-kafka", action="store_true", help="Kafka's own brokers instead of ours")
    parser.add_argument("--no-gaps", action="store_true", help="run also what gaps.tsv leaves out")
    parser.add_argument("--again", action="store_true", help="run tests that failed once more, alone")
    parser.add_argument("--repeat", type=int, default=1, help="run each @ClusterTest so many times")
    parser.add_argument("--checkout", type=Path, default=java.ROOT, help="whose nodes to run, with .venv")
    parser.add_argument("--out", type=Path, help="a folder for results, traces and logs")
    parser.add_argument("--if-possible", action="store_true", help="succeed where no JDK can be had")
    return parser.parse_args()


def _out_folder(wanted: Path | None) -> Path:
    out = wanted or java.CACHE / "runs" / datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    (out / "tmp").mkdir(parents=True, exist_ok=True)
    return out.resolve()


def _nodes_parent(out: Path) -> Path:
    memory = Path("/dev/shm")
    return memory if memory.exists() and shutil.disk_usage(memory).free > NODES_NEED_BYTES else out


def _write_plan(arguments: argparse.Namespace, classes: list[str], out: Path, nodes: Path) -> None:
    methods = f"(?=.*({arguments.method}))"
    if arguments.selection:
        methods += f"(?={lists.selection_pattern()})"
    gaps = [] if arguments.no_gaps else lists.gaps()
    checkout = arguments.checkout.resolve()
    plan = {
        "classes": classes,
        "methods": f"^{methods}(?!({'|'.join(map(re.escape, lists.never()))})$)",
        "gaps": [{"by": gap.by, "pattern": gap.pattern, "reason": gap.reason} for gap in gaps],
        "out": str(out),
        "checkout": str(checkout),
        "node_server": [
            *("env", f"PYTHONPATH={checkout}:{java.ROOT}"),
            *(str(checkout / ".venv/bin/python"), "-m", "tests.kafka.node_server", str(nodes)),
        ],
    }
    (out / "plan.json").write_text(json.dumps(plan, indent=1))


def _run(arguments: argparse.Namespace, out: Path) -> list[str]:
    parts = java.PARTS[:1] if arguments.on_kafka else java.PARTS
    known = {} if arguments.on_kafka else lists.known()
    found: list[Result] = []
    with (
        (out / "stderr.txt").open("a") as errors,
        subprocess.Popen(
            java.run_command(out, parts, arguments.repeat), stdout=subprocess.PIPE, stderr=errors, text=True, cwd=out
        ) as process,
    ):
        for event in _events(process):
            result = results.judge(event, known)
            if result is None:
                continue
            found.append(result)
            print(result.line(), flush=True)
            _keep(result, event["trace"], out)
    shutil.rmtree(out / "tmp", ignore_errors=True)
    for result in found:
        if result.verdict is Verdict.PASS and result.test in known:
            print(f"{result.test} passed: does known.tsv still need its line?")
    print(results.summary(found))
    failed = list(dict.fromkeys(result.test for result in found if result.verdict is Verdict.FAIL))
    if process.returncode:
        print(f"java ended with exit code {process.returncode}; stderr.txt has its last words")
        failed = failed or ["java"]
    return failed


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            yield json.loads(line)
        except ValueError:
            print(line, end="", file=sys.stderr)


def _keep(result: Result, trace: str, out: Path) -> None:
    with (out / results.FILE).open("a") as file:
        file.write(result.line() + "\n")
    if trace:
        with (out / "failures.txt").open("a") as file:
            file.write(f"=== {result.test} {result.invocation}\n{trace}\n")


def _keep_logs(nodes: Path, target: Path) -> None:
    """Logs and settings of the nodes whose test failed."""
    if any(nodes.iterdir()):
        shutil.copytree(nodes, target, dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
