"""Writes docs/features.md from docs/features.tsv and from the results that test runs left in .cache/features.

A row works only if a test marked with it ran and passed, and none that is marked with it failed; docs/partly.tsv says
what is missing of rows whose tests do not show all of them. Newer results of a test replace older ones.
Usage: `python docs/make_features.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / ".cache" / "features"


def collect() -> dict[str, dict[str, str]]:
    """Row id to {test: outcome}."""
    outcomes: dict[str, dict[str, str]] = {}
    for path in sorted(RESULTS.glob("*.json"), key=lambda path: path.stat().st_mtime):
        for test, result in json.loads(path.read_text()).items():
            for row in result["rows"]:
                outcomes.setdefault(row, {})[test] = result["outcome"]
    return outcomes


def missing_parts() -> dict[str, str]:
    """Row id to what is missing of it, where its tests do not show all of it."""
    lines = (DOCS / "partly.tsv").read_text().splitlines()[1:]
    return dict(line.split("\t") for line in lines)


def state(tests: dict[str, str], missing: str | None) -> str:
    if missing is not None and "failed" not in tests.values():
        return f"partly: {missing}"
    if not tests:
        return "not yet"
    if "failed" in tests.values():
        return "**fails**"
    return "works" if "passed" in tests.values() else "not run"


def short_names(tests: dict[str, str]) -> str:
    files: dict[str, list[str]] = {}
    for test in sorted(tests):
        file, _, name = test.partition("::")
        files.setdefault(file.removeprefix("tests/"), []).append(name)
    shown = [f"`{file}` ({len(names)})" for file, names in files.items()]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more files" if len(shown) > 4 else "")


def main() -> None:
    outcomes = collect()
    missing = missing_parts()
    lines = [
        "# What works",
        "",
        "Made by `make features` from marks and results of the tests: a row works only if a test marked with it",
        "ran and passed. Where we differ from Apache Kafka 4.3 on purpose: [differences.md](differences.md).",
        "",
    ]
    group = None
    works = total = 0
    known = set()
    for line in (DOCS / "features.tsv").read_text().splitlines()[1:]:
        row, row_group, name = line.split("\t")
        known.add(row)
        if row_group != group:
            lines += ["", f"## {row_group}", ""]
            lines += ["| row | feature | state | shown by (tests) |", "|---|---|---|---|"]
            group = row_group
        tests = outcomes.get(row, {})
        total += 1
        row_state = state(tests, missing.get(row))
        works += row_state == "works"
        lines.append(f"| {row} | {name} | {row_state} | {short_names(tests)} |")
    unknown = sorted(set(outcomes) - known)
    if unknown:
        raise SystemExit(f"tests are marked with rows that docs/features.tsv does not have: {', '.join(unknown)}")
    lines.insert(4, f"{works} of {total} rows work; others partly.")
    (DOCS / "features.md").write_text("\n".join(lines) + "\n")
    print(f"docs/features.md: {works} of {total} rows work")


if __name__ == "__main__":
    main()
