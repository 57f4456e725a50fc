"""Reassignment plans."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.offset_reset import Partition
from barnabas.cli.replica_plan import read_plan, spread, write_plan
from barnabas.cluster.errors import WrongArgument


@pytest.mark.feature("TO-06")
@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 6), st.integers(1, 4))
def test_a_plan_is_even_and_uses_all_racks(partitions: int, replicas: int, brokers: int, racks: int) -> None:
    where = {broker: f"r{broker % racks}" for broker in range(1, brokers + 1)}
    wanted = {Partition("t", index): replicas for index in range(partitions)}
    if replicas > brokers:
        with pytest.raises(WrongArgument, match=f"t has {replicas} replicas, more than {brokers} brokers"):
            spread(wanted, where)
        return
    plan = spread(wanted, where)
    assert plan.keys() == wanted.keys()
    leads = Counter(chosen[0] for chosen in plan.values())
    assert max(leads.values()) - min(leads[broker] for broker in where) <= 1
    for chosen in plan.values():
        assert len(chosen) == len(set(chosen)) == replicas
        assert len({where[broker] for broker in chosen}) == min(replicas, len(set(where.values())))
    assert read_plan(write_plan(plan), "f") == plan


def test_brokers_without_racks_are_all_alike() -> None:
    plan = spread({Partition("t", 0): 2, Partition("t", 1): 2}, {1: None, 2: None, 3: None})
    assert list(plan.values()) == [[1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f: invalid JSON"),
        ("[]", 'f: must be a JSON object with "version": 1'),
        ('{"version": 2, "partitions": []}', 'f: must be a JSON object with "version": 1'),
        ('{"partitions": []}', "f: no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "f: must have topic"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "f: must have topic"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "names a broker twice"),
        ('{"partitions": [{"topic": 5, "partition": 0, "replicas": [1]}]}', "f: must have topic"),
    ],
)
def test_files_that_are_not_plans(text: str, message: str) -> None:
    with pytest.raises(WrongArgument, match=message):
        read_plan(text, "f")


def test_a_plan_contains_a_partition_once() -> None:
    part = '{"topic": "t", "partition": 0, "replicas": [1]}'
    with pytest.raises(WrongArgument, match="t:0 is there twice"):
        read_plan(f'{{"partitions": [{part}, {part}]}}', "f")
