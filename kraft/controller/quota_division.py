"""Core: how the active controller divides quotas of the whole cluster between the brokers that report their use.

Amounts are fractions of a limit. Each registered broker has an equal part of the reserve; the rest goes to the brokers
that reported use of the client. A broker that held the client back wants twice as much, another one a quarter more.
Small wishes are met, the others get equal parts, and what nobody wants goes to the brokers by their use.

No part is given before another broker has let go of it: a part counts until the next report of its broker shows a
smaller one, or the broker is silent for three windows, or its session ends. A silent broker that is not fenced counts
as 1 / brokers, which it falls back to by itself (`runtime.quotas.parts`). All this is soft state: a new controller
raises no part before every unfenced broker reported to it, or three windows have passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.runtime.quotas.parts import RESERVE, VALID_WINDOWS, ClientUse, UseReport

if TYPE_CHECKING:
    from barnabas.kraft.controller.state import Steps

HEADROOM = 1.25
"""A broker may use a quarter more than it lately did, before it has to ask."""
GROWTH = 2.0
"""The wish of a broker that held the client back, as a factor."""
LEAST_WISH = 0.001
MOST_CLIENTS = 10_000
"""The brokers of further clients have their parts of the reserve."""
STEP_VISITS = 200
"""Uses of clients that one step of a decision looks at: less than a millisecond."""
DIVIDED_AGAIN_MS = 10
"""The division of a client is kept for this long for each broker that uses it: many brokers report often."""


class Standing(Enum):
    """The state of a registered broker, as far as quotas depend on it."""

    ACTIVE = "active"
    FENCED = "fenced"
    """It may still serve clients, but its use does not count."""
    GONE = "gone"
    """Fenced, and its session has ended."""


@dataclass(slots=True)
class _Use:
    """The use of a client on one broker."""

    wanted: float
    held: float
    """The largest part that the broker may have now."""


@dataclass(slots=True)
class _Client:
    """The brokers that use a client, and how the limit was divided last."""

    uses: dict[int, _Use] = field(default_factory=dict)
    held: float = 0.0
    """The sum of `uses`."""
    level: float = 0.0
    """The most that a broker gets besides its part of the reserve."""
    scale: float = 1.0
    """Factor for what brokers want besides it."""
    divided_until_ms: int = 0


@dataclass(slots=True)
class _Reporter:
    """The last report of one incarnation of a broker."""

    epoch: int
    sequence: int
    heard_ms: int
    window_ms: int
    other_part: float = 0.0
    """The largest part that it may have of clients that it did not report."""
    keys: set[bytes] = field(default_factory=set)

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self.heard_ms > VALID_WINDOWS * self.window_ms


class _Shape(NamedTuple):
    """The cluster at one report."""

    brokers: int
    excess: dict[int, float]
    """The parts of clients that brokers did not report, as far as they may be above those of the reserve. An unfenced
    broker without a report within three windows may have 1 / brokers of each."""
    is_settling: bool

    @property
    def reserved(self) -> float:
        """The part of the reserve of one broker."""
        return RESERVE / self.brokers

    def elsewhere(self, client: _Client) -> float:
        """The sum of the parts that other brokers may have, which did not report this client."""
        unreported = (self.brokers - len(client.uses)) * self.reserved
        return unreported + sum(it for broker_id, it in self.excess.items() if broker_id not in client.uses)


class QuotaDivision:
    """One per controller. Times are milliseconds on the monotonic clock."""

    def __init__(self) -> None:
        self._began_ms = 0
        self._reporters: dict[int, _Reporter] = {}
        self._clients: dict[bytes, _Client] = {}

    def clear(self, now_ms: int) -> None:
        """Forget everything: this controller has become the active one, or is it no longer."""
        self._began_ms = now_ms
        self._reporters.clear()
        self._clients.clear()

    @property
    def clients(self) -> int:
        """The number of clients whose limits are divided."""
        return len(self._clients)

    def report(
        self, brokers: Mapping[int, Standing], sender: tuple[int, int], report: UseReport, now_ms: int
    ) -> Steps[list[float] | None]:
        """The parts of a broker for the clients of its report; None if a newer report was there, or to wait.

        `brokers`: those that are registered. `sender`: broker id and epoch, which is the broker's current one. The use
        on a fenced broker does not count: it gets its parts of the reserve.
        """
        broker_id, epoch = sender
        reporter = self._reporters.get(broker_id)
        if reporter is not None and reporter.epoch == epoch and report.sequence < reporter.sequence:
            return None
        if reporter is None or reporter.epoch != epoch:
            if reporter is not None:
                yield from self._forget(broker_id, reporter)
            reporter = self._reporters[broker_id] = _Reporter(epoch, -1, now_ms, report.window_ms)
        is_repeated = report.sequence == reporter.sequence
        reporter.sequence, reporter.heard_ms, reporter.window_ms = report.sequence, now_ms, report.window_ms
        reporter.other_part = max(report.other_part, reporter.other_part if is_repeated else 0.0)
        yield from self._forget_silent(brokers, now_ms)
        shape = self._shape(brokers, report, now_ms)
        is_fenced = brokers[broker_id] is not Standing.ACTIVE
        yield from self._forget_unused(broker_id, reporter, report)
        parts: list[float] = []
        visits = 0
        for use in report.uses:
            client = self._client(use.key)
            if client is None:
                parts.append(shape.reserved)
                continue
            reporter.keys.add(use.key)
            if is_fenced:
                use = use._replace(use=0.0, is_held=False)
            own = _note(client, broker_id, use, is_repeated=is_repeated)
            if now_ms >= client.divided_until_ms:
                _divide(client, shape, now_ms)
                visits += len(client.uses) + len(shape.excess)
            most = use.part if shape.is_settling else shape.reserved if is_fenced else 1.0
            parts.append(_grant(client, own, most, shape))
            visits += 1 + len(shape.excess)
            if visits >= STEP_VISITS:
                visits = 0
                yield None
        # A broker that falls back to 1 / brokers reports that, and may have less yet: an answer would raise its parts.
        return None if shape.is_settling and broker_id in shape.excess else parts

    def _client(self, key: bytes) -> _Client | None:
        client = self._clients.get(key)
        if client is None and len(self._clients) < MOST_CLIENTS:
            client = self._clients[key] = _Client()
        return client

    def _shape(self, brokers: Mapping[int, Standing], report: UseReport, now_ms: int) -> _Shape:
        equal, reserved = 1 / len(brokers), RESERVE / len(brokers)
        excess: dict[int, float] = {}
        is_unheard = False
        for broker_id, standing in brokers.items():
            reporter = self._reporters.get(broker_id)
            if reporter is not None and not reporter.is_silent(now_ms):
                may_have = reporter.other_part if standing is not Standing.GONE else 0.0
            else:
                may_have = equal if standing is Standing.ACTIVE else 0.0
                is_unheard = is_unheard or (reporter is None and standing is Standing.ACTIVE)
            if may_have > reserved:
                excess[broker_id] = may_have - reserved
        is_settling = is_unheard and now_ms - self._began_ms <= VALID_WINDOWS * report.window_ms
        return _Shape(len(brokers), excess, is_settling)

    # -- forgetting

    def _forget_silent(self, brokers: Mapping[int, Standing], now_ms: int) -> Steps[None]:
        """Forget uses on brokers that are gone or silent."""
        for broker_id, reporter in list(self._reporters.items()):
            is_gone = brokers.get(broker_id, Standing.GONE) is Standing.GONE
            if reporter.keys and (is_gone or reporter.is_silent(now_ms)):
                yield from self._forget(broker_id, reporter)
            if broker_id not in brokers:
                del self._reporters[broker_id]

    def _forget(self, broker_id: int, reporter: _Reporter) -> Steps[None]:
        yield from self._forget_keys(broker_id, reporter, list(reporter.keys))

    def _forget_unused(self, broker_id: int, reporter: _Reporter, report: UseReport) -> Steps[None]:
        """Forget the clients of the last report that are not in this one: the broker has given their parts up."""
        reported = {it.key for it in report.uses}
        yield from self._forget_keys(broker_id, reporter, [key for key in reporter.keys if key not in reported])

    def _forget_keys(self, broker_id: int, reporter: _Reporter, keys: Iterable[bytes]) -> Steps[None]:
        for count, key in enumerate(keys, 1):
            reporter.keys.discard(key)
            client = self._clients[key]
            client.held -= client.uses.pop(broker_id).held
            client.divided_until_ms = 0
            if not client.uses:
                del self._clients[key]
            if count % STEP_VISITS == 0:
                yield None


def _note(client: _Client, broker_id: int, use: ClientUse, *, is_repeated: bool) -> _Use:
    """Take over what a report says. A repeated one proves nothing of the part that the broker has: the answer to the
    first one may have arrived after it was repeated."""
    wanted = min(1.0, GROWTH * max(use.use, use.part) if use.is_held else HEADROOM * use.use)
    own = client.uses.get(broker_id)
    if own is None:
        own = client.uses[broker_id] = _Use(wanted, 0.0)
        client.divided_until_ms = 0
    held = max(own.held, use.part) if is_repeated else use.part
    client.held += held - own.held
    own.wanted, own.held = wanted, held
    return own


def _wish(use: _Use, shape: _Shape) -> float:
    """The part that a broker wants besides that of the reserve; never zero, so that it gets some of the rest."""
    return max(LEAST_WISH, use.wanted - shape.reserved)


def _divide(client: _Client, shape: _Shape, now_ms: int) -> None:
    """Fill the smallest wishes first, up to one level for all that are above it."""
    uses = client.uses.values()
    client.held = sum(use.held for use in uses)
    left = max(0.0, 1 - shape.elsewhere(client) - len(uses) * shape.reserved)
    wishes = sorted(_wish(use, shape) for use in uses)
    total = sum(wishes)
    client.level, client.scale = 1.0, 1.0
    if total <= left:
        client.scale = left / total
    else:
        for count, wish in zip(range(len(wishes), 0, -1), wishes, strict=True):
            client.level = left / count
            if wish > client.level:
                break
            left -= wish
    client.divided_until_ms = now_ms + DIVIDED_AGAIN_MS * len(wishes)


def _grant(client: _Client, own: _Use, most: float, shape: _Shape) -> float:
    """The new part of a broker, as far as the others have left room for it."""
    grant = shape.reserved + min(_wish(own, shape) * client.scale, client.level)
    others = client.held - own.held + shape.elsewhere(client)
    grant = max(0.0, min(grant, most, 1 - others))
    client.held += max(0.0, grant - own.held)
    own.held = max(own.held, grant)
    return grant
