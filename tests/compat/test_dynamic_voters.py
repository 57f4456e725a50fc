"""Voters of a running quorum are added and removed by Kafka's own tool, and read by Kafka's own classes (KIP-853)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.barnabas.client.admin.dynamic_quorum import DynamicQuorum
from tests.compat.java import Java

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

class Controllers(DynamicQuorum):
    """Asked with Kafka's own tool."""

    def __init__(self, path: Path, java: Java) -> None:
        super().__init__(path)
        self._java = java

    def quorum(self, *words: str) -> str:
        gone = "could not be established"
        return self._java.run("metadata-quorum", "--bootstrap-controller", self.servers, *words, expected=gone).out

    def remove(self, node_id: int) -> str:
        directory_id = self.directory_id(node_id)
        return self.quorum(
            "remove-controller", "--controller-id", str(node_id), "--controller-directory-id", directory_id
        )

    def voters(self) -> tuple[int, list[int]]:
        """The leader, and the ids of the voters."""
        status = self.quorum("describe", "--status")
        leader = re.search(r"LeaderId:\s+(-?\d+)", status)
        line = re.search(r"CurrentVoters:\s+(.*)", status)
        assert leader is not None and line is not None, status
        return int(leader.group(1)), [int(found) for found in re.findall(r'"id": (\d+)', line.group(1))]


@pytest.fixture
def controllers(libs: Path, tmp_path: Path) -> Iterator[Controllers]:
    made = Controllers(tmp_path, Java(libs))
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.feature("KR-14", "KR-15")
def test_controllers_are_added_and_removed_while_they_run(controllers: Controllers, tmp_path: Path, libs: Path) -> None:
    controllers.start(1, "--standalone")
    for node_id in (2, 3):
        controllers.start(node_id, "--no-initial-controllers")
    controllers.wait_for(
        "two observers", lambda: controllers.quorum("describe", "--replication").count("Observer") == 2
    )
    for node_id in (2, 3):
        added = controllers.quorum("--command-config", controllers.config(node_id), "add-controller")
        assert f"Added controller {node_id} with directory id {controllers.directory_id(node_id)}" in added
    assert controllers.voters() == (1, [1, 2, 3])

    controllers.processes[1].kill()
    controllers.wait_for("another leader", lambda: controllers.voters()[0] in (2, 3))
    assert "Removed  KRaft controller 1" in controllers.remove(1)
    leader, voters = controllers.voters()
    assert voters == [2, 3]

    assert f"Removed  KRaft controller {leader}" in controllers.remove(leader)
    other = 5 - leader
    controllers.wait_for("the other one leads alone", lambda: controllers.voters() == (other, [other]))

    bootstrap = tmp_path / "1" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    dumped = Java(libs).run("dump-log", "--cluster-metadata-decoder", "--files", str(bootstrap)).out
    assert '"kRaftVersion":1' in dumped.replace(" ", "") and controllers.directory_id(1) in dumped
