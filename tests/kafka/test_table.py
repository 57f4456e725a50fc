"""The table of results keeps the rows of classes that did not run."""

from __future__ import annotations

from tests.kafka.results import Result, Verdict
from tests.kafka.table import rows_of, table

BEFORE = """
| class | passed | failed | known | skipped | seconds | skipped for |
|---|---|---|---|---|---|---|
| TopicCommandTest | 5 | 1 | 0 | 3 | 40 | QUOTA × 2, INTERNALS: BrokerServer.metrics() × 1 |
| ShareConsumerTest | 0 | 0 | 0 | 1 | 0 | SHARE × 1 |
| **all** | 5 | 1 | 0 | 4 | 40 | QUOTA × 2, INTERNALS × 1, SHARE × 1 |

Failed:

- TopicCommandTest.testOne [1]: too late
"""


def test_rows_of_classes_that_did_not_run_stay() -> None:
    passed = Result(Verdict.PASS, "ShareConsumerTest.testPoll", "[1]", 2.0, "")
    lines = list(table([passed], BEFORE))
    assert "| TopicCommandTest | 5 | 1 | 0 | 3 | 40 | QUOTA × 2, INTERNALS: BrokerServer.metrics() × 1 |" in lines
    assert "| ShareConsumerTest | 1 | 0 | 0 | 0 | 2 |  |" in lines
    assert "| **all** | 6 | 1 | 0 | 3 | 42 | QUOTA × 2, INTERNALS × 1 |" in lines
    assert lines[-1] == "- TopicCommandTest.testOne [1]: too late"


def test_a_failure_goes_when_its_class_passes() -> None:
    passed = Result(Verdict.PASS, "TopicCommandTest.testOne", "[1]", 2.0, "")
    lines = list(table([passed], BEFORE))
    assert "No test failed." in lines and not any(line.startswith("- ") for line in lines)
    assert rows_of("\n".join(lines))["TopicCommandTest"].counts[Verdict.PASS] == 1
