"""`barnabas cluster balance` on six real nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.cluster.ports import free_base_port
from tests.barnabas.cluster.test_whole import Shell, lines_of, shell

__all__ = ["shell"]


def plan_of(*replicas: list[int]) -> str:
    parts = [{"topic": "t", "partition": index, "replicas": each} for index, each in enumerate(replicas)]
    return json.dumps({"version": 1, "partitions": parts})


def replicas_of(shell: Shell) -> list[list[int]]:
    return [each["replicas"] for each in json.loads(shell("topics describe", "t", "--json"))["topics"][0]["partitions"]]


@pytest.mark.feature("OP-05")
def test_a_cluster_is_balanced_and_goes_back(shell: Shell, tmp_path: Path) -> None:
    shell("cluster up", "--base-port", str(free_base_port()))
    shell("topics create", "t", "-p", "6", "-r", "2")
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    skewed = [[1, 2]] * 6
    plan.write_text(plan_of(*skewed))
    shell("topics reassign execute", str(plan), "--wait")
    shell("produce", "t", "-k", ":", stdin=lines_of(0, 50))

    out = shell("cluster balance", "--sample", "0")
    assert "4 replicas to move" in out
    assert replicas_of(shell) == skewed, "a dry run"
    out = shell("cluster balance", "--sample", "0.2", "--execute", "--throttle", "10000000", "--back", str(back))
    assert out.count(" has moved") >= 4
    spread = replicas_of(shell)
    assert [sum(broker in each for each in spread) for broker in (1, 2, 3)] == [4, 4, 4]
    assert [sum(each[0] == broker for each in spread) for broker in (1, 2, 3)] == [2, 2, 2]
    assert "nothing to move" in shell("cluster balance", "--sample", "0")
    read = shell("consume", "t", "--from-beginning", "-n", "50", "-k", ":")
    assert sorted(read.splitlines()) == sorted(lines_of(0, 50).splitlines())
    shell("topics reassign execute", str(back), "--wait")
    assert replicas_of(shell) == skewed

    shell("cluster kill", "broker-3")
    plan.write_text(plan_of([1, 3]))
    shell("topics reassign execute", str(plan))
    shell("cluster balance", "--sample", "0", expect=1)
    shell("topics reassign cancel", str(plan))
    shell("cluster start", "broker-3")
