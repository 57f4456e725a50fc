"""Sends the requests of a trace again: each recorded connection as one of its own, in the recorded order.

A request leaves when the one before it on its connection is answered. Ids that a cluster gave out (of members,
producers, sessions) are those of the trace, so a cluster that never gave them refuses what needs them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.answering import read_answer
from barnabas.fault_proxy.dialogue import sized
from barnabas.fault_proxy.frames import TooLong, WholeFrames
from barnabas.fault_proxy.listeners import LOOPBACK, BrokerListener
from barnabas.fault_proxy.requests import Asked, BadRequest, read_request
from barnabas.fault_proxy.setup import ProxySetup, running_proxy
from barnabas.fault_proxy.shown import errors_in
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, Network

MOST_LINE_BYTES = 8 << 20
ANSWER_SECONDS = 30.0
MOST_ANSWER_BYTES = 256 << 20
_RECEIVE_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request of a trace."""

    connection: int
    node_id: int
    asked: Asked


@dataclass(slots=True)
class Trace:
    """The requests of a file."""

    requests: list[Recorded] = field(default_factory=list)
    without_bytes: int = 0
    """Number of requests that the trace has no bytes of: they were too long, or had secrets."""


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    sent: int = 0
    answered: int = 0
    connections: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Number of answers by `API ERROR`."""
    lost: list[str] = field(default_factory=list)
    """A line for each connection that ended early."""


def read_trace(path: Path) -> Trace:
    """Raises `WrongArgument` with the line that is no entry."""
    trace = Trace()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file), start=1):
                entry = _entry(line, f"{path}, line {number}")
                if entry["direction"] != "request":
                    continue
                if "frame" not in entry:
                    trace.without_bytes += 1
                    continue
                trace.requests.append(_recorded(entry, f"{path}, line {number}"))
    except OSError as error:
        raise WrongArgument(f"{path}: {error.strerror}") from None
    return trace


def _lines(file: Any) -> Iterator[bytes]:
    while line := file.readline(MOST_LINE_BYTES):
        yield line


def _entry(line: bytes, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or entry.get("direction") not in ("request", "response"):
        raise WrongArgument(f"{where}: no entry of a trace, as `barnabas proxy --trace` writes it")
    return entry


def _recorded(entry: Mapping[str, Any], where: str) -> Recorded:
    try:
        asked = read_request(base64.b64decode(entry["frame"], validate=True))
        return Recorded(int(entry["connection"]), int(entry.get("node_id", -1)), asked)
    except (KeyError, TypeError, ValueError, binascii.Error, BadRequest) as error:
        raise WrongArgument(f"{where}: {error}") from None


async def replay(trace: Trace, setup: ProxySetup) -> Replayed:
    """Send the requests to the cluster of `setup`, through a proxy without rules, which logs in. Raises `ClusterError`
    if the cluster does not answer."""
    by_connection: dict[int, list[Recorded]] = defaultdict(list)
    for each in trace.requests:
        by_connection[each.connection].append(each)
    replayed = Replayed()
    async with running_proxy(setup) as proxy:
        listeners = list(proxy.listeners.values())
        by_id = {each.node_id: each for each in listeners if each.node_id >= 0}
        async with trio.open_nursery() as nursery:
            for requests in by_connection.values():
                listener = by_id.get(requests[0].node_id, listeners[0])
                nursery.start_soon(_Connection(proxy.world.network, listener, replayed).send, requests)
    return replayed


class _Connection:
    """One connection of the trace."""

    def __init__(self, network: Network, listener: BrokerListener, replayed: Replayed) -> None:
        self._network = network
        self._listener = listener
        self._replayed = replayed

    async def send(self, requests: Iterable[Recorded]) -> None:
        """Send all, unless the connection ends."""
        name = self._listener.name
        try:
            connection = await self._network.dial(LOOPBACK, self._listener.port)
        except DialFailed as error:
            self._replayed.lost.append(f"{name}: {error}")
            return
        self._replayed.connections += 1
        frames = WholeFrames(MOST_ANSWER_BYTES)
        try:
            for each in requests:
                await self._exchange(connection, frames, each.asked)
        except (ConnectionLost, TooLong, trio.TooSlowError) as error:
            self._replayed.lost.append(f"{name}: {str(error) or f'no answer within {ANSWER_SECONDS:.0f} s'}")
        finally:
            connection.close()

    async def _exchange(self, connection: Connection, frames: WholeFrames, asked: Asked) -> None:
        rest = memoryview(sized(asked.frame))
        while rest:
            sent = connection.send_now([rest])
            rest = rest[sent:]
            if rest:
                await connection.wait_writable()
        self._replayed.sent += 1
        if asked.wants_no_answer:
            return
        buffer = memoryview(bytearray(_RECEIVE_BYTES))
        with trio.fail_after(ANSWER_SECONDS):
            while not (answers := frames.feed(bytes(buffer[: await connection.receive_into(buffer)]))):
                pass
        self._replayed.answered += 1
        if asked.spec is not None:
            answer = read_answer(answers[0], asked.spec, asked.version)
            names = [] if answer is None else errors_in(answer, asked.version)
            self._replayed.errors.update(f"{asked.spec.name} {name}" for name in names)
