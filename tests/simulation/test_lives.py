"""Clients that end and come again: each life is a story of its own, and what the plan says of lives is what happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import trio

from barnabas.client.consumer.settings import ConsumerOptions
from barnabas.runtime.simulated import Universe
from barnabas.runtime.simulated.chance import Stream, make_stream
from simulation.group_workload import POLL_MS, GroupPart
from simulation.invariants.groups import GroupPromises
from simulation.seed import SeedReport, run_seed
from simulation.swarm import PLAIN, GroupPlan, Plan, draw_plan

QUIET: dict[str, object] = {
    **PLAIN,
    "fault_weights": {"clock": 1},
    "fault_pause_seconds": 4.0,
    "core_probability": 0.0,
    "producers": 1,
    "phase_seconds": 60.0,
}
"""Nothing breaks that a member would notice, so that each ends for no other reason than the plan's."""
NEVER_SECONDS = 1e9
STAY_SECONDS = 6.0
SLACK_SECONDS = POLL_MS / 1000.0 + 4.0
"""More than a member that wants to leave needs for its last poll, a rest and good manners."""


@dataclass(slots=True)
class Life:
    protocol: str
    began: float
    ended: float | None = None


@dataclass(slots=True)
class Lives:
    """Lives of each client in order."""

    by_client: dict[str, list[Life]] = field(default_factory=dict)

    def ended(self, client: str) -> list[float]:
        """How long the lives took that ended while there was still work to do: the last one waits for the others."""
        lives = self.by_client[client][:-1]
        return [life.ended - life.began for life in lives if life.ended is not None]


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> Lives:
    """Records the lives of all members of a run."""
    seen = Lives()
    options, is_gone = GroupPart.options, GroupPromises.is_gone

    def begins(self: GroupPart, client: str, chance: Stream) -> ConsumerOptions:
        chosen = options(self, client, chance)
        seen.by_client.setdefault(client, []).append(Life(chosen["group_protocol"], trio.current_time()))
        return chosen

    def ends(self: GroupPromises, client: str) -> None:
        is_gone(self, client)
        seen.by_client[client][-1].ended = trio.current_time()

    monkeypatch.setattr(GroupPart, "options", begins)
    monkeypatch.setattr(GroupPromises, "is_gone", ends)
    return seen


def group(protocol: str, mean_life_seconds: float) -> GroupPlan:
    """A group of members that leave soon."""
    return GroupPlan(
        "readers",
        protocol,
        ("range",),
        members=3,
        session_timeout_ms=6_000,
        mean_life_seconds=mean_life_seconds,
        mean_stay_seconds=STAY_SECONDS,
    )


def drawn(kind: str) -> tuple[int, Plan]:
    """The first seed that has groups, or transactions: only there brokers are configured for them."""
    for seed in range(1, 100):
        plan = draw_plan(partial(make_stream, seed))
        if plan.groups if kind == "groups" else plan.transactions is not None:
            return seed, plan
    raise AssertionError(f"no seed has {kind}")


def run_quiet(kind: str, protocol: str, mean_life_seconds: float = NEVER_SECONDS) -> SeedReport:
    """Members are killed only if it is said how soon."""
    seed, plan = drawn(kind)
    changes, members = dict(QUIET), group(protocol, mean_life_seconds)
    if plan.transactions is None:
        changes["groups"] = (members,)
    else:
        changes["transactions"] = replace(plan.transactions, transform=members)
    report = run_seed(seed, changes=changes)
    assert report.passed, report.broken
    return report


@pytest.mark.feature("FI-05")
def test_a_member_of_a_mixed_group_changes_its_protocol_from_life_to_life(lives: Lives) -> None:
    run_quiet("groups", "mixed")
    for client, its_lives in lives.by_client.items():
        assert {life.protocol for life in its_lives} == {"classic", "consumer"}, client


@pytest.mark.feature("FI-05")
@pytest.mark.parametrize("kind", ["groups", "transactions"])
def test_a_member_stays_for_another_while_in_each_life(kind: str, lives: Lives) -> None:
    """A member with a short first stay left again and again, and its group got little done."""
    run_quiet(kind, "consumer")
    for client in lives.by_client:
        stays = lives.ended(client)
        assert len(stays) >= 4, f"{client}: {stays}"
        assert max(stays) - min(stays) > SLACK_SECONDS, f"{client}: {stays}"
    stays = [stay for client in lives.by_client for stay in lives.ended(client)]
    mean_seconds = sum(stays) / len(stays)
    assert STAY_SECONDS / 1.5 < mean_seconds < STAY_SECONDS * 1.5 + SLACK_SECONDS, "what the plan says"


@pytest.mark.feature("FI-05")
def test_no_chances_come_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of randomness that begins twice repeats its choices."""
    begun: Counter[str] = Counter()
    stream = Universe.stream

    def begin(self: Universe, name: str) -> Stream:
        begun[name] += 1
        return stream(self, name)

    monkeypatch.setattr(Universe, "stream", begin)
    report = run_quiet("transactions", "classic", mean_life_seconds=8.0)
    assert report.counts["kills of writers"] and report.counts["kills of transformers"]
    assert [name for name, times in begun.items() if times > 1] == []
