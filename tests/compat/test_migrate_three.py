"""Three brokers and three voters of each kind: `barnabas migrate` under load, while it and nodes are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.local import code_environment
from barnabas.cluster.ports import free_base_port
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.uuids import random_uuid
from tests.compat.mixed import KAFKA, OURS, MixedCluster, MixedNode
from tests.compat.test_migrate import TOPIC, WAITS_FOR_OPERATOR, Load, join_as_observer, migrate
from tests.compat.test_mixed import PARTITIONS, TRANSACTIONAL_IDS, active, consume, create, transact

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("java", "confluent-kafka")]

OLD_BROKERS, NEW_BROKERS = (1, 2, 3), (11, 12, 13)
OLD_VOTERS, NEW_VOTERS = (401, 402, 403), (501, 502, 503)
THREE = {
    "offsets__topic__replication__factor": "3",
    "transaction__state__log__replication__factor": "3",
    "transaction__state__log__min__isr": "2",
    "share__coordinator__state__topic__replication__factor": "3",
    "default__replication__factor": "3",
    "initial__broker__registration__timeout__ms": "600000",
}
SLOW_SECONDS = 240.0


class Move:
    """A migration from three nodes of each role to three others."""

    def __init__(self, cluster: MixedCluster, old: str, new: str) -> None:
        self.cluster = cluster
        self._old, self._new = old, new
        first = cluster.base_port
        controllers = [first + at for at in (0, 1, 2, 6, 7, 8)]
        servers = ",".join(f"127.0.0.1:{port}" for port in controllers)
        self.settings = {**THREE, "controller__quorum__bootstrap__servers": servers}

    def add(self, kind: str, ids: tuple[int, ...], role: str) -> list[MixedNode]:
        return [self.cluster.add(kind, node_id, role, **self.settings) for node_id in ids]

    def start_old(self) -> None:
        cluster = self.cluster
        self.old_voters = self.add(self._old, OLD_VOTERS, "controller")
        self.old_brokers = self.add(self._old, OLD_BROKERS, "broker")
        import random

        directories = {node.id: uuid_to_string(random_uuid(random.SystemRandom())) for node in self.old_voters}
        first = ",".join(f"{node.id}@127.0.0.1:{node.port}:{directories[node.id]}" for node in self.old_voters)
        for node in self.old_voters:
            words = ["-c", str(node.config), "-t", cluster.cluster_id, "--initial-controllers", first]
            assert run(["storage", "format", *words]) == 0
            cluster.start(node)
        cluster.up(*self.old_brokers)
        self._wait_for(*self.old_brokers)

    def start_new(self) -> None:
        self.new_voters = self.add(self._new, NEW_VOTERS, "controller")
        self.new_brokers = self.add(self._new, NEW_BROKERS, "broker")
        self.cluster.up(*self.new_brokers)
        for node in self.new_voters:
            join_as_observer(self.cluster, node)
        self._wait_for(*self.old_brokers, *self.new_brokers)
        self.pairs = [
            "--brokers",
            ",".join(f"{old}={new}" for old, new in zip(OLD_BROKERS, NEW_BROKERS, strict=True)),
            "--controllers",
            ",".join(
                f"{old}={new.id}@127.0.0.1:{new.port}" for old, new in zip(OLD_VOTERS, self.new_voters, strict=True)
            ),
        ]

    def _wait_for(self, *brokers: MixedNode) -> None:
        self.cluster.wait_for_brokers(*brokers, seconds=SLOW_SECONDS)

    def kill_at(self, beginning: str, during: Callable[[], None] = lambda: None) -> str:
        """Runs `barnabas migrate` and kills it when it prints a line that begins so, after `during`."""
        words = ["-b", self.cluster.bootstrap_servers, *self.pairs, "--at-once", "3"]
        command = [sys.executable, "-P", "-m", "barnabas.cli.main", "migrate", *words]
        environment = {**code_environment(), "PYTHONUNBUFFERED": "1"}
        printed: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                printed.append(line.rstrip())
                if line.startswith(beginning):
                    during()
                    process.kill()
                    return printed[-1]
        raise AssertionError(f"it never came to {beginning!r}:\n" + "\n".join(printed))

    def restart(self, node: MixedNode) -> None:
        """SIGKILL, and another life."""
        self.cluster.stop(node, signal.SIGKILL)
        self.cluster.start(node)


@pytest.mark.timeout(1500, method="thread")
@pytest.mark.feature("OP-05", "KR-14", "KR-19", "MB-19", "AD-06")
@pytest.mark.parametrize(("old", "new"), [(KAFKA, OURS), (OURS, KAFKA)])
def test_three_of_each_kind_move_while_everything_is_killed(
    old: str, new: str, libs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MixedCluster(libs, tmp_path, base_port=free_base_port(range(16))) as cluster:
        move = Move(cluster, old, new)
        move.start_old()
        create(cluster, TOPIC, 3)
        transact(cluster, TOPIC)
        kept = PARTITIONS * len(TRANSACTIONAL_IDS)
        assert set(consume(cluster, TOPIC, "group", kept)) == {b"kept"}
        load = Load(cluster)
        load.start()
        move.start_new()

        move.kill_at("move ")
        move.kill_at("  ", lambda: move.restart(move.new_brokers[0]))
        move.kill_at("  ", lambda: move.restart(move.old_brokers[1]))
        move.kill_at("add controller ")
        move.kill_at("remove controller ", lambda: move.restart(move.new_voters[0]))
        capsys.readouterr()
        code, printed = migrate(cluster, capsys, *move.pairs, "--at-once", "3", "--timeout", "120")
        assert code == WAITS_FOR_OPERATOR, printed
        for node in move.old_brokers:
            cluster.stop(node)
        cluster.wait(
            lambda: migrate(cluster, capsys, *move.pairs, "--timeout", "120")[0] == 0, "all are gone", SLOW_SECONDS
        )
        for node in move.old_voters:
            cluster.stop(node, signal.SIGKILL)
        assert active(cluster, move.new_voters) in move.new_voters
        create(cluster, "new", 3)
        load.finish()

        assert load.errors == []
        transact(cluster, TOPIC)
        after = consume(cluster, TOPIC, "group", len(load.acknowledged) + kept)
        assert after.count(b"kept") == kept, "the group goes on where it was"
        assert b"aborted" not in after
        assert sorted(map(int, filter(bytes.isdigit, after))) == sorted(map(int, load.acknowledged))
