"""Core: faults of links, and of messages of some API: a table that all connections read.

Chance comes from outside, and nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from barnabas.fault_proxy.frames import Message
from barnabas.runtime.world import Chance

CLIENT = "client"
"""The name of all hosts that are no node."""

Action = Literal["hold", "drop", "delay", "reset"]


@dataclass(frozen=True, slots=True)
class LinkState:
    """State of one direction between two names. All zero: no fault."""

    cut: bool = False
    """Nothing passes, and neither end notices."""
    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    """On top of the latency, at most; order stays."""
    bytes_per_second: int = 0
    """0: as fast as it goes."""
    loss: float = 0.0
    """Probability that a burst waits until TCP would have sent it again: 200 ms, and twice as long each time."""
    half_open: bool = False
    """Like a cut, but new connections are accepted."""
    reset_after_bytes: int = 0
    """Number of bytes after which a connection is reset, in the middle of a frame; 0: never."""

    @property
    def carries(self) -> bool:
        return not (self.cut or self.half_open)


WHOLE = LinkState()


@dataclass(frozen=True, slots=True)
class MessageRule:
    """A fault of requests of an API, or of their responses."""

    api_key: int
    direction: Literal["request", "response"]
    action: Action
    """`hold` it, and what follows it in its direction, until the rule is cleared; `drop` it; let it wait `delay_ms`;
    `reset` the connection after a request was carried, or instead of an answer."""
    delay_ms: float = 0.0
    source: str | None = None
    """Sender of the request, for either direction: a node, or `CLIENT`; None: any."""
    target: str | None = None
    """Receiver of the request: a node."""
    probability: float = 1.0

    def is_about(self, message: Message, source: str, target: str) -> bool:
        return (
            message.api_key == self.api_key
            and message.is_request == (self.direction == "request")
            and self.source in (None, source)
            and self.target in (None, target)
        )


class Way(NamedTuple):
    """The path of requests of one API."""

    api_key: int
    source: str
    """Sender of the request: a node, or `CLIENT`."""
    target: str
    """Receiver of the request: a node."""


@dataclass(slots=True)
class Faults:
    """Everything that is wrong now."""

    on_change: Callable[[], None] = lambda: None
    version: int = 0
    """Another one after each change."""
    _links: dict[tuple[str, str], LinkState] = field(default_factory=dict)
    _rules: dict[int, MessageRule] = field(default_factory=dict)
    _last_rule: int = 0
    struck: dict[int, int] = field(default_factory=dict)
    """Number of messages that each rule met."""
    asked: dict[Way, int] = field(default_factory=dict)
    """Number of requests on each path since the beginning, also of those that faults met; healing does not reset it."""

    def link(self, source: str, target: str) -> LinkState:
        return self._links.get((source, target), WHOLE)

    def set_link(self, source: str, target: str, state: LinkState) -> None:
        self._links.pop((source, target), None)
        if state != WHOLE:
            self._links[source, target] = state
        self._changed()

    def add_rule(self, rule: MessageRule) -> int:
        """Gives the number for `clear_rule`."""
        self._last_rule += 1
        self._rules[self._last_rule] = rule
        self.struck[self._last_rule] = 0
        self._changed()
        return self._last_rule

    def clear_rule(self, number: int) -> int:
        """Removes a rule; messages that it held go on. Returns the number of messages that it met."""
        self._rules.pop(number, None)
        self._changed()
        return self.struck.pop(number, 0)

    def heal(self) -> None:
        """Takes back all faults."""
        self._links.clear()
        self._rules.clear()
        self.struck.clear()
        self._changed()

    def holds(self, number: int) -> bool:
        """True if the rule that held a message still exists."""
        return number in self._rules

    def rule_for(self, message: Message, source: str, target: str, chance: Chance) -> tuple[int, MessageRule] | None:
        """The first rule that is about this message and strikes. To be called once for each message: it counts them."""
        if message.is_request:
            way = Way(message.api_key, source, target)
            self.asked[way] = self.asked.get(way, 0) + 1
        for number, rule in self._rules.items():
            if rule.is_about(message, source, target) and chance.random() < rule.probability:
                self.struck[number] += 1
                return number, rule
        return None

    def _changed(self) -> None:
        self.version += 1
        self.on_change()
