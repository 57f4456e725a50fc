"""Voters of running controllers come, go, and lose their disks, by requests to brokers (KIP-853)."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from barnabas import Admin
from barnabas.cli.main import run
from barnabas.client.admin import Endpoint, QuorumInfo
from barnabas.client.errors import (
    DuplicateVoterException,
    InconsistentClusterIdException,
    InvalidRequestException,
    TimeoutException,
    VoterNotFoundException,
)
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.protocol.errors import KafkaError
from tests.eventually import eventually

T = TypeVar("T")
JOINER = "controller-104"
FETCH_TIMEOUT_MS = 2_000
NOBODY = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The directory id of no replica."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three controllers that were formatted with fixed voters, and a fourth that joined them."""
    patch = pytest.MonkeyPatch()
    patch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)
    data = tmp_path_factory.mktemp("living") / "cluster"
    cluster = LocalCluster(data, free_base_port())
    cluster.up()
    try:
        cluster.wait_ready()
        assert run(["cluster", "add", "controller", "--data", str(data)]) == 0
        yield data
    finally:
        LocalCluster(data).down()
        patch.undo()


def ask(data: Path, work: Callable[[Admin], Awaitable[T]], timeout_ms: int = 30_000) -> T:
    """Through the brokers."""

    async def session() -> T:
        servers = LocalCluster(data).bootstrap_servers
        async with Admin(bootstrap_servers=servers, default_api_timeout_ms=timeout_ms) as admin:
            return await work(admin)

    return trio.run(session)


def quorum(data: Path) -> QuorumInfo:
    async def describe(admin: Admin) -> QuorumInfo:
        return await admin.describe_metadata_quorum()

    return ask(data, describe)


def directories(data: Path) -> dict[int, str]:
    """Directory ids of the voters."""
    return {voter.replica_id: str(voter.replica_directory_id) for voter in quorum(data).voters}


def refusal(data: Path, work: Callable[[Admin], Awaitable[None]], timeout_ms: int = 30_000) -> KafkaError:
    async def refused(admin: Admin) -> KafkaError:
        try:
            await work(admin)
        except KafkaError as error:
            return error
        raise AssertionError("it was not refused")

    return ask(data, refused, timeout_ms)


@pytest.mark.feature("KR-14", "AD-06")
def test_wrong_changes_are_refused_with_the_reason(data: Path) -> None:
    known = directories(data)
    assert sorted(known) == [101, 102, 103, 104]
    port = LocalCluster(data).layout.node(JOINER).port
    here = [Endpoint("CONTROLLER", "127.0.0.1", port)]

    error = refusal(data, lambda admin: admin.remove_raft_voter(102, NOBODY))
    assert isinstance(error, VoterNotFoundException) and NOBODY in str(error)
    error = refusal(data, lambda admin: admin.remove_raft_voter(102, known[102], cluster_id="of-another-cluster-1"))
    assert isinstance(error, InconsistentClusterIdException)
    error = refusal(data, lambda admin: admin.add_raft_voter(104, NOBODY, here))
    assert isinstance(error, DuplicateVoterException)
    assert directories(data) == known


@pytest.mark.feature("KR-14", "AD-06")
def test_a_voter_that_does_not_catch_up_is_not_added(data: Path) -> None:
    """Its address answers, but no replica with that directory fetches; and nobody answers at another address."""
    known = directories(data)
    port = LocalCluster(data).layout.node(JOINER).port
    for at in (port, 1):
        endpoints = [Endpoint("CONTROLLER", "127.0.0.1", at)]
        error = refusal(data, lambda admin, e=endpoints: admin.add_raft_voter(105, NOBODY, e), 4_000)  # type: ignore[misc]
        assert isinstance(error, TimeoutException), error
    assert directories(data) == known


@pytest.mark.feature("KR-14", "AD-06")
def test_one_of_two_changes_at_once_is_made(data: Path) -> None:
    known = directories(data)
    leader = quorum(data).leader_id
    first, second = [voter for voter in sorted(known) if voter != leader][:2]
    outcomes: dict[int, KafkaError | None] = {}

    async def both(admin: Admin) -> None:
        async def remove(voter: int) -> None:
            try:
                await admin.remove_raft_voter(voter, known[voter])
                outcomes[voter] = None
            except KafkaError as error:
                outcomes[voter] = error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(remove, first)
            nursery.start_soon(remove, second)

    ask(data, both)
    removed = [voter for voter in known if voter not in directories(data)]
    assert removed and set(removed) == {voter for voter, error in outcomes.items() if error is None}
    for voter in removed:
        port = LocalCluster(data).layout.node(f"controller-{voter}").port
        endpoints = [Endpoint("CONTROLLER", "127.0.0.1", port)]
        ask(data, lambda admin, v=voter, e=endpoints: admin.add_raft_voter(v, known[v], e))  # type: ignore[misc]
    assert directories(data) == known


@pytest.mark.feature("KR-14", "OP-05")
def test_a_controller_that_lost_its_disk_comes_back_as_a_new_voter(data: Path) -> None:
    """By itself, as `controller.quorum.auto.join.enable` has it: its old entry is removed, then it is added."""
    cluster = LocalCluster(data)
    node = cluster.layout.node(JOINER)
    old = directories(data)[104]
    cluster.kill(JOINER)
    config = cluster.layout.config_file(node)
    config.write_text(config.read_text() + "controller.quorum.auto.join.enable=true\n")
    shutil.rmtree(cluster.layout.log_directory(node))
    cluster.start(JOINER)
    eventually(lambda: directories(data).get(104) not in (None, old), 60)
    assert sorted(directories(data)) == [101, 102, 103, 104]
    meta = (cluster.layout.log_directory(node) / "meta.properties").read_text()
    assert f"directory.id={directories(data)[104]}" in meta


@pytest.mark.feature("KR-14", "AD-06")
def test_the_removal_of_a_majority_is_refused_with_the_reason(data: Path) -> None:
    """One of three is gone: without another one nothing would ever be committed again."""
    cluster = LocalCluster(data)
    leader = quorum(data).leader_id
    extra, gone, other = [voter for voter in sorted(directories(data)) if voter != leader]
    assert run(["cluster", "remove", f"controller-{extra}", "--data", str(data)]) == 0
    known = directories(data)
    cluster.kill(f"controller-{gone}")
    eventually(lambda: _silent_ms(quorum(data), gone) > FETCH_TIMEOUT_MS)
    error = refusal(data, lambda admin: admin.remove_raft_voter(other, known[other]))
    assert isinstance(error, InvalidRequestException)
    assert f"that would remain are a majority, and only [{leader}] fetch" in str(error)
    ask(data, lambda admin: admin.remove_raft_voter(gone, known[gone]))
    assert sorted(directories(data)) == sorted([leader, other])


def _silent_ms(quorum: QuorumInfo, voter_id: int) -> int:
    """Time since the last fetch of a voter, by the clock of the leader's last record of another one."""
    times = {voter.replica_id: voter.last_fetch_timestamp_ms or 0 for voter in quorum.voters}
    return max(times.values()) - times[voter_id]
