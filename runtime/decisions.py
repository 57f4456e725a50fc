"""Core: the latest decisions of a node and their causes, in a ring, as JSON and as one log line each.

The part that decides makes the note, with its cause: the controller, the quorum, a partition's leader, a coordinator.
No note is made for a record, a batch or a request, so that serving them costs nothing. The ring keeps the newest; older
decisions are in the log. Texts come from clients, too (the name of a group): they are cut, and escaped where they could
end a line.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import merge
from itertools import chain, islice

log = logging.getLogger("decisions")

RING_SIZE = 4096
"""Decisions that a node keeps."""
ROUTINE_SHARE = 4
"""Routine decisions have a ring of their own, this many times smaller."""
BURST = 2000
"""Elections, and ISR changes, that are noted in `BURST_MS`: the start or stop of a broker with thousands of partitions
would displace everything else, and spend more time on its notes than on its work."""
BURST_MS = 10_000
LOG_LINE = "decision "
_PLAIN = re.compile(r"[A-Za-z_][\w./:@+-]*", re.ASCII)
_WORD = re.compile(rf"{_PLAIN.pattern}(?= |$)", re.ASCII)
_NAME = re.compile(r"(\w+)=")
_JSON = json.JSONDecoder()
_COMPACT = json.JSONEncoder(separators=(",", ":")).encode
_READABLE = json.JSONEncoder(ensure_ascii=False).encode
_JSON_WORDS = frozenset({"null", "true", "false", "NaN", "Infinity"})
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
MAX_TEXT = 250
"""Most characters of a name or a fact; longer ones are cut."""
MAX_SENTENCE = 600
"""Most characters of a decision, and of its cause."""
MAX_LIST = 50
"""Most items of a list among the facts, and most other subjects of a decision; longer lists are cut."""

Fact = int | str | Sequence[int] | None


class DecisionKind(StrEnum):
    """The matter of a decision."""

    ELECTION = "election"
    """Leadership of a partition."""
    ISR = "isr"
    """In-sync replicas, and requests to change them."""
    FENCING = "fencing"
    """A broker, or a member of a group, is fenced or unfenced."""
    TRUNCATION = "truncation"
    """A replica cuts its log."""
    REASSIGNMENT = "reassignment"
    """Replicas move to other brokers."""
    REBALANCE = "rebalance"
    """A group assigns its partitions again."""
    TRANSACTION = "transaction"
    """A transaction ends, or its producer is fenced."""
    QUORUM = "quorum"
    """Leadership of the metadata log."""
    LIFECYCLE = "lifecycle"
    """Nodes, topics and groups are created and removed."""
    ACCESS = "access"
    """A client is refused what access control lists do not allow."""
    LOG = "log"
    """Events of a log or its directory on a disk."""
    QUOTA = "quota"
    """A client is held back because it used more than its quota."""


_BY_PARTITION = (DecisionKind.ELECTION, DecisionKind.ISR)
"""Kinds of which one event may bring a decision for each partition."""


@dataclass(frozen=True, slots=True)
class Note:
    """A decision of a core on its way to the ring, without time and number."""

    kind: DecisionKind
    subject: str
    text: str
    also: Sequence[str] = ()
    cause: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    routine: bool = False


class Notepad:
    """A receiver of notes: a node's `Decisions`, or a core's `Notes`."""

    def note(
        self,
        kind: DecisionKind,
        subject: str,
        text: str,
        *,
        also: Sequence[str] = (),
        cause: str = "",
        routine: bool = False,
        **facts: Fact,
    ) -> None:
        """A decision was made, or is carried out.

        `cause` follows `text` after a colon. If it is missing, the cause is the text after the first colon of `text`.
        `routine`: it happens all the time in normal operation (a transaction is committed). Such decisions are kept in
        a small ring of their own, so that they do not displace others, and are logged at level DEBUG only.
        """
        self.keep(Note(kind, subject, text, also, cause, facts, routine))

    def keep(self, note: Note) -> None:
        raise NotImplementedError

    def accepts(self, kind: DecisionKind) -> bool:
        """True if a note is to be made of a decision that comes in thousands, once for each partition."""
        return True


class Notes(list[Note], Notepad):
    """The notes of one step until they are certain: a controller's decisions count when they are committed."""

    def keep(self, note: Note) -> None:
        self.append(note)


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of one node."""

    number: int
    """Counts from 1 on each node, from its start."""
    at_ms: int
    """Milliseconds since 1970, by the clock of the node."""
    node: str
    """`broker-1`, `controller-101`."""
    kind: DecisionKind
    subject: str
    """`flights-3`, `topic flights`, `group ID`, `transaction ID`, `broker N`, `controller N`, `quorum`."""
    also: tuple[str, ...]
    """Other subjects that the decision concerns."""
    what: str
    """The decision in one line."""
    cause: str
    """Its cause in one line."""
    facts: Mapping[str, Fact]
    """Epochs, offsets, times. Lists are tuples."""

    @property
    def sentence(self) -> str:
        """The decision, a colon, and its cause."""
        return f"{self.what}: {self.cause}" if self.cause else self.what

    def concerns(self, subject: str) -> bool:
        return subject == self.subject or subject in self.also

    def as_json(self) -> dict[str, object]:
        """The JSON object that `/decisions` serves."""
        return {
            "number": self.number,
            "at_ms": self.at_ms,
            "node": self.node,
            "kind": self.kind.value,
            "subject": self.subject,
            "also": list(self.also),
            "told": self.sentence,
            "cause": self.cause,
            "facts": {name: list(it) if isinstance(it, tuple) else it for name, it in self.facts.items()},
        }

    def as_log_line(self) -> str:
        """`decision kind=isr subject=flights-3 … told="…" cause="…"`: always one line. Values that are not
        plain words are JSON, so that `read_log_line` restores everything.
        """
        pairs: dict[str, object] = {"kind": self.kind.value, "subject": self.subject, "number": self.number}
        pairs |= {"at_ms": self.at_ms, **self.facts}
        if self.also:
            pairs["also"] = self.also
        pairs["told"] = self.what
        if self.cause:
            pairs["cause"] = self.cause
        return LOG_LINE + " ".join(f"{name}={_value(value)}" for name, value in pairs.items())


def _value(value: object) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value not in _JSON_WORDS:
            return value
        return _READABLE(value) if value.isprintable() else _COMPACT(value)
    return str(value) if type(value) is int else _COMPACT(value)


def read_log_line(line: str, node: str) -> dict[str, object] | None:
    """The JSON of the decision in a line of `node`'s log; None if the line has none."""
    text = line.partition(LOG_LINE)[2].rstrip()
    found: dict[str, object] = {}
    place = 0
    try:
        while place < len(text):
            pair = _NAME.match(text, place)
            if pair is None:
                return None
            word = _WORD.match(text, pair.end())
            if word is not None and word[0] not in _JSON_WORDS:
                found[pair[1]], place = word[0], word.end()
            else:
                found[pair[1]], place = _JSON.raw_decode(text, pair.end())
            place += 1
    except (ValueError, RecursionError):
        return None
    head = {name: found.pop(name, None) for name in ("number", "at_ms", "kind", "subject", "also", "told", "cause")}
    number, at_ms, cause = head["number"], head["at_ms"], head["cause"] or ""
    texts = (head["kind"], head["subject"], head["told"], cause)
    if not isinstance(number, int) or not isinstance(at_ms, int) or not all(isinstance(it, str) for it in texts):
        return None
    sentence = f"{head['told']}: {cause}" if cause else head["told"]
    return {**head, "node": node, "also": head["also"] or [], "told": sentence, "cause": cause, "facts": found}


def cut(text: str, most: int = MAX_TEXT) -> str:
    """The text, cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(slots=True)
class _Burst:
    """Decisions of one kind since a time."""

    began_ms: int
    count: int = 1


class Decisions(Notepad):
    """One node's ring."""

    def __init__(self, node: str, now_ms: Callable[[], int], size: int = RING_SIZE) -> None:
        """`now_ms` gives milliseconds since 1970."""
        self.node = node
        self._now_ms = now_ms
        self._ring: deque[Decision] = deque(maxlen=size)
        self._routine: deque[Decision] = deque(maxlen=max(1, size // ROUTINE_SHARE))
        self.next_number = 1
        self.first_number = 1
        """No decision is missing from this number on."""
        self._bursts: dict[DecisionKind, _Burst] = {}

    def accepts(self, kind: DecisionKind) -> bool:
        """False for those after the first `BURST` of a kind in `BURST_MS`; their number is noted later."""
        now_ms = self._now_ms()
        burst = self._bursts.get(kind)
        if burst is None or not burst.began_ms <= now_ms < burst.began_ms + BURST_MS:
            self._bursts[kind] = _Burst(now_ms)
            if burst is not None and burst.count > BURST:
                text = f"{burst.count - BURST} decisions of the kind {kind.value} were not noted"
                cause = f"{burst.count} came within {BURST_MS} ms, the first {BURST} are kept"
                self.note(kind, self.node, text, cause=cause, decisions=burst.count)
            return True
        burst.count += 1
        return burst.count <= BURST

    def keep(self, note: Note) -> None:
        """Put a certain decision into the ring and the log."""
        text, cause = note.text, note.cause
        if not cause:
            text, _, cause = text.partition(": ")
        decision = Decision(
            number=self.next_number,
            at_ms=self._now_ms(),
            node=self.node,
            kind=note.kind,
            subject=cut(note.subject),
            also=tuple(cut(it) for it in note.also[:MAX_LIST]),
            what=cut(text, MAX_SENTENCE),
            cause=cut(cause, MAX_SENTENCE),
            facts={name: _kept(fact) for name, fact in note.facts.items()},
        )
        self.next_number += 1
        ring = self._routine if note.routine else self._ring
        if len(ring) == ring.maxlen:
            self.first_number = max(self.first_number, ring[0].number + 1)
        ring.append(decision)
        level = logging.DEBUG if note.routine else logging.INFO
        if log.isEnabledFor(level):
            log.log(level, "%s", decision.as_log_line())

    def take(self, notes: Iterable[Note], **facts: Fact) -> None:
        """Keep the notes of a core, now that they are certain. `facts` are known only now."""
        for it in notes:
            if it.kind in _BY_PARTITION and not self.accepts(it.kind):
                continue
            self.keep(replace(it, facts={**it.facts, **facts}) if facts else it)

    def since(
        self, number: int, subject: str | None = None, limit: int = RING_SIZE, kind: str | None = None
    ) -> list[Decision]:
        """Decisions from `number` on, oldest first, at most `limit`, of one subject and kind or of all."""
        if subject is not None:
            subject = cut(subject)
        everything = merge(self._ring, self._routine, key=_number) if self._routine else self._ring
        found = (
            it
            for it in everything
            if it.number >= number and (subject is None or it.concerns(subject)) and kind in (None, it.kind)
        )
        return list(islice(found, max(0, limit)))

    def subjects(self) -> list[str]:
        """All subjects of kept decisions, sorted."""
        found: dict[str, None] = {}
        for decision in chain(self._ring, self._routine):
            found[decision.subject] = None
            found.update(dict.fromkeys(decision.also))
        return sorted(found)


def _number(decision: Decision) -> int:
    return decision.number


def _kept(fact: Fact) -> Fact:
    if fact is None or isinstance(fact, int):
        return fact
    if isinstance(fact, str):
        return cut(fact)
    return tuple(fact[:MAX_LIST])
