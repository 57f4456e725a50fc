"""Which tests pass by which line, and which of them are tried against a mutation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from tests.mutants.mutations import Mutation

SEED_TESTS = "tests/mutants/seeds.py"
SECONDS_FOR_ONE = 20.0
"""Tests that need longer together are not all tried; the quick ones, and those that are about the file, are."""


@dataclass
class Passing:
    """Which tests pass by which line."""

    seconds: dict[str, float] = field(default_factory=dict)
    """CPU time by test."""
    tests: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """By file and line."""
    failed: list[str] = field(default_factory=list)

    @cached_property
    def lines(self) -> dict[str, Counter[str]]:
        """How many lines of each file each test passes by."""
        found: dict[str, Counter[str]] = {}
        for file, lines in self.tests.items():
            for test in chain.from_iterable(lines.values()):
                found.setdefault(test, Counter())[file] += 1
        return found

    def cost(self, test: str, file: str) -> float:
        """CPU time of a test, divided by the part of its lines that are in this file: a model of one file is worth its
        time, a story of a whole cluster is one of many."""
        lines = self.lines[test]
        return self.seconds[test] * lines.total() / lines[file]

    def tests_for(self, mutation: Mutation, *, seeds: bool = False) -> list[str]:
        """Tests that run the mutated line, the cheapest first, up to SECONDS_FOR_ONE; or all seeds that run it."""
        file = str(mutation.path)
        passing = self.tests.get(file, {}).get(mutation.line, [])
        passing = [test for test in passing if test.startswith(SEED_TESTS) == seeds]
        chosen: list[str] = []
        seconds = 0.0
        for test in sorted(passing, key=lambda test: (self.cost(test, file), test)):
            seconds += 0.0 if seeds else self.seconds[test]
            if chosen and seconds > SECONDS_FOR_ONE:
                break
            chosen.append(test)
        return chosen

    def __contains__(self, test: str) -> bool:
        return test in self.seconds

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Passing:
        """From JSON, whose keys are texts. Raises KeyError, ValueError."""
        tests = {file: {int(line): tests for line, tests in lines.items()} for file, lines in content["tests"].items()}
        return cls(content["seconds"], tests, content["failed"])

    def only(self, tests: Collection[str]) -> Passing:
        """Nothing about the others."""
        lines = {
            file: {line: [test for test in found if test in tests] for line, found in lines.items()}
            for file, lines in self.tests.items()
        }
        return Passing({test: self.seconds[test] for test in tests}, lines, [])

    def joined(self, other: Passing) -> Passing:
        """Both, of different tests."""
        joined = {file: dict(lines) for file, lines in self.tests.items()}
        for file, lines in other.tests.items():
            known = joined.setdefault(file, {})
            for line, tests in lines.items():
                known[line] = sorted({*known.get(line, ()), *tests})
        return Passing({**self.seconds, **other.seconds}, joined, [*self.failed, *other.failed])
