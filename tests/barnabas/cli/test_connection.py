"""Client settings of a command, and their precedence."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.connection import Connection
from barnabas.client.admin import AdminSettings
from barnabas.cluster.errors import WrongArgument

KNOWN = AdminSettings.model_fields


def test_the_option_wins_over_the_command_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=there:1\nclient.id=file\nrequest.timeout.ms=1\nlinger.ms=7\n")
    connection = Connection(client_config=file, properties=["request.timeout.ms=3"])
    settings = connection.settings(KNOWN, request_timeout_ms=2, retry_backoff_ms=5, default_api_timeout_ms=None)
    assert settings == {
        "bootstrap_servers": "there:1",
        "client_id": "file",
        "request_timeout_ms": "3",
        "retry_backoff_ms": 5,
    }
    assert AdminSettings.of(settings).request_timeout_ms == 3


def test_brokers_are_those_of_the_option_the_file_or_the_cluster_here(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=there:1\n")
    named = Connection(bootstrap="one:1, [::1]:2", client_config=file)
    assert named.settings(KNOWN)["bootstrap_servers"] == ("one:1", "[::1]:2")
    (tmp_path / "cluster.json").write_text('{"base_port": 5000}')
    here = Connection(data=tmp_path)
    assert here.settings(KNOWN)["bootstrap_servers"] == ("127.0.0.1:5000", "127.0.0.1:5001", "127.0.0.1:5002")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client.id", "-X client.id: not NAME=VALUE"),
        ("=x", "-X =x: not NAME=VALUE"),
        ("clientid=x", r"-X clientid=x: no such client setting; did you mean client.id\?"),
        ("zzzzz=x", "-X zzzzz=x: no such client setting$"),
    ],
)
def test_unknown_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(WrongArgument, match=message):
        Connection(properties=[text]).settings(KNOWN)


def test_settings_of_other_kinds_of_clients_are_ignored() -> None:
    assert "linger_ms" not in Connection(properties=["linger.ms=5"]).settings(KNOWN)
    assert Connection(properties=["linger.ms=5"]).settings({"linger_ms"})["linger_ms"] == "5"


def test_a_missing_client_config_file(tmp_path: Path) -> None:
    with pytest.raises(WrongArgument, match=r"--client-config .*nowhere: No such file"):
        Connection(client_config=tmp_path / "nowhere").settings(KNOWN)
