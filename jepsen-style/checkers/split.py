"""The checks of sends and polls, split by key: each key's part of a history by itself, wherever there is room.

What a checker says of a key depends on the operations that touch it, on faults and on the views of its partition; so
the verdicts of the parts together are the verdict of the whole. One thing crosses keys: an operation of which nobody
knows must have taken place if anything of it was read, of whatever key. That is worked out before (`proven`).

Not by key: cycles go through any number of keys; commits, lag, availability and what replicas did are of the whole run.
They are checked in one place, over columns without values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from checkers.all_checkers import check_one, of_every_run, of_workload, standard
from checkers.epochs import StaleEpochs
from checkers.gathering import KEPT
from checkers.loss import Loss
from checkers.offsets import Offsets
from checkers.order import PollOrder, SendOrder
from checkers.reads import Reads
from checkers.verdict import Checker, Finding, Valid, Verdict
from checkers.versions import PROVEN_ELSEWHERE
from histories.columns import Part, of_tables, slim
from histories.history import Epochs, History, Ints
from histories.views import Views
from operations import Place, key_of

BY_KEY = (Offsets, Loss, Reads, PollOrder, SendOrder, StaleEpochs)
WORKLOADS = ("queue", "list-append")
"""Whose histories are split. Those of others are small (a run of them has one story for all of its keys), and each is
checked whole."""
_RANK = {"true": 0, "unknown": 1, "false": 2}
_NUMBERED = re.compile(r"(?<=peration )\d+|(?<=after )\d+(?= had been)")
"""Lines that findings name in their sentence."""
_KEY_TOPIC = re.compile(r"t\d+")


def checkers_by_key(workload: str) -> list[Checker]:
    return [checker for checker in standard(workload) if isinstance(checker, BY_KEY)]


def checkers_of_the_whole(run: Mapping[str, Any]) -> list[Checker]:
    rest = [checker for checker in standard(str(run.get("workload"))) if not isinstance(checker, BY_KEY)]
    return [*rest, *of_every_run(run)]


def part_of_views(views: Views, shard: int, shards: int) -> Views:
    """Those of partitions whose keys are in the shard; others than keys' are in the first."""
    mine = np.array([_shard_of(place, shards) == shard for place in views.places], dtype=np.bool_)
    chosen = mine[views.place] if len(views) else np.zeros(0, dtype=np.bool_)
    names = ("look", "node", "place", "high_watermark", "log_end_offset", "leader_epoch", "leader", "isr")
    return replace(views, **{name: getattr(views, name)[chosen] for name in names})


def _shard_of(place: Place, shards: int) -> int:
    return key_of(place) % shards if _KEY_TOPIC.fullmatch(place.topic) else 0


def check_part(operations: Any, micro: Any, run: Mapping[str, Any], views: Views) -> dict[str, Verdict]:
    """By checker. `operations` are lines as in `history.parquet` with the column `proven` besides: the operation of
    this completion, or invocation without one, has taken place."""
    part = of_tables(slim(operations), micro, run, views)
    # Notes tell of all keys that an operation touched, and it is in the part of each of them.
    epochs = part.history.epochs
    mine = np.isin(epochs.key, part.history.micro.key)
    part.history.epochs = Epochs(epochs.line[mine], epochs.key[mine], epochs.epoch[mine])
    proven = np.sort(operations.filter(operations.column("proven")).column("i").to_numpy().astype(np.int64))
    part.history.once(PROVEN_ELSEWHERE, lambda history: _rows(history, part.numbers, proven))
    return {
        checker.name: _renumbered(checker.check(part.history), part)
        for checker in checkers_by_key(str(run.get("workload")))
    }


def check_whole(part: Part) -> dict[str, Verdict]:
    """What is not by key, of a whole history."""
    return {checker.name: checker.check(part.history) for checker in checkers_of_the_whole(part.history.run)}


def check_run(operations: Any, micro: Any, run: Mapping[str, Any], views: Views) -> dict[str, Verdict]:
    """A whole history from its tables, by every checker of its workload. ValueError if `run` names none,
    HistoryError as `check_one`."""
    history = of_tables(slim(operations), micro, run, views).history
    return {checker.name: check_one(checker, history) for checker in (*of_workload(run), *of_every_run(run))}


def _rows(history: History, numbers: Ints, proven: Ints) -> Ints:
    found: Ints = np.flatnonzero(np.isin(numbers[history.operations.shown_by], proven))
    return found


def _renumbered(verdict: Verdict, part: Part) -> Verdict:
    def told(finding: Finding) -> Finding:
        operations = [int(part.numbers[i]) for i in finding.operations]
        text = _NUMBERED.sub(lambda match: str(int(part.numbers[int(match[0])])), finding.told)
        return replace(finding, operations=operations, told=text)

    return replace(verdict, findings=[told(finding) for finding in verdict.findings])


def together(parts: Sequence[Verdict]) -> Verdict:
    """The verdict of a checker on the whole, from those on its parts. Counts are added up; curves are left out."""
    valid: Valid = max((part.valid for part in parts), key=_RANK.__getitem__, default="true")
    figures: dict[str, Any] = {}
    for part in parts:
        for name, value in part.figures.items():
            if isinstance(value, int) and not isinstance(value, bool):
                figures[name] = figures.get(name, 0) + value
    kept: dict[tuple[str, bool], int] = {}
    findings = []
    for finding in sorted((each for part in parts for each in part.findings), key=lambda each: list(each.operations)):
        kind = (finding.anomaly, finding.legal)
        kept[kind] = kept.get(kind, 0) + 1
        if kept[kind] <= KEPT:
            findings.append(finding)
    because = next((part.unknown_because for part in parts if part.unknown_because), "")
    return Verdict(valid, findings, figures, because)


def in_usual_order(run: Mapping[str, Any], verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """As one process would give them."""
    names = [checker.name for checker in (*of_workload(run), *of_every_run(run))]
    return {name: verdicts[name] for name in names}


def to_json(verdict: Verdict) -> str:
    return json.dumps(asdict(verdict), default=_plain)


def from_json(text: str) -> Verdict:
    told = json.loads(text)
    return Verdict(**{**told, "findings": [Finding(**finding) for finding in told["findings"]]})


def _plain(value: Any) -> Any:
    """Numbers of numpy."""
    return value.item() if hasattr(value, "item") else list(value)
