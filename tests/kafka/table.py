"""Writes the results of runs into docs/kafka-tests.md; of a test that ran several times the last result counts.

Usage: `.venv/bin/python -m tests.kafka.table RESULTS.tsv...`, the oldest run first.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.kafka import lists, results
from tests.kafka.results import Result, Verdict

PAGE = lists.FOLDER.parent.parent / "docs" / "kafka-tests.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def table(found: Sequence[Result]) -> Iterator[str]:
    """Lines of Markdown: a row for each class, in the order in which they run, then what failed."""
    yield "| class | passed | failed | known | skipped | seconds | skipped for |"
    yield "|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(each.simple_name for each in lists.classes()):
        of_class = [result for result in found if result.class_name == name]
        if of_class:
            yield _row(name, of_class)
    yield _row("**all**", [replace(each, reason=each.kind) for each in found])
    yield ""
    failed = [result for result in found if result.verdict is Verdict.FAIL]
    yield "No test failed." if not failed else "Failed:"
    yield ""
    yield from (f"- {result.test} {result.invocation}: {_plain(result.reason)[:200]}" for result in failed)


def _row(name: str, of_class: Sequence[Result]) -> str:
    counts = Counter(result.verdict for result in of_class)
    reasons = Counter(_why(result) for result in of_class if result.verdict is Verdict.SKIP)
    why = ", ".join(f"{reason} × {count}" for reason, count in reasons.most_common())
    seconds = sum(result.seconds for result in of_class)
    numbers = [counts[verdict] for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.KNOWN, Verdict.SKIP)]
    return f"| {name} | {' | '.join(map(str, numbers))} | {seconds:.0f} | {why} |"


def _why(result: Result) -> str:
    """The kind, and of calls into Kafka's objects which one."""
    return _plain(result.reason if result.kind == "INTERNALS" else result.kind)


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("<", "‹").replace(">", "›")


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    listed = {each.simple_name for each in lists.classes()}
    known = lists.known()
    last = results.read([Path(path) for path in sys.argv[1:]])
    found = [results.judged_again(each, known) for each in last if each.class_name in listed]
    PAGE.write_text("\n".join([before + BEGIN, "", *table(found), "", END + after]))


if __name__ == "__main__":
    main()
