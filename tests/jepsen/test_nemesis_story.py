"""The nemesis: what it does to a cluster, in which order, what it leaves alone, and what it leaves behind."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.errors import ClusterError
from barnabas.fault_proxy.rules import Way
from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.simulated import Universe, run_simulation
from nemeses.changes import CHANGES
from nemeses.faults import EVERYWHERE
from nemeses.kinds import COVERED, FAULTS, KINDS, PARTITION_SHAPES, ROTATIONS
from nemeses.messages import Drawn, Wish, draw
from nemeses.nemesis import Nemesis, NemesisOptions
from nemeses.shapes import SHAPES
from nemeses.simulated_faults import SIMULATED
from nemeses.stories import STORIES
from nemeses.traffic import Traffic

# Tests are imported by path; what they share is, too.
_spec = importlib.util.spec_from_file_location("jepsen_fake_cluster", Path(__file__).parent / "fake_cluster.py")
assert _spec is not None and _spec.loader is not None
_fake_cluster = sys.modules["jepsen_fake_cluster"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fake_cluster)
FakeCluster = _fake_cluster.FakeCluster

Report = tuple[float, str, str, dict[str, Any]]


class Story:
    """A nemesis, its cluster, and its reports."""

    def __init__(
        self, seed: int, kinds: tuple[str, ...] = FAULTS, options: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        self.cluster = FakeCluster(**more)
        self.reports: list[Report] = []
        options = NemesisOptions(coordinated=(("group", "g"),), **(options or {}))
        self.nemesis = Nemesis(self.cluster, kinds, random.Random(seed), 5.0, self._note, options)

    def _note(self, type_: str, f: str, value: Mapping[str, Any]) -> None:
        self.reports.append((round(trio.current_time(), 6), type_, f, dict(value)))

    async def play(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.nemesis.run()
        await self.nemesis.undo_all()


@pytest.mark.feature("FI-03")
async def test_every_kind_comes_and_the_cluster_is_whole_at_the_end(autojump_clock: trio.abc.Clock) -> None:
    story = Story(1)
    await story.play(1200)
    begun = Counter(value["kind"] for _at, type_, _f, value in story.reports if type_ == "invoke")
    assert set(FAULTS) <= set(begun)
    cluster = story.cluster
    assert set(cluster.state.values()) == {"running"}
    assert not (cluster.cuts or cluster.links or cluster.rules or cluster.full or cluster.armed or cluster.freezes)
    assert not cluster.simulated, "nothing that only a simulation can break is broken"
    assert not any(cluster.clocks.values())
    assert not cluster.broken_files and cluster.renewed
    # Whatever began to act has acted, in the same number.
    for type_ in ("invoke", "info"):
        assert [(f, v["number"]) for _at, t, f, v in story.reports if t == "invoke"].count(("heal", 0)) == 1, type_
    assert Counter((f, v["number"]) for _at, t, f, v in story.reports if t == "invoke") == Counter(
        (f, v["number"]) for _at, t, f, v in story.reports if t == "info"
    )


@pytest.mark.feature("FI-03")
def test_the_same_chance_breaks_the_same_things() -> None:
    def run(seed: int) -> list[Report]:
        reports: list[Report] = []

        async def main(_universe: Universe) -> None:
            story = Story(seed)
            await story.play(300)
            reports.extend(story.reports)

        run_simulation(1, main)
        return reports

    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.feature("FI-03")
@pytest.mark.parametrize("seed", range(3))
async def test_nobody_loses_what_the_budget_keeps(autojump_clock: trio.abc.Clock, seed: int) -> None:
    def lost(name: str) -> None:
        assert list(cluster.lost) == [name], f"{name} loses while {list(cluster.lost)} is not in sync again"

    story = Story(seed, ("kill", "stop", "power", "flip", "truncate", "wipe", "kill-at", "pause"), on_loss=lost)
    cluster = story.cluster
    losses = 0

    async def watch() -> None:
        nonlocal losses
        while True:
            await trio.sleep(0.2)
            if cluster.lost:
                losses += 1
                others = [name for name in cluster.brokers if name not in cluster.lost]
                assert any(cluster.state[name] != "dead" for name in others), "nobody is left who has everything"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await story.play(400)
        nursery.cancel_scope.cancel()
    assert losses


@pytest.mark.feature("FI-03")
async def test_faults_that_a_world_cannot_inject_are_left_out(autojump_clock: trio.abc.Clock) -> None:
    story = Story(3, ("kill", "power", "message"), cannot={"power": "no root", "message": "no proxies"})
    await story.play(100)
    assert {value["kind"] for *_rest, value in story.reports} == {"kill", "all"}
    with pytest.raises(ClusterError, match=r"must be one or more of kill, .*; got earthquake"):
        Story(3, ("kill", "earthquake"))


@pytest.mark.feature("FI-03")
async def test_authorities_are_replaced_one_by_one_while_no_file_is_broken(autojump_clock: trio.abc.Clock) -> None:
    story = Story(9, ("rotate", "kill"), {"at_once": 3})
    await story.play(2_000)
    steps = story.cluster.steps
    assert steps[:3] == ["trust both", "switch", "trust the new one"] and len(steps) > 6
    assert all(step == steps[place % 3] for place, step in enumerate(steps))
    forms = Counter(value["form"] for _at, type_, f, value in story.reports if (type_, f) == ("invoke", "rotate"))
    assert set(forms) == set(ROTATIONS)
    assert "kill" in story.nemesis.took_hold


@pytest.mark.feature("FI-03")
async def test_a_fault_that_fails_is_reported_and_repaired(autojump_clock: trio.abc.Clock) -> None:
    story = Story(4, ("membership", "kill"), fails="unregister")
    await story.play(100)
    errors = [value["error"] for _at, _type, f, value in story.reports if f == "unregister" and "error" in value]
    assert errors and set(errors) == {"unregister fails"}
    repaired = [value["number"] for _at, type_, f, value in story.reports if (type_, f) == ("info", "mend")]
    assert len(repaired) == len(errors)
    assert set(story.cluster.state.values()) == {"running"}


NODES = [f"n{number}" for number in range(6)]


@pytest.mark.feature("FI-03")
@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 1 << 30), st.integers(2, 6))
def test_shapes_of_partitions(shape: str, seed: int, count: int) -> None:
    nodes = NODES[:count]
    chance = random.Random(seed)
    victim = nodes[seed % count]
    pairs = SHAPES[shape](chance, nodes, victim)
    assert len(set(pairs)) == len(pairs) and all(a != b for a, b in pairs)
    sees = {node: {other for other in nodes if (other, node) not in pairs} for node in nodes}
    if shape == "one":
        assert sees[victim] == {victim}
    elif shape == "one-way":
        deaf = sees[victim] == {victim}
        unheard = all(victim not in sees[node] for node in nodes if node != victim)
        assert deaf != unheard or count == 1
    elif shape == "halves":
        assert len(sees[victim]) <= (count + 1) // 2
        assert all(sees[node] == sees[victim] for node in sees[victim])
    elif shape == "bridge":
        assert sees[victim] == set(nodes)
    elif count > 3:
        assert all(len(seen) > count / 2 for seen in sees.values())
        assert len({frozenset(seen) for seen in sees.values()}) > 1


@pytest.mark.feature("FI-03")
def test_every_kind_has_a_function_where_its_registry_entry_says() -> None:
    assert list(STORIES) == list(FAULTS)
    assert {name for name, kind in KINDS.items() if kind.needs == "simulation"} == set(SIMULATED)
    assert set(EVERYWHERE) == set(FAULTS) - set(SIMULATED) - set(CHANGES)
    assert set(PARTITION_SHAPES) == set(SHAPES)
    assert {"partition: halves", "kill-at", "kill-at: power", "wipe"} <= set(COVERED)


@pytest.mark.feature("FI-03")
async def test_a_kind_that_stands_three_times_comes_three_times_as_often(autojump_clock: trio.abc.Clock) -> None:
    story = Story(7, ("pause", "slow", "slow", "slow"))
    await story.play(400)
    took_hold = story.nemesis.took_hold
    assert took_hold.total() > 60
    assert took_hold["slow"] == pytest.approx(3 * took_hold["pause"], rel=0.1)


@pytest.mark.feature("FI-03")
async def test_nodes_in_rare_states_are_aimed_at(autojump_clock: trio.abc.Clock) -> None:
    story = Story(8, ("pause",), rare=("broker-3",), options={"aims": True})
    await story.play(200)
    aimed = [value["targets"] for _at, type_, f, value in story.reports if (type_, f) == ("invoke", "pause")
             and value["aim"] == "rare state"]  # fmt: skip
    assert len(aimed) > 20 and all(targets == ["broker-3"] for targets in aimed)


@pytest.mark.feature("FI-03")
async def test_some_nodes_stay_broken_until_everything_is_undone(autojump_clock: trio.abc.Clock) -> None:
    seen = set()
    for seed in range(20):
        story = Story(seed, ("kill",))
        with trio.move_on_after(20):
            await story.nemesis.run()
        cluster, rest = story.cluster, ("broker-1", "controller-101")
        fates = await story.nemesis.leave_broken(rest)
        assert set(fates) == set(rest)
        assert all(state == "running" for name, state in cluster.state.items() if name not in rest)
        for name, fate in fates.items():
            seen.add(fate)
            assert (cluster.state[name] == "dead") == (fate == "dead")
            assert (cluster.state[name] == "paused") == (fate == "paused")
            incoming, outgoing = ("broker-2", name) in cluster.cuts, (name, "broker-2") in cluster.cuts
            assert incoming == (fate in ("deaf", "cut off")) and outgoing == (fate in ("mute", "cut off"))
        await story.nemesis.undo_all()
        assert set(cluster.state.values()) == {"running"} and not cluster.cuts
    assert seen == {"dead", "cut off", "paused", "deaf", "mute"}


@pytest.mark.feature("FI-03")
async def test_faults_of_messages_are_reported_in_full(autojump_clock: trio.abc.Clock) -> None:
    """The history named the API and the node that was asked, but neither the sender nor the number of messages."""
    story = Story(5, ("message",))
    await story.play(300)
    reports = [value for _at, type_, f, value in story.reports if (type_, f) == ("invoke", "message")]
    assert {"client"} < {value["source"] for value in reports}
    for value in reports:
        assert {"api", "action", "direction", "source", "probability"} <= set(value)
        assert ("delay_ms" in value) == (value["action"] == "delay")
    heals = [value for _at, type_, f, value in story.reports if (type_, f) == ("info", "heal")]
    for healed in (value for value in heals if value["number"]):
        assert healed["met"] == 7, "how many messages the rule met, also of the last one, which the end of the run took"


@pytest.mark.feature("FI-03")
async def test_a_rule_matches_messages_that_are_sent(autojump_clock: trio.abc.Clock) -> None:
    """Three quarters of the message faults of a run met none: nobody sent such messages, or not that way."""
    story = Story(5, ("message",))
    await story.play(6_000)
    drawn = Counter[tuple[str, bool]]()
    for value in (value for _at, type_, f, value in story.reports if (type_, f) == ("invoke", "message")):
        api, source, targets = value["api"], value["source"], value["targets"]
        drawn[api, source == "client"] += 1
        if api in ("PRODUCE", "END_TXN"):
            assert source == "client"
        if api == "END_TXN":
            assert targets == ["broker-1"], "nobody asks the others"
        if api in ("FETCH", "BROKER_HEARTBEAT") and source != "client":
            assert set(targets) <= {*story.cluster.brokers, "controller-101"}
        assert ("provoked_by" in value) == (api in ("VOTE", "BEGIN_QUORUM_EPOCH", "ALTER_PARTITION"))
    of_clients = [(api, True) for api in ("PRODUCE", "FETCH", "END_TXN")]
    of_nodes = [(api, False) for api in ("FETCH", "BROKER_HEARTBEAT", "VOTE", "BEGIN_QUORUM_EPOCH", "ALTER_PARTITION")]
    assert set(drawn) == {*of_clients, *of_nodes}
    assert min(drawn.values()) * 4 > max(drawn.values()), "what comes often does not push out the rest"
    share = sum(drawn[each] for each in of_clients) / drawn.total()
    assert 0.5 < share < 0.7


@pytest.mark.feature("FI-03")
async def test_some_of_them_are_met_only_where_enough_come(autojump_clock: trio.abc.Clock) -> None:
    often = {Way(ApiKey.PRODUCE, "client", "broker-1"): 100.0, Way(ApiKey.PRODUCE, "client", "broker-2"): 2.0}
    seldom = {Way(ApiKey.INIT_PRODUCER_ID, "client", "broker-1"): 3.5}
    rules = [await draw_one(often | seldom, seed) for seed in range(300)]
    for drawn in rules:
        rule = drawn.rule
        assert rule.target != "broker-2", "two are soon none"
        assert rule.probability == 1.0 or drawn.api_name == "PRODUCE"
    assert {rule.rule.probability for rule in rules} == {1.0, 0.3, 0.05}
    assert {rule.rule.target for rule in rules} == {None, "broker-1"}
    assert await draw(random.Random(1), FakeCluster(brokers=("broker-1",), controllers=("controller-101",)), {}) is None


async def draw_one(traffic: Mapping[Way, float], seed: int) -> Drawn:
    """Draws a rule for clients' messages: the only broker and the only controller of this cluster are alone."""
    chance = random.Random(seed)
    while True:
        lonely = FakeCluster(brokers=("broker-1",), controllers=("controller-101",))
        if (drawn := await draw(chance, lonely, traffic)) is not None:
            return drawn


@pytest.mark.feature("FI-03")
async def test_a_burst_of_messages_is_not_expected_again(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics are created at the beginning, connections and memberships after a fault; then there is silence."""
    steady, burst = Way(ApiKey.FETCH, "broker-2", "broker-1"), Way(ApiKey.API_VERSIONS, "broker-2", "broker-1")
    gone = Way(ApiKey.FETCH, "broker-2", "broker-3")
    counts: list[Mapping[Way, int]] = [
        {steady: 10, burst: 6},
        {steady: 20, burst: 90, gone: 50},
        {steady: 30, burst: 90, gone: 50},
    ]

    async def asked() -> Mapping[Way, int]:
        return counts.pop(0)

    cluster = FakeCluster()
    monkeypatch.setattr(cluster, "asked", asked)
    traffic = Traffic(cluster, 10.0)
    for _ in range(2):
        await traffic.look()
        assert traffic.expected(2.5) == {}, "who knows what of it was a burst"
        await trio.sleep(5.0)
    await traffic.look()
    assert traffic.expected(2.5) == {steady: 5.0}


@pytest.mark.feature("FI-03")
async def test_a_message_more_or_less_leads_to_no_other_rule(autojump_clock: trio.abc.Clock) -> None:
    """Else a smaller run, which `shrink` looks for, would have other faults."""
    traffic = {Way(api_key, "client", "broker-1"): 20.0 for api_key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.END_TXN)}
    other = {way: count + 1.0 for way, count in traffic.items()} | {Way(ApiKey.METADATA, "client", "broker-1"): 1.0}
    for seed in range(50):
        assert await draw_one(traffic, seed) == await draw_one(other, seed)


@pytest.mark.feature("FI-03")
async def test_wishes_exclude_other_messages(autojump_clock: trio.abc.Clock) -> None:
    cluster = FakeCluster()
    asked = [Wish(ApiKey.END_TXN, "hold"), Wish(ApiKey.FETCH, direction="response"), Wish(ApiKey.VOTE)]
    traffic = dict.fromkeys(await cluster.asked(), 10.0)
    seen = Counter[tuple[str, ...]]()
    for seed in range(300):
        drawn = await draw(random.Random(seed), cluster, traffic, asked)
        assert drawn is not None and drawn.provoked_by is None
        rule = drawn.rule
        if drawn.api_name == "END_TXN":
            assert (rule.action, rule.source) == ("hold", "client")
        elif drawn.api_name == "VOTE":
            # No node sends it now: the rule waits for any that will.
            assert (rule.source, rule.target, rule.probability) == (None, None, 1.0)
        else:
            assert (drawn.api_name, rule.direction) == ("FETCH", "response")
        source = (rule.source or "anybody").partition("-")[0]
        seen[drawn.api_name, source, drawn.targets[0].partition("-")[0]] += 1
    assert {("END_TXN", "client", "broker"), ("FETCH", "client", "broker"), ("FETCH", "broker", "broker")} < set(seen)
    assert ("VOTE", "anybody", "controller") in seen


@pytest.mark.feature("FI-03")
async def test_a_lonely_broker_asks_no_other(autojump_clock: trio.abc.Clock) -> None:
    story = Story(6, ("message",), brokers=("broker-1",), controllers=("controller-101",))
    await story.play(2_000)
    reports = [value for _at, type_, f, value in story.reports if (type_, f) == ("invoke", "message")]
    assert {value["api"] for value in reports if value["source"] != "client"} == {"FETCH", "BROKER_HEARTBEAT"}
