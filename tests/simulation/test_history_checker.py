"""Compares acknowledgements with the log: each broken promise, and its legal neighbour."""

from __future__ import annotations

import pytest

from barnabas.client.producer import Acked, Failed, Outcome, Unknown
from simulation.findings import Findings
from simulation.invariants.places import PartitionKey
from simulation.workload import Sent, check_history

KEY = PartitionKey("topic", 0)
ERROR = Exception("something went wrong")


def sent(value: str, outcome: Outcome, sequence: int = 0, producer: str = "p") -> Sent:
    return Sent(producer, sequence, value.encode(), outcome)


def check(records: list[Sent], log: list[tuple[int, bytes | None]]) -> list[str]:
    findings = Findings(lambda: 0.0)
    check_history(findings, KEY, records, log)
    return findings.broken


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize(
    ("records", "log", "promise"),
    [
        ([sent("a", Acked(0, 0, 0))], [], "is lost"),
        ([sent("a", Acked(0, 0, 0))], [(0, b"a"), (1, b"a")], "is there twice"),
        ([sent("a", Unknown(ERROR))], [(0, b"a"), (4, b"a")], "is there twice"),
        ([sent("a", Acked(0, 3, 0))], [(4, b"a")], "was acked at 3, and is at 4"),
        ([sent("a", Failed(ERROR))], [(0, b"a")], "its producer got"),
        ([], [(0, b"a")], "nobody sent"),
        (
            [sent("a", Acked(0, 1, 0), 0), sent("b", Acked(0, 0, 0), 1)],
            [(0, b"b"), (1, b"a")],
            "was sent after",
        ),
        (
            [sent("a", Unknown(ERROR), 0), sent("b", Acked(0, 0, 0), 1)],
            [(0, b"b"), (1, b"a")],
            "was sent after",
        ),
    ],
)
def test_broken_promises_are_found(records: list[Sent], log: list[tuple[int, bytes | None]], promise: str) -> None:
    broken = check(records, log)
    assert len(broken) == 1 and promise in broken[0]


@pytest.mark.parametrize(
    ("records", "log"),
    [
        ([sent("a", Acked(0, 0, 0))], [(0, b"a")]),
        ([sent("a", Acked(0, -1, 0))], [(7, b"a")]),  # acknowledged as a duplicate whose offset was forgotten
        ([sent("a", Unknown(ERROR))], []),
        ([sent("a", Unknown(ERROR))], [(0, b"a")]),
        ([sent("a", Failed(ERROR)), sent("b", Acked(0, 5, 0), 1)], [(5, b"b")]),  # a gap is no loss
        # Order is promised within one producer only.
        (
            [sent("a", Acked(0, 1, 0), 0, "p"), sent("b", Acked(0, 0, 0), 1, "q")],
            [(0, b"b"), (1, b"a")],
        ),
    ],
)
def test_legal_histories_pass(records: list[Sent], log: list[tuple[int, bytes | None]]) -> None:
    assert check(records, log) == []
