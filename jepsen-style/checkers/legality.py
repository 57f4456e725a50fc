"""The anomalies, and the conditions under which Kafka allows each of them.

Under conditions that allow it an anomaly is reported and does not make a run invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

Via = Literal["assign", "subscribe"]


class Conditions(NamedTuple):
    """The conditions that decide what is legal."""

    via: Via = "assign"
    """The way in which the consumer got its partitions."""
    isolation: str = "read_committed"
    idempotence: bool = True
    ww: bool = False
    """Edges between writers of successive values are among the cycle's."""

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> Conditions:
        """Conditions of a run; `via` is a subscription if any consumer may subscribe."""
        options = run.get("options") or {}
        return cls(
            "subscribe" if options.get("subscribe", True) else "assign",
            options.get("isolation", "read_committed"),
            bool(options.get("idempotence", True)),
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """Description and legality of one anomaly."""

    meaning: str
    legal_when: tuple[Mapping[str, Any], ...] = ()
    """Any of these, each of which is true when all that it names is so. Empty: never legal."""
    why: str = ""


_ALWAYS: tuple[Mapping[str, Any], ...] = ({},)
_UNCOMMITTED = {"isolation": "read_uncommitted"}
_INTERLEAVE = "open transactions interleave: Kafka does not isolate writes"
_LAGS = "a poll may end before the log does, and each partition gets a transaction's marker by itself"
_CYCLES = ({"ww": True}, _UNCOMMITTED)
_WW = f"{_INTERLEAVE}; under read_uncommitted anyway"

ANOMALIES: Mapping[str, Rule] = {
    "inconsistent-offsets": Rule("one offset of a partition held two values"),
    "duplicate": Rule(
        "one value stands at two offsets of a partition", ({"idempotence": False},), "at least once is all one asks for"
    ),
    "lost-write": Rule("an acknowledged value was overtaken: later ones were read, and it never was"),
    "unseen": Rule("a value that must be there was never polled by anyone, to the end of the final polls"),
    "G1a": Rule("an aborted read: a value was read whose writer failed", (_UNCOMMITTED,), "readers ask for anything"),
    "precommitted-read": Rule(
        "a transaction polled a value that it was still to commit", (_UNCOMMITTED,), "readers ask for anything"
    ),
    "unexpected-read": Rule("a value was read that was never sent"),
    "int-poll-skip": Rule("inside one operation a poll went past a value"),
    "int-nonmonotonic-poll": Rule("inside one operation a poll went back"),
    "poll-skip": Rule(
        "between two operations a process's polls went past a value",
        ({"via": "subscribe"},),
        "rebalances move positions",
    ),
    "nonmonotonic-poll": Rule(
        "between two operations a process's polls went back", ({"via": "subscribe"},), "rebalances move positions"
    ),
    "nonmonotonic-send": Rule("a process's later send of a partition has a lower offset"),
    "int-nonmonotonic-send": Rule("inside one transaction a later send of a partition has a lower offset"),
    "int-send-skip": Rule("other writers' values stand between two sends of one transaction", _ALWAYS, _INTERLEAVE),
    "reordered-send": Rule("a value has a lower offset than one that was acknowledged before it was sent"),
    "G0": Rule("a cycle of writers of successive values", _ALWAYS, _INTERLEAVE),
    "G0-process": Rule("G0, with the order inside of processes", _ALWAYS, _INTERLEAVE),
    "G0-realtime": Rule("G0, with the order of time", _ALWAYS, _INTERLEAVE),
    "G1c": Rule("a cycle of writers and their readers", _CYCLES, _WW),
    "G1c-process": Rule("G1c, with the order inside of processes", _CYCLES, _WW),
    "G1c-realtime": Rule("G1c, with the order of time", _CYCLES, _WW),
    "G-single": Rule("a cycle with one reader that had not come to its writer yet", _ALWAYS, _LAGS),
    "G2": Rule("a cycle with several readers that had not come to their writers yet", _ALWAYS, _LAGS),
    "commit-regress": Rule("the committed offset of a group went back, though no lower one was committed"),
    "stale-epoch-accept": Rule("a leader took a write after one of a higher epoch had taken one"),
    "two-epochs": Rule("one offset of a partition was read in batches of two leader epochs"),
    "epochs-went-back": Rule("a lower offset of a partition was read in a batch of a higher leader epoch"),
    "acked-in-other-epoch": Rule("a record was acknowledged in one leader epoch where batches of another stand"),
    "high-watermark-regress": Rule("a replica's high watermark went back while it lived"),
    "epoch-regress": Rule("a replica's leader epoch went back while it lived"),
    "two-leaders": Rule("one leader epoch of a partition had two leaders"),
    "not-whole": Rule("long after the last fault was mended, nodes were not of one mind, or replicas not in sync"),
    "nonlinearizable": Rule("no order of the operations on an object explains what they gave"),
    "hostile": Rule("a hostile client got a forbidden response, or ended a node"),
    "budget": Rule("clients waited longer than the run allows"),
}
"""Rules by anomaly, in the order of reports. Workloads have further anomalies of their own."""


def is_legal(anomaly: str, conditions: Conditions) -> bool:
    """An anomaly that is not in the table is never legal."""
    rule = ANOMALIES.get(anomaly)
    if rule is None:
        return False
    return any(all(getattr(conditions, name) == value for name, value in when.items()) for when in rule.legal_when)


def legal(conditions: Conditions) -> frozenset[str]:
    """The anomalies that Kafka allows then."""
    return frozenset(anomaly for anomaly in ANOMALIES if is_legal(anomaly, conditions))


def table() -> Iterator[tuple[Conditions, list[str]]]:
    """All conditions, each with what is legal under them, in the order of the names."""
    for via, isolation, idempotence, ww in product(
        ("assign", "subscribe"), ("read_committed", "read_uncommitted"), (True, False), (False, True)
    ):
        conditions = Conditions("assign" if via == "assign" else "subscribe", isolation, idempotence, ww)
        yield conditions, [anomaly for anomaly in ANOMALIES if is_legal(anomaly, conditions)]


def printed() -> str:
    """The table, for people."""
    lines = [f"{'via':10}{'isolation':18}{'idempotence':13}{'ww edges':10}legal"]
    for conditions, names in table():
        text = ("on" if conditions.idempotence else "off", "on" if conditions.ww else "off")
        lines.append(f"{conditions.via:10}{conditions.isolation:18}{text[0]:13}{text[1]:10}{' '.join(names)}")
    return "\n".join(lines)
