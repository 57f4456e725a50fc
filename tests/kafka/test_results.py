"""Results of a run, and its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kafka import results, table
from tests.kafka.results import Result, Verdict

KNOWN = {"TopicCommandTest.testWords": "TEXT: of a refusal"}


def event(outcome: str, **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, "test": "TopicCommandTest.testOne", "invocation": "testOne() [1] isolated"} | {
        "seconds": 1.25,
        "reason": "",
        **more,
    }


def test_a_test_that_passed() -> None:
    result = results.judge(event("passed"), KNOWN)
    assert result == Result(Verdict.PASS, "TopicCommandTest.testOne", "[1] isolated", 1.25, "")


def test_a_failure_that_is_not_listed_is_a_failure() -> None:
    result = results.judge(event("failed", reason="expected: 1\n\tbut was: 2"), KNOWN)
    assert result is not None
    assert (result.verdict, result.reason) == (Verdict.FAIL, "expected: 1 but was: 2")


def test_a_failure_that_is_listed_gives_its_reason() -> None:
    result = results.judge(event("failed", test="TopicCommandTest.testWords", reason="other words"), KNOWN)
    assert result is not None
    assert (result.verdict, result.kind) == (Verdict.KNOWN, "TEXT")
    assert result.reason == "TEXT: of a refusal | other words"


def test_a_listed_test_that_passes_has_passed() -> None:
    result = results.judge(event("passed", test="TopicCommandTest.testWords"), KNOWN)
    assert result is not None and result.verdict is Verdict.PASS


def test_combined_nodes_are_not_counted() -> None:
    assert results.judge(event("skipped", reason="COMBINED"), KNOWN) is None


def test_a_skipped_test_says_why() -> None:
    result = results.judge(event("skipped", reason="SHARE: share groups"), KNOWN)
    assert result is not None and (result.verdict, result.kind) == (Verdict.SKIP, "SHARE")


def test_the_last_result_of_a_test_counts(tmp_path: Path) -> None:
    first = Result(Verdict.FAIL, "TopicCommandTest.testOne", "[1]", 2.0, "slow")
    other = Result(Verdict.PASS, "TopicCommandTest.testOne", "[2]", 1.0, "")
    again = Result(Verdict.PASS, "TopicCommandTest.testOne", "[1]", 1.0, "")
    (tmp_path / "a").write_text(f"{first.line()}\n{other.line()}\n")
    (tmp_path / "b").write_text(f"{again.line()}\n")
    assert results.read([tmp_path / "a", tmp_path / "b"]) == [again, other]


def test_overloaded_methods_are_several_tests(tmp_path: Path) -> None:
    one = Result(Verdict.PASS, "ProducerTest.testSend", ".protocol=classic", 1.0, "")
    other = Result(Verdict.FAIL, "ProducerTest.testSend", ".protocol=classic", 2.0, "late")
    (tmp_path / "a").write_text(f"{one.line()}\n{other.line()}\n")
    assert results.read([tmp_path / "a"]) == [one, other]


def test_an_older_failure_is_judged_by_what_is_known_now() -> None:
    old = Result(Verdict.FAIL, "TopicCommandTest.testWords", "", 1.0, "other words")
    assert results.judged_again(old, KNOWN).reason == "TEXT: of a refusal | other words"
    assert results.judged_again(old, {}) == old


def test_a_test_that_kafka_disabled_is_marked() -> None:
    result = results.judge(event("skipped", reason="void a.B.c() is @Disabled"), KNOWN)
    assert result is not None and result.reason == "DISABLED: by Kafka"


@pytest.mark.parametrize(("verdict", "ending"), [(Verdict.KNOWN, ", 1 failed as known.tsv says"), (Verdict.SKIP, "")])
def test_the_summary_counts(verdict: Verdict, ending: str) -> None:
    found = [Result(Verdict.PASS, "A.b", "", 1.0, ""), Result(verdict, "A.c", "", 1.0, "TEXT: x")]
    skipped = int(verdict is Verdict.SKIP)
    assert results.summary(found) == f"1 passed, 0 failed, {skipped} skipped{ending}"


def test_the_table_counts_by_class_and_names_what_failed() -> None:
    found = [
        Result(Verdict.PASS, "TopicCommandTest.testOne", "[1]", 1.0, ""),
        Result(Verdict.FAIL, "TopicCommandTest.testTwo", "[1]", 2.4, "a | b"),
        Result(Verdict.SKIP, "TopicCommandTest.testThree", "", 0.0, "SHARE: share groups"),
    ]
    lines = list(table.table(found, ""))
    assert "| TopicCommandTest | 1 | 1 | 0 | 1 | 3 | SHARE × 1 |" in lines
    assert "- TopicCommandTest.testTwo [1]: a / b" in lines
