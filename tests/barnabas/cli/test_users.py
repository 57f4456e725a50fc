"""`barnabas security user`: passwords come from a file, a terminal or standard input, and go to the cluster salted."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.testing.cluster import ClusterForTests
from tests.eventually import eventually

Shell = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterForTests]:
    cluster = ClusterForTests.start_new(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.down()


@pytest.fixture
def shell(
    cluster: ClusterForTests, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    def call(*words: str, stdin: str = "", expect: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = run([*words, "--bootstrap-server", cluster.bootstrap_servers])
        captured = capfd.readouterr()
        assert code == expect, captured.err
        return captured.err if expect else captured.out

    return call


def listed(shell: Shell) -> list[tuple[str, str, int]]:
    found = json.loads(shell("security", "user", "list", "--json"))
    return [(it["user"], it["mechanism"], it["iterations"]) for it in found]


@pytest.mark.feature("AD-07", "TO-02")
def test_passwords_are_set_listed_and_deleted(shell: Shell, tmp_path: Path) -> None:
    user = partial(shell, "security", "user")
    assert user("set-password", "alice", stdin="wonder\n") == "set the SCRAM-SHA-512 password of alice\n"
    (tmp_path / "secret").write_text("land\n")
    file = ("--password-file", str(tmp_path / "secret"), "--mechanism", "scram-sha-256", "--iterations", "8192")
    shell("security", "user", "set-password", "alice", *file)
    shell("security", "user", "set-password", "bob", stdin="builder")
    both = [("alice", "SCRAM-SHA-256", 8192), ("alice", "SCRAM-SHA-512", 4096)]
    eventually(lambda: listed(shell) == [*both, ("bob", "SCRAM-SHA-512", 4096)])
    assert "user carol" in shell("security", "user", "list", "bob", "carol", expect=1)

    assert user("delete", "bob", "--mechanism", "SCRAM-SHA-512").startswith("deleted the SCRAM-SHA-512")
    assert shell("security", "user", "delete", "alice").splitlines() == [
        "deleted the SCRAM-SHA-256 password of alice",
        "deleted the SCRAM-SHA-512 password of alice",
    ]
    eventually(lambda: listed(shell) == [])
    assert "does not exist" in shell("security", "user", "delete", "alice", expect=1)
    assert "must not be empty" in shell("security", "user", "set-password", "alice", stdin="\n", expect=2)


@pytest.mark.feature("SE-07", "TO-02")
def test_tokens_need_an_authenticated_connection(shell: Shell) -> None:
    for words in (["create"], ["list"], ["renew", "id"], ["expire", "id"]):
        assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in shell("security", "token", *words, expect=1)
