"""The history of a share group: deliveries and acknowledgements of each record, and requests that were lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.protocol.acknowledge_type import AcknowledgeType
from checkers.attempts import Attempt
from operations import Place
from share_exchanges import LOST

FINAL = (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
"""After these a record is not delivered again."""
FOREVER = 2**62

Record = tuple[Place, int]
"""A partition and an offset."""


class Delivery(NamedTuple):
    """One record was acquired by a member, at some time between `sent` and `at`."""

    sent: int
    at: int
    member: str
    count: int
    evidence: Sequence[int]


class Ack(NamedTuple):
    """A member acknowledged one record."""

    sent: int
    at: int
    member: str
    kind: int
    error: str | None
    """None: it succeeded; LOST: unknown."""
    evidence: Sequence[int]


class LostFetch(NamedTuple):
    """A fetch without a response: it may have acquired anything."""

    sent: int
    member: str


@dataclass(slots=True)
class Produced:
    """One value that was sent."""

    began_ns: int
    offset: int | None
    outcome: str
    evidence: Sequence[int]


@dataclass(slots=True)
class ShareEvents:
    """All of one run."""

    deliveries: dict[Record, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    """In the order of `at`."""
    acks: dict[Record, list[Ack]] = field(default_factory=lambda: defaultdict(list))
    lost: list[LostFetch] = field(default_factory=list)
    """In the order of `sent`."""
    values: dict[Record, dict[str, Sequence[int]]] = field(default_factory=lambda: defaultdict(dict))
    """Values that members were given, with the evidence."""
    produced: dict[tuple[Place, str], Produced] = field(default_factory=dict)
    last_sent: dict[Place, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """(offset, sent) of all deliveries."""

    def hidden(self, since_ns: int, until_ns: int = FOREVER, member: str | None = None) -> int:
        """Deliveries of one record that nobody saw, at most."""
        return sum(since_ns <= each.sent <= until_ns and member in (None, each.member) for each in self.lost)

    def may_be_passed(self, record: Record, at_ns: int) -> bool:
        """Whether the start offset may be behind the record by then: acknowledgements of it succeed then, and have no
        effect. An earlier record that is delivered later shows that it is not."""
        place, offset = record
        return all(other >= offset or sent <= at_ns for other, sent in self.last_sent[place])


def events_of(whole: Iterable[Attempt]) -> ShareEvents:
    events = ShareEvents()
    for attempt in whole:
        value = attempt.value if isinstance(attempt.value, dict) else {}
        if attempt.f == "produce":
            _take_produced(events, attempt)
        for exchange in value.get("exchanges", ()):
            _take_exchange(events, value["member"], exchange, attempt.evidence)
        for topic, partition, offset, _, text in value.get("polled", ()):
            events.values[Place(topic, partition), offset].setdefault(text, attempt.evidence)
    for deliveries in events.deliveries.values():
        deliveries.sort(key=lambda each: each.at)
    events.lost.sort()
    return events


def _take_produced(events: ShareEvents, attempt: Attempt) -> None:
    place = Place(*attempt.asked["place"])
    known = {text: (offset, outcome) for text, offset, outcome in attempt.value.get("sent", ())}
    for text in attempt.asked["values"]:
        offset, outcome = known.get(text, (None, "info"))
        events.produced[place, text] = Produced(attempt.began_ns, offset, outcome, attempt.evidence)


def _take_exchange(events: ShareEvents, member: str, exchange: dict[str, Any], evidence: Sequence[int]) -> None:
    sent, at = exchange["sent"], exchange["at"]
    at = FOREVER if at is None else at
    if exchange["fetches"] and exchange["error"] == LOST:
        events.lost.append(LostFetch(sent, member))
    for topic, partition, first, last, count in exchange["got"]:
        place = Place(topic, partition)
        for offset in range(first, last + 1):
            events.deliveries[place, offset].append(Delivery(sent, at, member, count, evidence))
            events.last_sent[place].append((offset, sent))
    for topic, partition, first, last, types, error in exchange["acks"]:
        for step, offset in enumerate(range(first, last + 1)):
            kind = types[0] if len(types) == 1 else types[step] if step < len(types) else types[-1]
            events.acks[Place(topic, partition), offset].append(Ack(sent, at, member, kind, error, evidence))
