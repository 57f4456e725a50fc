"""Client settings of a command, and their precedence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.app import command
from barnabas.cli.connection import Connection
from barnabas.client.admin import AdminSettings
from barnabas.cluster.errors import WrongArgument
from barnabas.protocol.sasl.jaas import parse_jaas

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
    with pytest.raises(WrongArgument, match=r"--command-config .*nowhere: No such file"):
        Connection(client_config=tmp_path / "nowhere").settings(KNOWN)


FILE_OF_A_JAVA_CLIENT = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" password="wonder\\\\"land";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
ssl.endpoint.identification.algorithm=
ssl.provider=BC
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
"""


@pytest.mark.feature("TO-07", "TO-09")
def test_the_file_of_a_java_client_secures_the_connections(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(FILE_OF_A_JAVA_CLIENT)
    security = Connection(bootstrap="there:1", client_config=file).security()
    assert (security.security_protocol, security.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert security.ssl_endpoint_identification_algorithm == ""
    module = parse_jaas(security.values_under("sasl.")["sasl.jaas.config"])
    assert module.options == {"username": "alice", "password": 'wonder"land'}
    assert "wonder" not in repr(security)


def test_a_wrong_security_setting_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    with pytest.raises(WrongArgument, match="PLAIN needs sasl_jaas_config"):
        Connection(bootstrap="there:1", client_config=file).security()


@pytest.mark.feature("TO-09")
def test_every_command_that_connects_takes_a_command_config() -> None:
    connecting = [(path, options) for path, options in _commands(command(), "") if "--bootstrap-server" in options]
    assert len(connecting) > 40
    assert [path for path, options in connecting if "--command-config" not in options] == []


def _commands(found: Any, path: str) -> Iterator[tuple[str, set[str]]]:
    for name, child in getattr(found, "commands", {}).items():
        yield from _commands(child, f"{path} {name}")
    yield path, {option for parameter in found.params for option in parameter.opts}
