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


class Exchange(NamedTuple):
    """A fetch: its place in the history, and the node that answered."""

    number: int
    node: int


class Delivery(NamedTuple):
    """One record was acquired by a member, at some time between `sent` and `at`."""

    sent: int
    at: int
    member: str
    delivery_count: int
    exchange: Exchange
    evidence: Sequence[int]


class Ack(NamedTuple):
    """A member acknowledged one record."""

    sent: int
    at: int
    member: str
    kind: int
    error: str | None
    """None: it succeeded; LOST: unknown."""
    node: int
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
    last_sent: dict[Place, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """(offset, sent, node) of all deliveries."""
    confirmed_at: dict[tuple[Place, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """By partition and node: when acknowledgements succeeded, in order. The node led the partition then."""
    taken_back: set[tuple[int, Place]] = field(default_factory=set)
    """(number of an exchange, partition): a record of it was acknowledged with success by the member that got it."""
    exchanges: int = 0

    def hidden(self, since_ns: int, until_ns: int = FOREVER, member: str | None = None) -> int:
        """Deliveries of one record that nobody saw, at most."""
        return sum(since_ns <= each.sent <= until_ns and member in (None, each.member) for each in self.lost)

    def may_be_passed(self, record: Record, node: int, at_ns: int) -> bool:
        """Whether the start offset of the node may be behind the record by then: acknowledgements of it succeed then,
        and have no effect. An earlier record that the node delivers later shows that it is not."""
        place, offset = record
        return all(
            other >= offset or sent <= at_ns or other_node != node for other, sent, other_node in self.last_sent[place]
        )

    def led_after(self, place: Place, delivery: Delivery, since_ns: int) -> bool:
        """Whether the node that delivered is known not to have been deposed before `since_ns`, when an acknowledgement
        was confirmed. A node that does not know yet that it was deposed delivers what others have accepted, in Kafka as
        well; but it confirms nothing any more."""
        if (delivery.exchange.number, place) in self.taken_back:
            return True
        return any(since_ns <= at <= delivery.at for at in self.confirmed_at[place, delivery.exchange.node])


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
    for (place, offset), acks in events.acks.items():
        deliveries = events.deliveries.get((place, offset), [])
        for ack in acks:
            if ack.error is not None or ack.kind == AcknowledgeType.RENEW:
                # A leader renews locks without asking anybody.
                continue
            events.confirmed_at[place, ack.node].append(ack.at)
            own = [it for it in deliveries if it.member == ack.member and it.at <= ack.sent]
            if own and own[-1].exchange.node == ack.node:
                events.taken_back.add((own[-1].exchange.number, place))
    return events


def _take_produced(events: ShareEvents, attempt: Attempt) -> None:
    place = Place(*attempt.asked["place"])
    known = {text: (offset, outcome) for text, offset, outcome in attempt.value.get("sent", ())}
    for text in attempt.asked["values"]:
        offset, outcome = known.get(text, (None, "info"))
        events.produced[place, text] = Produced(attempt.began_ns, offset, outcome, attempt.evidence)


def _take_exchange(events: ShareEvents, member: str, exchange: dict[str, Any], evidence: Sequence[int]) -> None:
    sent, at = exchange["sent"], exchange["at"]
    events.exchanges += 1
    source = Exchange(events.exchanges, exchange["node"])
    at = FOREVER if at is None else at
    if exchange["fetches"] and exchange["error"] == LOST:
        events.lost.append(LostFetch(sent, member))
    for topic, partition, first, last, count in exchange["got"]:
        place = Place(topic, partition)
        for offset in range(first, last + 1):
            events.deliveries[place, offset].append(Delivery(sent, at, member, count, source, evidence))
            events.last_sent[place].append((offset, sent, source.node))
    for topic, partition, first, last, types, error in exchange["acks"]:
        for step, offset in enumerate(range(first, last + 1)):
            kind = types[0] if len(types) == 1 else types[step] if step < len(types) else types[-1]
            events.acks[Place(topic, partition), offset].append(
                Ack(sent, at, member, kind, error, source.node, evidence)
            )
