"""A history that is checked in parts, by key, gets the verdict that it gets as a whole."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from checkers.all_checkers import of_every_run, standard
from checkers.gathering import KEPT
from checkers.split import (
    check_part,
    check_whole,
    checkers_by_key,
    from_json,
    in_usual_order,
    part_of_views,
    to_json,
    together,
)
from checkers.verdict import Finding, Verdict
from histories.columns import read_whole
from histories.history import History
from histories.parquet import MOPS, OPS, write_history
from histories.synthetic import LegalOptions, Story, legal_history
from histories.views import Views
from operations import Operation

pytestmark = pytest.mark.feature("FI-11", "PL-05")

SHARDS = 3


def whole(history: History) -> dict[str, Verdict]:
    checkers = (*standard(history.run["workload"]), *of_every_run(history.run))
    return {checker.name: checker.check(history) for checker in checkers}


def split(history: History, directory: Path) -> dict[str, Verdict]:
    """As the pipeline does it in Spark, in a few lines of plain Python."""
    directory.mkdir(exist_ok=True)
    write_history(history, directory)
    lines, micro = pq.read_table(directory / OPS), pq.read_table(directory / MOPS)
    rows = lines.to_pylist()
    invocation = {row["i"]: row["invocation"] for row in rows}
    type_ = {row["i"]: row["type"] for row in rows}
    carried = micro.to_pylist()
    read = {(row["key"], row["value"]) for row in carried if row["kind"] == "poll" and type_[row["i"]] == "ok"}
    proven = {
        row["i"]
        for row in carried
        if row["kind"] == "send" and type_[row["i"]] in ("info", "invoke") and (row["key"], row["value"]) in read
    }
    everywhere = {row["i"] for row in rows if row["f"] not in ("send", "poll", "txn")}
    found: dict[str, list[Verdict]] = {checker.name: [] for checker in checkers_by_key(history.run["workload"])}
    for shard in range(SHARDS):
        shown = {row["i"] for row in carried if row["key"] % SHARDS == shard}
        wanted = everywhere | shown | {invocation[i] for i in shown if invocation[i] is not None}
        part = lines.filter(pc.is_in(lines.column("i"), value_set=pa.array(sorted(wanted), pa.int64())))
        part = part.append_column("proven", pa.array([i in proven for i in part.column("i").to_pylist()], pa.bool_()))
        mine = pa.array([row["key"] % SHARDS == shard for row in carried], pa.bool_())
        views = part_of_views(history.views, shard, SHARDS)
        for name, verdict in check_part(part, micro.filter(mine), history.run, views).items():
            found[name].append(from_json(to_json(verdict)))
    rest = check_whole(read_whole(directory, history.run, history.views))
    return in_usual_order(history.run, {**{name: together(parts) for name, parts in found.items()}, **rest})


def numbers(verdict: Verdict) -> Mapping[str, Any]:
    return {name: value for name, value in verdict.figures.items() if isinstance(value, int) and value}


def all_of(verdict: Verdict) -> list[Finding]:
    found = [Finding(each.anomaly, each.where, list(map(int, each.operations)), each.told, each.legal)
             for each in verdict.findings]  # fmt: skip
    return sorted(found, key=lambda each: (each.anomaly, each.legal, each.operations, each.told))


def assert_equal(history: History, directory: Path) -> dict[str, Verdict]:
    one, parts = whole(history), split(history, directory)
    assert list(one) == list(parts)
    for name in one:
        assert (parts[name].valid, parts[name].unknown_because) == (one[name].valid, one[name].unknown_because), name
        assert numbers(parts[name]) == numbers(one[name]), name
        if len(one[name].findings) < KEPT:
            assert all_of(parts[name]) == all_of(one[name]), name
    return one


def spoiled(operations: list[Operation], chance: random.Random) -> list[Operation]:
    """A few random lies in what was sent and polled."""
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


@pytest.mark.parametrize("seed", range(8))
def test_parts_and_whole_agree_on_histories_with_lies_in_them(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    options = LegalOptions(operations=120, keys=5, transactions=0.6, unknowns=0.15, subscribe=bool(seed % 2))
    operations = legal_history(options, seed)
    run = {"workload": "queue", "options": {"subscribe": bool(seed % 2)}}
    assert assert_equal(History.of(operations, run), tmp_path / "legal")["offsets"].valid == "true"
    assert_equal(History.of(spoiled(operations, chance), run), tmp_path / "spoiled")


def test_who_was_proven_by_one_key_is_proven_for_the_others(tmp_path: Path) -> None:
    story = Story()
    # Nobody knows of this transaction, but that its half in key 0 was read: so its half in key 1 is lost.
    story.txn(0, [["send", 0, [0, 5]], ["send", 1, [0, 6]]], "info")
    story.send(1, 1, 7, 1)
    story.poll(2, {0: [(0, 5)]})
    story.poll(2, {1: [(1, 7)]})
    verdict = assert_equal(story.history(), tmp_path)["loss"]
    assert [finding.anomaly for finding in verdict.findings if not finding.legal] == ["lost-write", "unseen"]


def test_notes_views_and_faults_come_along(tmp_path: Path) -> None:
    story = Story()
    story.assign(2, [0, 1])
    story.send(0, 0, 1, 0, leader_epochs={"0": 5})
    story.send(0, 1, 1, 0, leader_epochs={"1": 4})
    story.send(1, 0, 2, 1, leader_epochs={"0": 3})
    story.fault("wipe", 1, "broker-1")
    story.poll(2, {0: [(0, 1), (1, 2)]}, committed={"0": 2})
    story.poll(2, {1: [(0, 1)]}, committed={"0": 1}, rebalances=[{"places": [1]}])
    story.look([["broker-1", "t0", 0, 2, 2, 5, 1, [1, 2]], ["broker-2", "t0", 0, 1, 2, 5, 1, [1, 2]]])
    verdicts = assert_equal(story.history(), tmp_path)
    assert [finding.anomaly for finding in verdicts["epochs"].findings] == [
        *("stale-epoch-accept", "acked-in-other-epoch")
    ]
    assert verdicts["stats"].figures["faults"] == 1


def test_columns_from_parquet_are_those_from_the_lines(tmp_path: Path) -> None:
    operations = legal_history(LegalOptions(operations=200, subscribe=True), 3)
    history = History.of(operations, {"workload": "queue", "options": {}})
    write_history(history, tmp_path)
    part = read_whole(tmp_path, history.run, Views.empty())
    assert part.numbers.tolist() == list(range(len(history)))
    for name in ("process", "type", "t_ns", "wall_ms"):
        assert getattr(part.history.lines, name).tolist() == getattr(history.lines, name).tolist()
    for name in ("invoked", "completed", "outcome", "process"):
        assert getattr(part.history.operations, name).tolist() == getattr(history.operations, name).tolist()
    assert (history.micro.leader_epoch >= 0).any()
    for name in ("operation", "step", "kind", "key", "offset", "value", "leader_epoch"):
        assert getattr(part.history.micro, name).tolist() == getattr(history.micro, name).tolist()
    assigned = next(i for i, operation in enumerate(operations) if operation.f in ("assign", "subscribe"))
    assert json.loads(part.history.line(assigned))["value"] == operations[assigned].value


def test_the_lies_are_found() -> None:
    found = set()
    for seed in range(8):
        options = LegalOptions(operations=120, keys=5, transactions=0.6, unknowns=0.15, subscribe=bool(seed % 2))
        lies = spoiled(legal_history(options, seed), random.Random(seed))
        run = {"workload": "queue", "options": {"subscribe": bool(seed % 2)}}
        found |= {name for name, verdict in whole(History.of(lies, run)).items() if verdict.valid == "false"}
    assert {"offsets", "reads", "poll order", "send order", "cycles in time", "epochs"} <= found
