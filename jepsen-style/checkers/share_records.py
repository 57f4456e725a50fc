"""Checks the deliveries and acknowledgements of a share group: the workload `share`.

The promises of KIP-932:

- A record of which an acceptance (or rejection) was confirmed is not delivered again: `redelivered`. A leader that was
  deposed and does not know it may still deliver it; it confirms nothing, other than one that leads. An expiry counts
  before it is stored, in Kafka as well: if it moved the start offset past the record, a late acceptance has no effect.
- One delivery is acknowledged once, and by the member that has it: `accepted-twice`, `acknowledged-unheld`. Kafka
  confirms acknowledgements of records before the start offset, and they have no effect: those are not held against it.
- Delivery counts are right: never above the limit (`count-over-limit`); never more than there were deliveries
  (`count-too-high`); after a confirmed release higher than before (`count-went-back`). An acquisition alone is not
  stored, so a new leader may count the same delivery again.
- Nothing is lost: a record that was acknowledged to its producer is delivered (`never-delivered`) until it is accepted,
  rejected, or was delivered as often as allowed (`lost-record`). Fetches whose responses were lost may have delivered
  anything; if they are as many as the limit, the finding is legal.
- Nothing is acquired for ever: with all faults over the group comes to the end of the log in time (`not-drained`).
- The start offset never moves back (`start-went-back`). A coordinator that was deposed may report an old one, so only
  what is read at rest counts.
- Members get what was sent: `wrong-record`. The client reports what the broker did: `false-report`.
- Nonsense is refused: `nonsense-accepted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from barnabas.protocol.acknowledge_type import AcknowledgeType
from checkers.attempts import NEVER, Attempt, attempts
from checkers.budget_of_loss import budget_of
from checkers.gathering import Gathered
from checkers.share_events import FINAL, Ack, Delivery, Record, ShareEvents, events_of
from checkers.verdict import Finding, Verdict
from operations import Place
from share_exchanges import FORBIDDEN


class ShareChecker:
    """`limit`: maximum delivery count; `lock_ms`: duration of acquisition locks."""

    name = "share"

    def __init__(self, *, limit: int, lock_ms: int) -> None:
        self._limit = limit
        self._lock_ns = lock_ms * 1_000_000

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        events = events_of(whole)
        passing = {each.asked["delete"] for each in whole if each.f == "renew-topic"}
        passing |= {each.asked["create"] for each in whole if each.f == "renew-topic"}
        drained = [each for each in whole if each.f == "starts" and each.type == "ok" and each.value.get("final")]
        found = [
            *self._records(events),
            *_reports(whole),
            *_values(events),
            *_starts(whole),
            *_nonsense(whole),
            *self._end(events, drained, passing),
        ]
        gathered = Gathered()
        for finding in budget_of(history).excused(found):
            gathered.add(finding)
        deliveries = sum(len(each) for each in events.deliveries.values())
        acks = [ack for each in events.acks.values() for ack in each]
        verdict = gathered.verdict(
            {
                "records delivered": len(events.deliveries),
                "deliveries": deliveries,
                "delivered more than once": sum(len(each) > 1 for each in events.deliveries.values()),
                "acknowledgements": len(acks),
                "acknowledgements that succeeded": sum(ack.error is None for ack in acks),
                "fetches without a response": len(events.lost),
            }
        )
        if verdict.valid == "true" and not drained:
            return replace(verdict, valid="unknown", unknown_because="the start offsets were never read at the end")
        return verdict

    # ---- one record

    def _records(self, events: ShareEvents) -> Iterator[Finding]:
        for record, deliveries in events.deliveries.items():
            acks = events.acks.get(record, [])
            confirmed = [ack for ack in acks if ack.error is None]
            yield from self._redelivered(events, record, confirmed)
            yield from self._counts(events, record, deliveries)
            yield from _after_release(events, record, confirmed)
        for record, acks in events.acks.items():
            confirmed = sorted(ack for ack in acks if ack.error is None)
            yield from _accepted_twice(events, record, confirmed)
            yield from _unheld(events, record, confirmed)

    def _counts(self, events: ShareEvents, record: Record, deliveries: Sequence[Delivery]) -> Iterator[Finding]:
        for each in deliveries:
            if each.delivery_count > self._limit:
                text = (
                    f"{_named(record)} was delivered for the {each.delivery_count}th time; the limit is {self._limit}"
                )
                yield _finding("count-over-limit", record, each.evidence, text)
            possible = sum(other.sent <= each.at for other in deliveries) + events.hidden(0, each.at)
            if not 1 <= each.delivery_count <= possible:
                count = each.delivery_count
                text = f"{_named(record)} was delivered with count {count}, after at most {possible} deliveries"
                yield _finding("count-too-high", record, each.evidence, text)

    def _redelivered(self, events: ShareEvents, record: Record, confirmed: Sequence[Ack]) -> Iterator[Finding]:
        final = [ack for ack in confirmed if ack.kind in FINAL and not self._may_be_void(events, record, ack)]
        first = min(final, key=lambda ack: ack.at, default=None)
        if first is None:
            return
        for again in events.deliveries[record]:
            if again.sent > first.at:
                text = f"{_named(record)} was delivered to {again.member} after {first.member} {_said(first)} it"
                evidence = [*first.evidence, *again.evidence]
                is_stale = not events.led_after(record[0], again, first.at)
                yield _finding("redelivered", record, evidence, text, legal=is_stale)

    def _may_be_void(self, events: ShareEvents, record: Record, ack: Ack) -> bool:
        """Whether the lock may have expired, and the start offset be behind the record: then the acknowledgement has no
        effect, and the new leader may not know of the expiry."""
        own = [each for each in events.deliveries[record] if each.member == ack.member and each.at <= ack.sent]
        is_late = not own or ack.at >= own[-1].sent + self._lock_ns
        return is_late and events.may_be_passed(record, ack.node, ack.at)

    # ---- the end

    def _end(self, events: ShareEvents, drained: Sequence[Attempt], passing: set[str]) -> Iterator[Finding]:
        if not drained:
            return
        last = drained[-1]
        starts = {Place(topic, index): (at, lag) for topic, index, at, lag in last.value["starts"]}
        passed: dict[Place, int] = {}
        for topic, index, end in last.value["ends"]:
            place = Place(topic, index)
            start, lag = starts.get(place, (0, None))
            passed[place] = end if lag == 0 else start
            if passed[place] < end:
                text = f"the group stands at {start} of {place}, which ends at {end}, and has a lag of {lag}"
                yield Finding("not-drained", str(place), last.evidence, text)
        for (place, text), sent in events.produced.items():
            if sent.outcome != "ok" or sent.offset is None or place.topic in passing:
                continue
            if passed.get(place, 0) > sent.offset:
                yield from self._fate(events, (place, sent.offset), text, sent.began_ns, sent.evidence)

    def _fate(
        self, events: ShareEvents, record: Record, text: str, began_ns: int, evidence: Sequence[int]
    ) -> Iterator[Finding]:
        """The fate of a record that the group is past."""
        deliveries = events.deliveries.get(record, [])
        if any(ack.kind in FINAL for ack in events.acks.get(record, ())):
            return
        hidden = events.hidden(began_ns)
        most = max((each.delivery_count for each in deliveries), default=0)
        is_legal = most + hidden >= self._limit
        if not deliveries:
            line = f"{text}, {_named(record)}, was never delivered, and the group is past it"
            yield _finding("never-delivered", record, evidence, line, legal=is_legal)
        elif most < self._limit:
            line = f"{text}, {_named(record)}, was delivered {most} times, never accepted, and the group is past it"
            yield _finding("lost-record", record, [*evidence, *deliveries[-1].evidence], line, legal=is_legal)


def _after_release(events: ShareEvents, record: Record, confirmed: Sequence[Ack]) -> Iterator[Finding]:
    deliveries = events.deliveries[record]
    for ack in confirmed:
        held = [each for each in deliveries if each.member == ack.member and each.at <= ack.sent]
        if ack.kind != AcknowledgeType.RELEASE or not held:
            continue
        count = held[-1].delivery_count
        for low in (each for each in deliveries if each.sent > ack.at and each.delivery_count <= count):
            text = f"{_named(record)} was released with count {count}, and then delivered with {low.delivery_count}"
            is_stale = not events.led_after(record[0], low, ack.at)
            yield _finding("count-went-back", record, [*ack.evidence, *low.evidence], text, legal=is_stale)


def _accepted_twice(events: ShareEvents, record: Record, confirmed: Sequence[Ack]) -> Iterator[Finding]:
    final = [ack for ack in confirmed if ack.kind in FINAL]
    for first, second in pairwise(final):
        if second.sent > first.at and not events.may_be_passed(record, second.node, second.at):
            text = f"{second.member} {_said(second)} {_named(record)}, which {first.member} had {_said(first)}"
            yield _finding("accepted-twice", record, [*first.evidence, *second.evidence], text)


def _unheld(events: ShareEvents, record: Record, confirmed: Sequence[Ack]) -> Iterator[Finding]:
    deliveries = events.deliveries.get(record, [])
    for ack in confirmed:
        own = [each for each in deliveries if each.member == ack.member and each.sent <= ack.at]
        since = own[-1].at if own else 0
        if events.hidden(since, ack.at, ack.member) or events.may_be_passed(record, ack.node, ack.at):
            continue
        others = [
            each
            for each in deliveries
            if each.sent > since and each.at < ack.sent and each.member != ack.member and each.exchange.node == ack.node
        ]
        if own and not others:
            continue
        holder = f"{others[-1].member} had got it since" if others else "it had never got it"
        text = f"{ack.member} {_said(ack)} {_named(record)}, though {holder}"
        yield _finding("acknowledged-unheld", record, ack.evidence, text)


# ---- the rest


def _values(events: ShareEvents) -> Iterator[Finding]:
    sent = {(place, it.offset): text for (place, text), it in events.produced.items() if it.offset is not None}
    for record, seen in events.values.items():
        expected = sent.get(record)
        if len(seen) > 1 or (expected is not None and expected not in seen):
            evidence = sorted({i for each in seen.values() for i in each})
            text = f"{_named(record)} was {' and '.join(seen)}; its producer sent {expected}"
            yield _finding("wrong-record", record, evidence, text)
        for text in seen:
            if (it := events.produced.get((record[0], text))) is None:
                yield _finding("wrong-record", record, seen[text], f"{_named(record)} was {text}, which nobody sent")
            elif it.outcome == "fail":
                line = f"{_named(record)} was {text}, whose producer was refused"
                yield _finding("G1a", record, [*it.evidence, *seen[text]], line)


def _reports(whole: Sequence[Attempt]) -> Iterator[Finding]:
    """Successes that members were given, and no broker has reported."""
    confirmed: set[tuple[str, str, int, int]] = set()
    for attempt in whole:
        value = attempt.value if isinstance(attempt.value, dict) else {}
        for exchange in value.get("exchanges", ()):
            for topic, partition, first, last, _, error in exchange["acks"]:
                if error is None:
                    confirmed |= {(value["member"], topic, partition, offset) for offset in range(first, last + 1)}
        for topic, partition, offsets, error in value.get("reported", ()):
            wrong = [it for it in offsets if (value["member"], topic, partition, it) not in confirmed]
            if error is None and wrong:
                place = Place(topic, partition)
                text = f"{value['member']} got a success for {wrong} of {place}, and no broker had confirmed it"
                yield Finding("false-report", str(place), attempt.evidence, text)


def _starts(whole: Sequence[Attempt]) -> Iterator[Finding]:
    highest: dict[Place, tuple[int, Attempt]] = {}
    looks = [each for each in whole if each.f == "starts" and each.type == "ok" and each.ended != NEVER]
    for look in sorted(looks, key=lambda each: each.ended):
        for topic, index, at, _ in look.value["starts"]:
            place = Place(topic, index)
            before = highest.get(place)
            if before is not None and at < before[0] and before[1].ended < look.began:
                text = f"the start offset of {place} was {before[0]}, and then {at}"
                evidence = [*before[1].evidence, *look.evidence]
                yield Finding("start-went-back", str(place), evidence, text, legal=not look.value["final"])
            if before is None or at > before[0]:
                highest[place] = at, look


def _nonsense(whole: Sequence[Attempt]) -> Iterator[Finding]:
    for attempt in whole:
        if attempt.f != "breach" or attempt.type != "ok" or attempt.asked["breach"] not in FORBIDDEN:
            continue
        for exchange in attempt.value["exchanges"]:
            for topic, partition, first, last, types, error in exchange["acks"]:
                if error is None:
                    text = f"{attempt.asked['breach']}: types {types} for offsets {first} to {last} were confirmed"
                    yield Finding("nonsense-accepted", f"{topic}-{partition}", attempt.evidence, text)


def _said(ack: Ack) -> str:
    words: dict[int, str] = {
        AcknowledgeType.GAP: "passed over",
        AcknowledgeType.ACCEPT: "accepted",
        AcknowledgeType.RELEASE: "released",
        AcknowledgeType.REJECT: "rejected",
        AcknowledgeType.RENEW: "renewed",
    }
    return words.get(ack.kind, "acknowledged")


def _named(record: Record) -> str:
    return f"offset {record[1]} of {record[0]}"


def _finding(anomaly: str, record: Record, evidence: Sequence[int], text: str, *, legal: bool = False) -> Finding:
    return Finding(anomaly, str(record[0]), sorted({*evidence}), text, legal)
