"""Core: one direction of one connection: bytes come in as they arrive, and leave when links and rules let them."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.fault_proxy.frames import Conversation, Frames, Piece
from barnabas.fault_proxy.outlet import Outlet
from barnabas.fault_proxy.rules import Faults, MessageRule
from barnabas.runtime.world import Chance


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a connection: who asks, who is asked."""

    asker: str
    asked: str


class Stream(Outlet):
    """The requests, or the responses, of one connection."""

    def __init__(
        self, ends: Ends, conversation: Conversation, faults: Faults, chance: Chance, *, is_request: bool
    ) -> None:
        super().__init__((ends.asker, ends.asked) if is_request else (ends.asked, ends.asker), faults, chance)
        self._ends = ends
        self._frames = Frames(conversation, is_request=is_request)
        self._verdict: tuple[int, MessageRule] | None = None
        """The rule that struck the message that is coming in."""

    @property
    def kept_bytes(self) -> int:
        """Bytes that arrived, were not dropped, and have not left."""
        return self.buffered + self._frames.kept_bytes

    def feed(self, data: bytes, now: float) -> None:
        """These bytes arrived."""
        due = self.arrival(now)
        for piece in self._frames.feed(data):
            self._take_in(piece, due)

    def end(self, now: float) -> None:
        """The sender closed the connection, or lost it."""
        due = self.arrival(now)
        rest = self._frames.rest()
        if rest:
            self.push("bytes", rest, due)
        self.push("end", b"", due)

    def _take_in(self, piece: Piece, due: float) -> None:
        if piece.begins:
            self._verdict = self._faults.rule_for(piece.message, self._ends.asker, self._ends.asked, self._chance)
        if self._verdict is None:
            self.push("bytes", piece.data, due)
            return
        number, rule = self._verdict
        if rule.action == "hold":
            self.push("bytes", piece.data, due, held_by=number)
        elif rule.action == "delay":
            self.push("bytes", piece.data, due, delay=rule.delay_ms / 1000.0 if piece.begins else 0.0)
        elif rule.action == "reset" and not piece.message.is_request:
            if piece.begins:
                self.push("reset", b"", due)
        elif rule.action == "reset":
            self.push("bytes", piece.data, due)
            if piece.ends:
                self.push("reset", b"", due)
