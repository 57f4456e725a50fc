"""The simulated wires as a post office: letters (requests and answers) are read, kept back, and let go on.

It stands between connections and links, and changes nothing of what it does not keep. As TCP would, it keeps back what
follows a letter on the same connection, its end, too. Knows frames and headers, and no cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack

import trio

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.framing import parse_request_header
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.schema import decode, decode_prefix
from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.network import SimulatedConnection
from barnabas.runtime.simulated.pipe import FIN, RST, Pipe

Kind = Literal["request", "response"]
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Letter:
    """One frame, on its way."""

    kind: Kind
    api_key: ApiKey
    version: int
    sender: str
    receiver: str
    sent_at: float
    """Virtual seconds."""
    frame: bytes

    @property
    def message(self) -> Any:
        """The decoded message."""
        spec = API_SPECS[self.api_key]
        view = memoryview(bytearray(self.frame))
        if self.kind == "request":
            _header, position = parse_request_header(view)
            return decode(spec.request_type(), view[position:], self.version)
        position = 4
        if spec.response_header_version(self.version) == 1:
            _, position = decode_prefix(ResponseHeader, view, 0, 1)
        return decode(spec.response_type(), view[position:], self.version)


class Which(TypedDict, total=False):
    """Selects letters of an API; all of them if it is empty."""

    sender: str
    """For a response: the node that sent it."""
    receiver: str
    when: Callable[[Letter], bool]
    limit: int
    """Maximum number of letters; later ones pass."""


@dataclass(slots=True, eq=False)
class Rule:
    """The letters that are read, and whether they are held."""

    api_key: ApiKey
    kind: Kind
    keeps: bool
    which: Which
    letters: list[Letter] = field(default_factory=list)
    _gates: list[_Gate] = field(default_factory=list)
    _over: bool = False
    _news: trio.Event = field(default_factory=trio.Event)

    async def caught(self, count: int = 1, seconds: float = WAIT_SECONDS) -> list[Letter]:
        """Waits until there are this many; raises TooSlowError."""
        with trio.fail_after(seconds):
            while len(self.letters) < count:
                self._news = trio.Event()
                await self._news.wait()
        return self.letters

    def release(self) -> None:
        """Lets letters that were held go on; from now on none is held or read."""
        self._over = True
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.let_go(self)

    def takes(self, letter: Letter) -> bool:
        """Notes it, if it is one of these."""
        if self._over or letter.api_key != self.api_key or letter.kind != self.kind:
            return False
        which = self.which
        if which.get("sender", letter.sender) != letter.sender:
            return False
        if which.get("receiver", letter.receiver) != letter.receiver:
            return False
        if "limit" in which and len(self.letters) >= which["limit"]:
            return False
        if "when" in which and not which["when"](letter):
            return False
        self.letters.append(letter)
        self._news.set()
        return True

    def kept_at(self, gate: _Gate) -> None:
        self._gates.append(gate)


class Mail:
    """All letters of one universe, from the moment at which it is made."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._rules: list[Rule] = []
        universe.fabric.on_connected = self._connected

    def keep(self, api_key: ApiKey, kind: Kind = "request", **which: Unpack[Which]) -> Rule:
        """Keep such letters back, until the rule lets them go."""
        return self._add(Rule(api_key, kind, True, which))

    def read(self, api_key: ApiKey, kind: Kind = "request", **which: Unpack[Which]) -> Rule:
        """Only note them."""
        return self._add(Rule(api_key, kind, False, which))

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def rule_for(self, letter: Letter) -> Rule | None:
        """The rule that keeps this letter back, if one does; all that it fits read it."""
        keeping = [rule for rule in self._rules if rule.takes(letter) and rule.keeps]
        return keeping[0] if keeping else None

    @property
    def now(self) -> float:
        return self._universe.time.now

    def _connected(self, near: SimulatedConnection, far: SimulatedConnection) -> None:
        talk = _Talk(self, far.peer_host, near.peer_host)
        near.outgoing.gate = _Gate(talk, near.outgoing, "request")
        far.outgoing.gate = _Gate(talk, far.outgoing, "response")


@dataclass(slots=True)
class _Talk:
    """State of both directions of a connection."""

    mail: Mail
    client: str
    server: str
    asked: dict[int, tuple[ApiKey, int]] = field(default_factory=dict)
    """By correlation id."""


class _Gate:
    """One direction of a connection."""

    def __init__(self, talk: _Talk, pipe: Pipe, kind: Kind) -> None:
        self._talk = talk
        self._pipe = pipe
        self._kind: Kind = kind
        self._unread = bytearray()
        self._kept: list[int] = []
        """Sizes of the pieces that wait here."""
        self._rule: Rule | None = None

    def __call__(self, data: bytes) -> bool:
        """True if a piece may pass."""
        if data is not FIN and data is not RST:
            self._unread += data
            while self._rule is None and (frame := self._next_frame()) is not None:
                letter = self._open(frame)
                self._rule = None if letter is None else self._talk.mail.rule_for(letter)
                if self._rule is not None:
                    self._rule.kept_at(self)
        if self._rule is None and not self._kept:
            return True
        self._kept.append(len(data))
        return False

    def let_go(self, rule: Rule) -> None:
        if self._rule is not rule:
            return
        self._rule = None
        while self._rule is None and (frame := self._next_frame()) is not None:
            letter = self._open(frame)
            self._rule = None if letter is None else self._talk.mail.rule_for(letter)
            if self._rule is not None:
                self._rule.kept_at(self)
                return
        kept, self._kept = self._kept, []
        for size in kept:
            self._pipe.pass_on(size)

    def _next_frame(self) -> bytes | None:
        unread = self._unread
        if len(unread) < 4:
            return None
        end = 4 + int.from_bytes(unread[:4], "big")
        if len(unread) < end:
            return None
        frame = bytes(unread[4:end])
        del unread[:end]
        return frame

    def _open(self, frame: bytes) -> Letter | None:
        """None for what is no letter: garbage, or an answer to nothing."""
        talk = self._talk
        if self._kind == "request":
            if len(frame) < 8 or (key := int.from_bytes(frame[:2], "big")) not in _KEYS:
                return None
            version = int.from_bytes(frame[2:4], "big")
            talk.asked[int.from_bytes(frame[4:8], "big")] = (ApiKey(key), version)
            return Letter("request", ApiKey(key), version, talk.client, talk.server, talk.mail.now, frame)
        asked = talk.asked.pop(int.from_bytes(frame[:4], "big"), None)
        if asked is None:
            return None
        return Letter("response", *asked, talk.server, talk.client, talk.mail.now, frame)


_KEYS = frozenset(int(key) for key in ApiKey)
