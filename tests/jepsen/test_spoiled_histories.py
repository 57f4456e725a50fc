"""The checkers find random lies in long legal histories, and nothing in the histories as they were."""

from __future__ import annotations

import copy
import random

import pytest

from checkers.all_checkers import of_every_run, standard
from checkers.verdict import Verdict
from histories.history import History
from histories.synthetic import LegalOptions, legal_history
from operations import Operation

pytestmark = pytest.mark.feature("FI-11")

SEEDS = range(8)


def verdicts_of(operations: list[Operation], seed: int) -> dict[str, Verdict]:
    run = {"workload": "queue", "options": {"subscribe": bool(seed % 2)}}
    history = History.of(operations, run)
    return {checker.name: checker.check(history) for checker in (*standard("queue"), *of_every_run(run))}


def legal(seed: int) -> list[Operation]:
    options = LegalOptions(operations=120, keys=5, transactions=0.6, unknowns=0.15, subscribe=bool(seed % 2))
    return legal_history(options, seed)


def spoiled(operations: list[Operation], chance: random.Random) -> list[Operation]:
    """A few random lies in the records that were sent and polled."""
    operations = copy.deepcopy(operations)
    for _ in range(chance.randint(1, 6)):
        done = [each for each in operations if each.type != "invoke" and each.f in ("send", "poll", "txn")]
        operation = chance.choice(done)
        lie = chance.randrange(5)
        if lie == 0:
            object.__setattr__(operation, "type", chance.choice(["ok", "fail", "info"]))
            continue
        for micro in operation.value or ():
            if micro[0] == "send" and isinstance(micro[2], list) and lie in (1, 2):
                micro[2] = [chance.randint(0, 60), micro[2][1]]
            elif micro[0] == "poll" and micro[1]:
                records = chance.choice(list(micro[1].values()))
                if lie == 1 and records:
                    del records[chance.randrange(len(records))]
                elif lie == 2 and records:
                    records.append(chance.choice(records))
                elif lie == 3 and records:
                    chance.shuffle(records)
                elif lie == 4 and records:
                    chance.choice(records)[1] += chance.choice([1, 1000])
    ranges = [range_ for operation in operations for range_ in operation.note.get("read_epochs", ())]
    for range_ in chance.sample(ranges, len(ranges) // 10):
        range_[3] = chance.choice([range_[3] + 1, 0])
    return operations


@pytest.mark.parametrize("seed", SEEDS)
def test_a_legal_history_is_valid(seed: int) -> None:
    assert verdicts_of(legal(seed), seed)["offsets"].valid == "true"


def test_lies_of_every_kind_are_found() -> None:
    found = set()
    for seed in SEEDS:
        verdicts = verdicts_of(spoiled(legal(seed), random.Random(seed)), seed)
        found |= {name for name, verdict in verdicts.items() if verdict.valid == "false"}
    assert {"offsets", "reads", "poll order", "send order", "cycles in time", "epochs"} <= found
