"""Faults of single messages on simulated wires: the proxy's core (`barnabas.fault_proxy`) in every connection.

What it lets out goes over the link as before; links themselves are broken elsewhere. It has to follow every connection
from its first byte on, to know where messages begin; so it is there or not for a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.fault_proxy.frames import Conversation
from barnabas.fault_proxy.rules import Faults, MessageRule, Way
from barnabas.fault_proxy.stream import Ends, Stream
from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.network import SimulatedConnection
from barnabas.runtime.simulated.pipe import FIN, RST, Pipe


class MessageFaults:
    """The message faults of one universe, for all connections made from now on."""

    def __init__(self, universe: Universe, name_of: Callable[[str], str]) -> None:
        """`name_of` gives the name by which rules know a host."""
        self._universe = universe
        self._name_of = name_of
        self._chance = universe.stream("messages")
        self._waiting: dict[_Filter, None] = {}
        """Those that keep something back, in their order."""
        self.faults = Faults(on_change=self._changed)
        universe.fabric.on_connected = self._connected

    def add(self, rule: MessageRule) -> int:
        """Gives the number for `clear`."""
        return self.faults.add_rule(rule)

    def clear(self, number: int) -> int:
        """Removes a rule; messages that it held go on. Returns the number of messages that it met."""
        return self.faults.clear_rule(number)

    def asked(self) -> Mapping[Way, int]:
        """Number of requests from each client or node to each node since the beginning."""
        return dict(self.faults.asked)

    def heal(self) -> None:
        self.faults.heal()

    @property
    def now(self) -> float:
        return self._universe.time.now

    def call_at(self, when: float, filter_: _Filter) -> None:
        self._universe.time.call_at(when, _look_again, filter_)

    def waits(self, filter_: _Filter, *, still: bool) -> None:
        if still:
            self._waiting[filter_] = None
        else:
            self._waiting.pop(filter_, None)

    def _connected(self, near: SimulatedConnection, far: SimulatedConnection) -> None:
        ends = Ends(self._name_of(far.peer_host), self._name_of(near.peer_host))
        conversation = Conversation()
        for connection, is_request in ((near, True), (far, False)):
            stream = Stream(ends, conversation, self.faults, self._chance, is_request=is_request)
            connection.outgoing.filter = _Filter(self, connection, connection.outgoing, stream).take_in

    def _changed(self) -> None:
        for filter_ in list(self._waiting):
            filter_.let_out()


class _Filter:
    """One direction of a connection."""

    __slots__ = ("_all", "_connection", "_given", "_is_over", "_left", "_looks_at", "_pipe", "_stream", "_swallowed")

    def __init__(self, all_: MessageFaults, connection: SimulatedConnection, pipe: Pipe, stream: Stream) -> None:
        self._all = all_
        self._connection = connection
        self._pipe = pipe
        self._stream = stream
        self._is_over = False
        self._looks_at: float | None = None
        self._given = self._left = self._swallowed = 0
        """Bytes so far."""

    def take_in(self, data: bytes) -> None:
        if data is RST or self._is_over:
            # A reset does not wait for bytes in flight.
            self._over(data)
        elif data is FIN:
            self._stream.end(self._all.now)
            self.let_out()
        else:
            self._given += len(data)
            self._stream.feed(data, self._all.now)
            self.let_out()

    def look_again(self) -> None:
        self._looks_at = None
        self.let_out()

    def let_out(self) -> None:
        """Sends what may go now, and looks again when more may."""
        if self._is_over:
            return
        stream, now = self._stream, self._all.now
        for data in stream.take(now):
            self._left += len(data)
            self._pipe.let_out(data)
        dropped = self._given - self._left - stream.kept_bytes - self._swallowed
        if dropped:
            self._swallowed += dropped
            self._pipe.swallowed(dropped)
        if stream.is_reset:
            self._over(RST)
            self._connection.peer_gone("reset by the peer")
        elif stream.is_over:
            self._over(FIN)
        else:
            self._wait(stream.next_due(now))

    def _wait(self, due: float | None) -> None:
        self._all.waits(self, still=self._stream.waits)
        if due is not None and (self._looks_at is None or due < self._looks_at):
            self._looks_at = due
            self._all.call_at(due, self)

    def _over(self, mark: bytes) -> None:
        self._is_over = True
        self._all.waits(self, still=False)
        self._pipe.let_out(mark)


def _look_again(filter_: _Filter) -> None:
    filter_.look_again()
