"""Histories of applications for the tests of the judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.check.judge import Finding, Observed, judge
from barnabas.check.promises import Kind
from barnabas.check.records import Input, Output


def inputs(count: int, keys: int = 2, partitions: int = 1) -> list[Input]:
    """Inputs 1, 2, …, one each second; keys in turn, each in one partition."""
    made = []
    offsets = [0] * partitions
    for number in range(count):
        key = number % keys
        partition = key % partitions
        made.append(Input(str(number + 1), f"k{key}", partition, offsets[partition], float(number), (str(number + 1),)))
        offsets[partition] += 1
    return made


def outputs(ids: Iterable[str | int], place: str = "output-0", at_s: float | None = None) -> list[Output]:
    """Outputs in this order, each half a second after its input, or all at `at_s`."""
    made = []
    for position, each in enumerate(ids):
        seen = float(each) - 0.5 if at_s is None else at_s
        made.append(Output(str(each), place, position, seen))
    return made


def kinds(findings: Sequence[Finding]) -> list[Kind]:
    return [each.kind for each in findings]


def judged(given: Sequence[Input], made: Sequence[Output], **more: object) -> list[Finding]:
    return judge(Observed(given, made, **{"end_s": 1000.0, **more}))  # type: ignore[arg-type]  # fields of Observed
