"""Writes the results of runs into docs/kafka-tests.md; of a test that ran several times the last result counts.

Usage: `.venv/bin/python -m tests.kafka.table RESULTS.tsv...`, the oldest run first. Classes that did not run keep their
rows.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka import lists, results
from tests.kafka.results import Result, Verdict

PAGE = lists.FOLDER.parent.parent / "docs" / "kafka-tests.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
_COUNTED = (Verdict.PASS, Verdict.FAIL, Verdict.KNOWN, Verdict.SKIP)
_ROW = re.compile(r"\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (.*) ?\|")
_REASON = re.compile(r"(.+?) × (\d+)(?:, |$)")


@dataclass(slots=True)
class Row:
    """The results of one class, or of several."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    """Reasons of skipped tests."""

    @classmethod
    def of(cls, found: Sequence[Result]) -> Row:
        return cls(
            Counter(result.verdict for result in found),
            sum(result.seconds for result in found),
            Counter(_why(result) for result in found if result.verdict is Verdict.SKIP),
        )

    def add(self, other: Row) -> None:
        """Count another row; of reasons only the kinds."""
        self.counts += other.counts
        self.seconds += other.seconds
        for reason, count in other.reasons.items():
            self.reasons[reason.partition(":")[0]] += count

    def line(self, name: str) -> str:
        why = ", ".join(f"{reason} × {count}" for reason, count in self.reasons.most_common())
        numbers = [self.counts[verdict] for verdict in _COUNTED]
        return f"| {name} | {' | '.join(map(str, numbers))} | {self.seconds:.0f} | {why} |"


def rows_of(page: str) -> dict[str, Row]:
    """The rows of a page, by class."""
    rows: dict[str, Row] = {}
    for match in filter(None, map(_ROW.fullmatch, page.splitlines())):
        numbers = dict(zip(_COUNTED, map(int, match.groups()[1:5]), strict=True))
        reasons = {reason: int(count) for reason, count in _REASON.findall(match[7].strip())}
        rows[match[1]] = Row(Counter(numbers), float(match[6]), Counter(reasons))
    return rows


def failures_of(page: str) -> dict[str, list[str]]:
    """The lines of a page about failed tests, by class."""
    failures: dict[str, list[str]] = {}
    for line in page.splitlines():
        if line.startswith("- "):
            failures.setdefault(line[2:].partition(".")[0], []).append(line)
    return failures


def table(found: Sequence[Result], before: str) -> Iterator[str]:
    """Lines of Markdown: a row for each class, in the order in which they run, then what failed. `before`: the part of
    the page that these lines replace."""
    rows, failures = rows_of(before), failures_of(before)
    for name in {result.class_name for result in found}:
        of_class = [result for result in found if result.class_name == name]
        rows[name] = Row.of(of_class)
        failures[name] = [_failure(result) for result in of_class if result.verdict is Verdict.FAIL]
    yield "| class | passed | failed | known | skipped | seconds | skipped for |"
    yield "|---|---|---|---|---|---|---|"
    whole = Row()
    names = [each for each in dict.fromkeys(each.simple_name for each in lists.classes()) if each in rows]
    for name in names:
        whole.add(rows[name])
        yield rows[name].line(name)
    yield whole.line("**all**")
    yield ""
    failed = [line for name in names for line in failures.get(name, ())]
    yield "Failed:" if failed else "No test failed."
    yield ""
    yield from failed


def _failure(result: Result) -> str:
    return f"- {result.test} {result.invocation}: {_plain(result.reason)[:200]}"


def _why(result: Result) -> str:
    """The kind, and of calls into Kafka's objects which one."""
    return _plain(result.reason if result.kind == "INTERNALS" else result.kind)


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("<", "‹").replace(">", "›")


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    listed = {each.simple_name for each in lists.classes()}
    known = lists.known()
    last = results.read([Path(path) for path in sys.argv[1:]])
    found = [results.judged_again(each, known) for each in last if each.class_name in listed]
    PAGE.write_text("\n".join([before + BEGIN, "", *table(found, old), "", END + after]))


if __name__ == "__main__":
    main()
