"""Replication under every interleaving we can think of, and the scenarios that gave the rules their names."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.replication.model import LAG_MS, NODES, Cluster
from tests.examples import examples

FAULTS = ("kill", "power cut", "stop", "start", "fence", "unfence", "elect", "drop", "wait")
WORK = ("produce", "produce one", "fetch", "deliver", "learn", "jump", "flush")

STEP = st.tuples(
    st.one_of(st.sampled_from(WORK), st.sampled_from(WORK), st.sampled_from(FAULTS)),
    st.sampled_from(NODES),
    st.integers(0, 7),
)


def run_step(cluster: Cluster, step: str, node: int, number: int) -> None:
    """One thing happens."""
    match step:
        case "produce":
            cluster.produce(node)
        case "produce one":
            cluster.produce(node, acks=1)
        case "fetch":
            cluster.fetch(node)
        case "deliver":
            cluster.deliver(number)
        case "drop":
            cluster.drop(number)
        case "learn":
            cluster.learn(node, 1)
        case "jump":
            cluster.learn(node)
        case "flush":
            cluster.flush(node)
        case "kill":
            cluster.kill(node)
        case "power cut":
            cluster.power_cut(node, number)
        case "stop":
            cluster.stop_cleanly(node)
        case "start":
            cluster.start(node)
        case "fence":
            cluster.fence(node)
        case "elect":
            cluster.controller.elect(node)
        case "expire":
            cluster.expire_sessions()
        case "unfence":
            cluster.unfence(node)
        case "wait":
            cluster.wait(number * LAG_MS // 4)


@given(min_isr=st.sampled_from([1, 2]), steps=st.lists(STEP, max_size=120))
@settings(max_examples=examples(150), deadline=None)
@pytest.mark.feature("FI-07", "RE-03", "RE-08", "RE-10", "RE-11", "RE-13", "MB-15")
def test_committed_records_stay_while_an_eligible_replica_survives(
    min_isr: int, steps: list[tuple[str, int, int]]
) -> None:
    cluster = Cluster(min_isr)
    for step, node, number in steps:
        run_step(cluster, step, node, number)
        cluster.check()
    cluster.heal()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.feature("FI-07", "RE-10", "MB-15")
def test_a_long_life_with_mostly_work_and_some_faults(seed: int) -> None:
    """Long random lives, in which faults meet a partition that is busy and mostly well."""
    chance = random.Random(seed)
    cluster = Cluster(chance.choice([1, 2]))
    work = ["produce"] * 3 + ["produce one"] + ["fetch"] * 6 + ["deliver"] * 12 + ["learn", "jump", "flush"]
    for _ in range(1_500):
        throw = chance.random()
        if throw < 0.02:
            step = chance.choice(FAULTS)
        elif throw > 0.95:
            cluster.round()
            continue
        elif throw < 0.08:
            step = chance.choice(["start", "unfence", "unfence", "expire", "jump", "wait"])
        else:
            step = chance.choice(work)
        # Mostly the oldest message first, as connections do.
        number = 0 if chance.random() < 0.7 else chance.randrange(8)
        run_step(cluster, step, chance.choice(NODES), number if step == "deliver" else chance.randrange(8))
        cluster.check()
    cluster.heal()
    assert cluster.ever_committed > 0
