"""Results of tests: judged by the data files, printed, and kept in results.tsv."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

FILE = "results.tsv"
_LONGEST_REASON = 600


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    KNOWN = "KNOWN"
    """Failed, as known.tsv says."""
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class Result:
    verdict: Verdict
    test: str
    """Class.method, or Class if all of it was skipped."""
    invocation: str
    """Which of its runs: number and parameters."""
    seconds: float
    reason: str

    @property
    def class_name(self) -> str:
        return self.test.partition(".")[0]

    @property
    def kind(self) -> str:
        """The first word of the reason: why it was skipped, or is known to fail."""
        return self.reason.partition(":")[0]

    def line(self) -> str:
        return "\t".join([self.verdict, self.test, self.invocation, f"{self.seconds:.1f}", self.reason])

    @classmethod
    def parse(cls, line: str) -> Result:
        verdict, test, invocation, seconds, reason = line.rstrip("\n").split("\t")
        return cls(Verdict(verdict), test, invocation, float(seconds), reason)


def judge(event: Mapping[str, Any], known: Mapping[str, str]) -> Result | None:
    """The result that an event of the runner means; None if it is none."""
    test, reason = str(event["test"]), _one_line(str(event["reason"]))
    if event["outcome"] == "skipped":
        if reason == "COMBINED":
            return None
        verdict = Verdict.SKIP
        if reason.endswith("is @Disabled"):
            reason = "DISABLED: by Kafka"
    elif event["outcome"] == "passed":
        verdict = Verdict.PASS
    elif test in known:
        verdict, reason = Verdict.KNOWN, f"{known[test]} | {reason}"
    else:
        verdict = Verdict.FAIL
    invocation = _one_line(re.sub(r"^\w+(\([^)]*\))? ?", "", str(event["invocation"])))
    return Result(verdict, test, invocation, float(event["seconds"]), reason[:_LONGEST_REASON])


def summary(results: Iterable[Result]) -> str:
    counts = Counter(result.verdict for result in results)
    text = f"{counts[Verdict.PASS]} passed, {counts[Verdict.FAIL]} failed, {counts[Verdict.SKIP]} skipped"
    return text + (f", {counts[Verdict.KNOWN]} failed as known.tsv says" if counts[Verdict.KNOWN] else "")


def read(paths: Iterable[Path]) -> list[Result]:
    """The results of several runs; the last one of each test counts."""
    last: dict[tuple[str, str, int], Result] = {}
    for path in paths:
        same: Counter[tuple[str, str]] = Counter()
        for line in path.read_text().splitlines():
            result = Result.parse(line)
            # Overloaded methods have the same name, and may have the same parameters.
            name = result.test, result.invocation
            last[*name, same[name]] = result
            same[name] += 1
    return list(last.values())


def judged_again(result: Result, known: Mapping[str, str]) -> Result:
    """An older failure by what is known now."""
    if result.verdict is Verdict.FAIL and result.test in known:
        return replace(result, verdict=Verdict.KNOWN, reason=f"{known[result.test]} | {result.reason}")
    return result


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
