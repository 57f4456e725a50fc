"""Voters of a running quorum are added and removed by our administrator (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Endpoint, errors
from barnabas.sync import Admin
from tests.barnabas.client.admin.dynamic_quorum import DynamicQuorum

SECONDS = 60.0


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[DynamicQuorum]:
    made = DynamicQuorum(tmp_path)
    yield made
    made.stop()


def voters(admin: Admin) -> list[int]:
    return sorted(voter.replica_id for voter in admin.describe_metadata_quorum().voters)


@pytest.mark.feature("CL-04", "KR-14")
def test_voters_come_and_go(quorum: DynamicQuorum) -> None:
    quorum.start(1, "--standalone")
    quorum.start(2, "--no-initial-controllers")
    with Admin(bootstrap_servers=quorum.servers) as admin:
        quorum.wait_for(
            "an observer", lambda: [it.replica_id for it in admin.describe_metadata_quorum().observers] == [2], SECONDS
        )
        place = Endpoint("CONTROLLER", "127.0.0.1", quorum.ports[2])
        admin.add_raft_voter(2, quorum.directory_id(2), [place])
        assert voters(admin) == [1, 2]
        with pytest.raises(errors.DuplicateVoterException):
            admin.add_raft_voter(2, quorum.directory_id(2), [place])
        with pytest.raises(errors.VoterNotFoundException):
            admin.remove_raft_voter(3, quorum.directory_id(2))
        leader = admin.describe_metadata_quorum().leader_id
        admin.remove_raft_voter(leader, quorum.directory_id(leader))
        quorum.wait_for("the other one leads alone", lambda: voters(admin) == [3 - leader], SECONDS)
