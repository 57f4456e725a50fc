"""Controllers whose voters may change (KIP-853) get their metadata back, and form a quorum."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Endpoint
from barnabas.cli.main import run
from barnabas.sync import Admin
from tests.barnabas.client.admin.dynamic_quorum import CLUSTER_ID, DynamicQuorum

pytestmark = pytest.mark.feature("OP-07", "KR-14")
SECONDS = 60.0


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[DynamicQuorum]:
    """Controllers 1 and 2 vote."""
    made = DynamicQuorum(tmp_path)
    made.start(1, "--standalone")
    join(made, 2)
    yield made
    made.stop()


def join(quorum: DynamicQuorum, node_id: int) -> None:
    """Format and start a controller, and make it a voter."""
    quorum.start(node_id, "--no-initial-controllers")
    with Admin(bootstrap_servers=quorum.servers) as admin:
        quorum.wait_for("an observer", lambda: node_id in observers(admin), SECONDS)
        admin.add_raft_voter(
            node_id, quorum.directory_id(node_id), [Endpoint("CONTROLLER", "127.0.0.1", quorum.ports[node_id])]
        )


def observers(admin: Admin) -> list[int]:
    return [it.replica_id for it in admin.describe_metadata_quorum().observers]


def voters(admin: Admin) -> list[int]:
    return sorted(it.replica_id for it in admin.describe_metadata_quorum().voters)


def restore(quorum: DynamicQuorum, node_id: int, source: Path, *options: str) -> int:
    words = ["storage", "restore", "--config", quorum.config(node_id), "--from", str(source), *options]
    return run(words)


def copy_of(quorum: DynamicQuorum, node_id: int, path: Path) -> Path:
    return Path(shutil.copytree(quorum.log_directory(node_id), path / "copy"))


def test_controllers_that_lost_their_disks_begin_again_with_one_of_them(
    quorum: DynamicQuorum, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quorum.kill(1, 2)
    source, first_id = copy_of(quorum, 2, tmp_path), quorum.directory_id(1)
    for node_id in (1, 2):
        shutil.rmtree(quorum.log_directory(node_id))
    assert restore(quorum, 1, source, "--cluster-id", CLUSTER_ID) == 2
    problem = capsys.readouterr().err
    assert f"the voters in the metadata are 1 in directory {first_id}, 2 in directory" in problem
    assert "of node 1 is not formatted: give --standalone" in problem

    assert restore(quorum, 1, source, "--cluster-id", CLUSTER_ID, "--standalone") == 0
    assert f"voters: 1 in directory {quorum.directory_id(1)}\n" in capsys.readouterr().out
    quorum.run(1)
    join(quorum, 2)
    with Admin(bootstrap_servers=quorum.servers) as admin:
        assert voters(admin) == [1, 2]


def test_controllers_that_have_their_directories_stay_voters(
    quorum: DynamicQuorum, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quorum.kill(1, 2)
    source = copy_of(quorum, 1, tmp_path)
    wrong = f"1@127.0.0.1:{quorum.ports[1]}:{quorum.directory_id(2)}"
    assert restore(quorum, 1, source, "--initial-controllers", wrong) == 2
    assert f"the metadata directory of node 1 has the id {quorum.directory_id(1)}, not" in capsys.readouterr().err
    for node_id in (1, 2):
        assert restore(quorum, node_id, source) == 0
        quorum.run(node_id)
    with Admin(bootstrap_servers=quorum.servers) as admin:
        quorum.wait_for("a leader", lambda: voters(admin) == [1, 2], SECONDS)


def test_the_first_voters_of_a_restored_quorum_may_be_named(quorum: DynamicQuorum, tmp_path: Path) -> None:
    """Both controllers get new directories, with the ids that they are given."""
    quorum.kill(1, 2)
    source = copy_of(quorum, 2, tmp_path)
    ids = {1: "VoUfBWMbSXSQdyw8Dq-k6A", 2: "hQ9PsmDOR4-bXd6G-xNT-w"}
    named = ",".join(f"{node_id}@127.0.0.1:{quorum.ports[node_id]}:{ids[node_id]}" for node_id in (1, 2))
    for node_id in (1, 2):
        shutil.rmtree(quorum.log_directory(node_id))
        assert restore(quorum, node_id, source, "-t", CLUSTER_ID, "--initial-controllers", named) == 0
        assert quorum.directory_id(node_id) == ids[node_id]
        quorum.run(node_id)
    with Admin(bootstrap_servers=quorum.servers) as admin:
        quorum.wait_for("a leader", lambda: voters(admin) == [1, 2], SECONDS)
