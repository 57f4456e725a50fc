"""Hostile clients: what they may send, and the mistakes of nodes that only they find."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from attacks.simulated import busy_plan
from barnabas.cluster.hostile import requests
from barnabas.cluster.hostile.aims import AIMS, OWN_PREFIX, Aim
from barnabas.cluster.hostile.knowledge import Knowledge, structs_of
from barnabas.cluster.hostile.requests import Drawn, Requests
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from running.plan import Plan
from running.seed import run_plan
from tests.simulation.plans import is_found, usual

OTHERS = ("orders", "readers", "payments")
"""A topic, a group and a transactional id of somebody else."""
DRAWS = 20_000
BROKERS = {1, 2, 3}
SEEDS = range(1, 16)


def drawn_requests(seed: int = 1) -> Iterator[Drawn]:
    """Requests of every API, by a client that knows names of other clients' topics, groups and transactions."""
    chance, knowledge = Random(seed), Knowledge()
    topic, group, transactional_id = OTHERS
    knowledge.topics.add(topic)
    knowledge.groups.add(group)
    knowledge.transactional_ids.add(transactional_id)
    requests = Requests(chance, knowledge, lambda: 1_750_000_000_000)
    for _ in range(DRAWS):
        yield requests.draw(chance.choice(("broker", "controller")))


def strings_of(drawn: Drawn) -> Iterator[str]:
    for struct in structs_of(drawn.message):
        for spec in struct.FIELDS:
            value = getattr(struct, spec.name)
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, str):
                    yield each


def numbers_of(drawn: Drawn, *names: str) -> Iterator[int]:
    for struct in structs_of(drawn.message):
        for spec in struct.FIELDS:
            if spec.name in names:
                yield getattr(struct, spec.name)


@pytest.mark.feature("FI-05")
def test_every_api_and_version_is_drawn_and_only_what_reads_names_what_is_others() -> None:
    seen, named = set(), set()
    for drawn in drawn_requests():
        seen.add((drawn.api, drawn.version))
        others = set(OTHERS).intersection(strings_of(drawn))
        if others:
            named.add(drawn.api)
            assert AIMS[drawn.api] is not Aim.OWN, f"{drawn} names {others}"
    served = {(key, version) for key, spec in API_SPECS.items() for version in versions_of(key) if spec.listeners}
    assert seen == served
    assert {ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.END_TXN, ApiKey.HEARTBEAT} <= named


@pytest.mark.feature("FI-05")
def test_a_refusal_that_repeats_a_foreign_topic_id_makes_it_nobodys_own() -> None:
    """A Metadata request may name a topic of its own and the id of another; the refusal repeats both."""
    knowledge = Knowledge()
    own, foreign = bytes([1] * 16), bytes([2] * 16)
    name = OWN_PREFIX + "t0"
    refusal = MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=foreign)
    described = MetadataResponseTopic(error_code=ErrorCode.NONE, name=name, topic_id=own)
    knowledge.learn(ApiKey.METADATA, MetadataResponse(topics=[refusal, described]))
    assert knowledge.own_topic_ids.values == [own]
    assert set(knowledge.topic_ids.values) == {own, foreign}


@pytest.mark.feature("FI-05")
def test_nobody_is_taken_for_a_node_of_the_cluster() -> None:
    for drawn in drawn_requests():
        nodes = set(numbers_of(drawn, "replica_id", "broker_id", "voter_id", "candidate_id", "leader_id"))
        assert not nodes & BROKERS, f"{drawn} says that it is {nodes}"


def versions_of(key: ApiKey) -> range:
    return range(API_SPECS[key].min_version, API_SPECS[key].max_version + 1)


@pytest.mark.feature("FI-05", "FI-11")
@pytest.mark.parametrize(
    "name",
    ["failures-end-nodes", "requests-of-the-gone", "forwarded-in-any-order"],
)
def test_hostile_clients_find_a_planted_mistake(name: str) -> None:
    assert is_found(name, map(busy_plan, SEEDS))


@pytest.mark.feature("FI-05", "FI-11")
def test_long_requests_find_handlers_that_never_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted in few seeds, because that is slow, and only a very long request exceeds the budget of a step."""
    monkeypatch.setattr(requests, "MANY", 2_000)
    plans = map(counting, SEEDS)
    assert is_found("requests-in-one-step", plans, "one step of WriteTxnMarkers makes")


def counting(seed: int) -> Plan:
    """The work of every step is counted, and nothing but hostile clients disturbs."""
    conditions = ("faults-at-once=6", "hostile-pause=0.004", "count-work=true")
    return usual(seed, "set", nemesis=("hostile",), interval=2.0, condition=conditions)


@pytest.mark.feature("FI-05")
def test_requests_of_hostile_clients_are_fixed_by_the_seed() -> None:
    first, again = (run_plan(busy_plan(6)) for _ in range(2))
    assert first.digest == again.digest
    assert first.counts == again.counts
    assert first.counts["hostile: requests"] > 0
