"""Quotas of a whole cluster beside a plain division, which sums up everything again at each report."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from barnabas.kraft.controller import quota_division
from barnabas.kraft.controller.quota_division import QuotaDivision, Standing
from barnabas.runtime.quotas.parts import RESERVE, VALID_WINDOWS, ClientUse, UseReport
from tests.kraft.controller.conftest import finish

STEP_VISITS = 3
"""Steps are short here."""
KEYS = (b"a" * 16, b"b" * 16, b"c" * 16)
MOST_CLIENTS = 2
"""Further ones have the brokers' parts of the reserve."""
GAMES, REPORTS = 40, 30


@dataclass
class PlainUse:
    wanted: float
    held: float = 0.0


@dataclass
class PlainReporter:
    """A broker that has reported, and the clients that it reported last."""

    epoch: int
    sequence: int = -1
    heard_ms: int = 0
    window_ms: int = 0
    other_part: float = 0.0
    uses: dict[bytes, PlainUse] = field(default_factory=dict)

    def is_silent(self, now_ms: int) -> bool:
        return now_ms > self.heard_ms + VALID_WINDOWS * self.window_ms


@dataclass
class Division:
    """How a client was divided the last time; kept for 10 ms for each broker, or until its brokers change."""

    level: float
    scale: float
    until_ms: int
    brokers: set[int]


@dataclass
class PlainDivision:
    """All reports that still count."""

    began_ms: int
    reporters: dict[int, PlainReporter] = field(default_factory=dict)
    divisions: dict[bytes, Division] = field(default_factory=dict)
    visits: int = 0
    steps: int = 0

    def forget(self, broker_id: int, keys: list[bytes]) -> None:
        for key in keys:
            del self.reporters[broker_id].uses[key]
            self.divisions.pop(key, None)
        self.steps += len(keys) // STEP_VISITS

    def known(self) -> set[bytes]:
        """The clients whose limits are divided."""
        return {key for it in self.reporters.values() for key in it.uses}

    def users(self, key: bytes) -> dict[int, PlainUse]:
        return {it: each.uses[key] for it, each in self.reporters.items() if key in each.uses}

    def report(
        self, brokers: dict[int, Standing], sender: tuple[int, int], report: UseReport, now_ms: int
    ) -> list[float] | None:
        broker_id, epoch = sender
        self.visits = self.steps = 0
        mine = self.reporters.get(broker_id)
        if mine is not None and mine.epoch == epoch and report.sequence < mine.sequence:
            return None
        if mine is None or mine.epoch != epoch:
            if mine is not None:
                self.forget(broker_id, list(mine.uses))
            mine = self.reporters[broker_id] = PlainReporter(epoch)
        is_again = report.sequence == mine.sequence
        mine.sequence, mine.heard_ms, mine.window_ms = report.sequence, now_ms, report.window_ms
        mine.other_part = max(mine.other_part, report.other_part) if is_again else report.other_part
        for each, reporter in list(self.reporters.items()):
            if brokers.get(each, Standing.GONE) is Standing.GONE or reporter.is_silent(now_ms):
                self.forget(each, list(reporter.uses))
            if each not in brokers:
                del self.reporters[each]
        self.forget(broker_id, [key for key in mine.uses if key not in {it.key for it in report.uses}])
        excess = self.excess(brokers, now_ms)
        waits_for = [it for it in brokers if brokers[it] is Standing.ACTIVE and it not in self.reporters]
        is_settling = bool(waits_for) and now_ms <= self.began_ms + VALID_WINDOWS * report.window_ms
        parts = []
        for use in report.uses:
            if use.key not in self.known() and len(self.known()) >= MOST_CLIENTS:
                parts.append(RESERVE / len(brokers))
                continue
            if brokers[broker_id] is not Standing.ACTIVE:
                use = use._replace(use=0.0, is_held=False)
            most = 1.0 if brokers[broker_id] is Standing.ACTIVE else RESERVE / len(brokers)
            self.take(mine, use, is_again=is_again)
            granted = self.grant(broker_id, use.key, (len(brokers), excess), now_ms)
            granted = max(0.0, min(granted, use.part if is_settling else most))
            mine.uses[use.key].held = max(mine.uses[use.key].held, granted)
            parts.append(granted)
            if self.visits >= STEP_VISITS:
                self.visits, self.steps = 0, self.steps + 1
        return None if is_settling and broker_id in excess else parts

    def excess(self, brokers: dict[int, Standing], now_ms: int) -> dict[int, float]:
        """The part of a client that a broker may have without a report of it, above its part of the reserve."""
        found = {}
        for each, standing in brokers.items():
            reporter = self.reporters.get(each)
            if standing is Standing.GONE:
                continue
            if reporter is not None and not reporter.is_silent(now_ms):
                found[each] = reporter.other_part - RESERVE / len(brokers)
            elif standing is Standing.ACTIVE:
                found[each] = (1 - RESERVE) / len(brokers)
        return {each: part for each, part in found.items() if part > 0}

    def take(self, mine: PlainReporter, use: ClientUse, *, is_again: bool) -> None:
        """A broker that held the client back wants twice as much, others a quarter more."""
        wanted = min(1.0, 2 * max(use.use, use.part)) if use.is_held else 1.25 * use.use
        known = mine.uses.get(use.key)
        if known is None:
            self.divisions.pop(use.key, None)
        held = use.part if known is None or not is_again else max(known.held, use.part)
        mine.uses[use.key] = PlainUse(wanted, held)

    def grant(self, broker_id: int, key: bytes, shape: tuple[int, dict[int, float]], now_ms: int) -> float:
        count, excess = shape
        reserved = RESERVE / count
        users = self.users(key)
        elsewhere = (count - len(users)) * reserved + sum(part for each, part in excess.items() if each not in users)
        wishes = {each: max(0.001, use.wanted - reserved) for each, use in users.items()}
        known = self.divisions.get(key)
        if known is None or now_ms >= known.until_ms:
            left = max(0.0, 1 - elsewhere - len(users) * reserved)
            total = sum(wishes.values())
            scale, level = (left / total, 1.0) if total <= left else (1.0, filled(list(wishes.values()), left))
            known = self.divisions[key] = Division(level, scale, now_ms + 10 * len(users), set(users))
            self.visits += len(users) + len(excess)
        self.visits += 1 + len(excess)
        wanted = reserved + min(wishes[broker_id] * known.scale, known.level)
        others = sum(use.held for each, use in users.items() if each != broker_id) + elsewhere
        return min(wanted, 1 - others)


def filled(wishes: list[float], left: float) -> float:
    """The level up to which all wishes together take `left`."""
    least, most = 0.0, 1.0
    for _ in range(60):
        middle = (least + most) / 2
        least, most = (middle, most) if sum(min(wish, middle) for wish in wishes) < left else (least, middle)
    return least


class Play:
    """Brokers that report what they like, at any time, twice, late, and as other incarnations."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.now_ms = 50_000
        self.real, self.plain = QuotaDivision(), PlainDivision(self.now_ms)
        self.real.clear(self.now_ms)
        count = chance.randrange(1, 6)
        self.brokers = dict.fromkeys(range(1, count + 1), Standing.ACTIVE)
        self.epochs = dict.fromkeys(self.brokers, 1)
        self.sequences = dict.fromkeys(self.brokers, 0)
        self.parts: dict[tuple[int, bytes], float] = {}
        self.window_ms = chance.choice([1_000, 2_000])

    def event(self) -> None:
        chance, broker_id = self.chance, self.chance.choice(list(self.brokers))
        match chance.choice(["fence", "unfence", "gone", "restart", "leave", "join", "fail over", "", "", "", "", ""]):
            case "fence":
                self.brokers[broker_id] = Standing.FENCED
            case "unfence":
                self.brokers = dict.fromkeys(self.brokers, Standing.ACTIVE)
            case "gone":
                self.brokers[broker_id] = Standing.GONE
            case "restart":
                self.epochs[broker_id] += 1
                self.sequences[broker_id] = 0
            case "leave" if len(self.brokers) > 1:
                del self.brokers[broker_id]
            case "join":
                self.brokers[max(self.epochs) + 1] = Standing.ACTIVE
                self.sequences[max(self.epochs) + 1] = 0
                self.epochs[max(self.epochs) + 1] = 1
            case "fail over" if chance.random() < 0.3:
                self.real.clear(self.now_ms)
                self.plain = PlainDivision(self.now_ms)

    def report(self, broker_id: int) -> UseReport:
        chance = self.chance
        self.sequences[broker_id] = max(0, self.sequences[broker_id] + chance.choice([1, 1, 1, 1, 0, 0, -1]))
        keys = [key for key in KEYS if chance.random() < 0.7]
        reserved = RESERVE / len(self.brokers)
        uses = tuple(
            ClientUse(
                key,
                chance.choice([0.0, 0.05, 0.3, 1.0, 3.0]),
                self.parts.get((broker_id, key), chance.choice([reserved, 0.3])),
                chance.random() < 0.4,
            )
            for key in keys
        )
        other = chance.choice([reserved, reserved, reserved, 0.0, 1 / len(self.brokers)])
        return UseReport(self.sequences[broker_id], self.window_ms, other, uses)

    def play(self) -> None:
        for _ in range(REPORTS):
            self.event()
            windows = self.window_ms * VALID_WINDOWS
            self.now_ms += self.chance.choice([0, 1, 9, 10, 11, 20, 29, 500, 500, windows, windows + 1])
            broker_id = self.chance.choice(list(self.brokers))
            report, sender = self.report(broker_id), (broker_id, self.epochs[broker_id])
            expected = self.plain.report(self.brokers, sender, report, self.now_ms)
            took: list[int] = []
            steps = self.real.report(self.brokers, sender, report, self.now_ms)
            parts = finish(steps, lambda: took.append(1))  # noqa: B023 - called at once
            assert (parts is None) == (expected is None)
            assert parts is None or parts == pytest.approx(expected, abs=1e-9)
            assert len(took) == 1 + self.plain.steps
            assert self.real.clients == len(self.plain.known())
            for use, part in zip(report.uses, parts or (), strict=False):
                if self.chance.random() < 0.8:
                    self.parts[broker_id, use.key] = part


@pytest.mark.feature("QU-09")
@pytest.mark.parametrize("block", range(4))
def test_the_parts_are_those_of_a_plain_division(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_division, "STEP_VISITS", STEP_VISITS)
    monkeypatch.setattr(quota_division, "MOST_CLIENTS", MOST_CLIENTS)
    for seed in range(block * GAMES, (block + 1) * GAMES):
        try:
            Play(seed).play()
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
