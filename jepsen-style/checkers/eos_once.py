"""Checks that each input is in the committed output exactly once: the workload `txn-eos`.

Findings in the committed logs at the end, read as a whole:

- `lost-output`: an input below the offset that the group committed has no output;
- `untransformed`: an input that the group did not reach, though it had the time: it is stuck;
- `duplicate-output`: an input has more than one, of different tries or of one;
- `out-of-order`: the outputs of two inputs of a partition are swapped: the transformer of the later one did not wait
  for the end of the transaction with the earlier one (KIP-447);
- `lost-offsets`: a transaction was committed whose offsets the group does not have at the end.

Each feed and each try is a transaction of its own, too: see `checkers.transactions`, and `checkers.readings` for
the inputs of the transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checkers.attempts import Attempt, attempts
from checkers.readings import Logs, concluded, frozen, gather, readings_of
from checkers.transactions import Record, Transaction, judge
from checkers.verdict import Finding, Verdict
from operations import Place


class OnceChecker:
    """Checker for the options of one run."""

    name = "txn-eos"

    def __init__(self, *, idempotence: bool = True) -> None:
        self._idempotence = idempotence

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        logs = gather(readings_of(whole))
        feeds = [_transaction("feed", attempt.asked["feed"], attempt) for attempt in whole if attempt.f == "feed"]
        tries = [attempt for attempt in whole if attempt.f == "transform"]
        transforms = [_transaction("try", attempt.asked["attempt"], attempt) for attempt in tries]
        committed = _committed(whole)
        outputs = _outputs(logs, {record.place for transform in transforms for record in transform.records})
        findings = [
            *logs.findings,
            *judge([*feeds, *transforms], logs, owned=logs.values),
            *_once(feeds, outputs, logs, committed),
            *_in_order(feeds, outputs, logs),
            *_lost_offsets(tries, committed),
        ]
        places = {record.place for each in (*feeds, *transforms) for record in each.records}
        figures = {
            "inputs": sum(len(feed.records) for feed in feeds),
            "committed inputs": sum(len(logs.values.get(place, {})) for place in _inputs(feeds)),
            "outputs": sum(len(found) for found in outputs.values()),
            "tries": sum(bool(transform.records) for transform in transforms),
            "aborted tries": sum(bool(each.records) and each.outcome == "fail" for each in transforms),
            "unknown tries": sum(each.outcome == "info" for each in transforms),
        }
        return concluded(history, findings, figures, complete=bool(committed) and places <= logs.complete)


def _transaction(kind: str, number: int, attempt: Attempt) -> Transaction:
    given = attempt.value.get("records", ()) if isinstance(attempt.value, dict) else ()
    records = [Record(Place(topic, partition), frozen(record)) for topic, partition, record in given]
    return Transaction(f"{kind} {number}", attempt.type, attempt.evidence, records)


def _inputs(feeds: Sequence[Transaction]) -> dict[Place, None]:
    return {record.place: None for feed in feeds for record in feed.records}


def _committed(whole: Sequence[Attempt]) -> dict[Place, int]:
    """The group's offsets at the end."""
    offsets: dict[Place, int] = {}
    for attempt in whole:
        if attempt.f == "committed" and attempt.type == "ok":
            for topic, partition, offset in attempt.value["offsets"]:
                place = Place(topic, partition)
                offsets[place] = max(offset, offsets.get(place, 0))
    return offsets


def _outputs(logs: Logs, places: set[Place]) -> dict[int, list[tuple[Place, int, int]]]:
    """By input: partition, offset and try."""
    found: dict[int, list[tuple[Place, int, int]]] = {}
    for place in sorted(places):
        for offset, (number, attempt) in logs.values.get(place, {}).items():
            found.setdefault(number, []).append((place, offset, attempt))
    return found


def _once(
    feeds: Sequence[Transaction],
    outputs: Mapping[int, Sequence[tuple[Place, int, int]]],
    logs: Logs,
    committed: Mapping[Place, int],
) -> list[Finding]:
    findings = []
    for feed in feeds:
        for place, number in feed.records:
            if (offset := logs.offset_of.get(place, {}).get(number)) is None:
                continue
            found = outputs.get(number, ())
            if len(found) > 1:
                text = f"input {number} of {place} is in the output as {[f'{at}@{where}' for at, where, _ in found]}"
                evidence = [*feed.evidence, *(logs.read_by[at][where] for at, where, _ in found)]
                findings.append(Finding("duplicate-output", str(place), sorted(set(evidence)), text))
            elif not found and _all_read(logs, place) and committed:
                group = committed.get(place, 0)
                text = f"input {number} at {place}@{offset} has no output; the group stands at {group}"
                anomaly = "lost-output" if offset < group else "untransformed"
                findings.append(Finding(anomaly, str(place), feed.evidence, text))
    return findings


def _all_read(logs: Logs, place: Place) -> bool:
    """The partition of that number in all topics: outputs have the partition of their inputs."""
    return all(each in logs.complete for each in logs.values if each.partition == place.partition)


def _in_order(
    feeds: Sequence[Transaction], outputs: Mapping[int, Sequence[tuple[Place, int, int]]], logs: Logs
) -> list[Finding]:
    findings = []
    for place in _inputs(feeds):
        latest, before = -1, -1
        for number in logs.values.get(place, {}).values():
            if len(found := outputs.get(number, ())) != 1:
                continue
            at, offset, _ = found[0]
            if offset < latest:
                text = f"{place} has input {number} behind {before}, and {at} has its output before the other's"
                findings.append(Finding("out-of-order", str(at), [logs.read_by[at][offset]], text))
            else:
                latest, before = offset, number
    return findings


def _lost_offsets(tries: Sequence[Attempt], committed: Mapping[Place, int]) -> list[Finding]:
    if not committed:
        return []
    findings = []
    for attempt in tries:
        if attempt.type != "ok":
            continue
        for topic, partition, _, end, _ in attempt.value["parts"]:
            place = Place(topic, partition)
            if (group := committed.get(place, 0)) < end:
                text = f"a transaction committed offset {end} of {place}, and at the end it is {group}"
                findings.append(Finding("lost-offsets", str(place), attempt.evidence, text))
    return findings
