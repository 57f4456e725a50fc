"""The command line on a node with TLS and SASL, ours and Apache Kafka, by one properties file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.settings.properties import render_properties
from tests.compat.client.secured_kafka import ADMIN, JAAS_PASSWORD, USER, SecuredKafka
from tests.eventually import eventually

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(
    secured: SecuredKafka, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """Runs a command as a user: (exit code, standard output, standard error)."""
    monkeypatch.delenv("BARNABAS_CLIENT_CONFIG", raising=False)

    def as_user(*words: str, user: str = ADMIN, password: str = JAAS_PASSWORD, stdin: str = "") -> tuple[int, str, str]:
        file = tmp_path / "client.properties"
        login = f'{SCRAM} required username="{user}" password="{password}";'
        security = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": secured.authority.pem,
            "ssl.secure.random.implementation": "SHA1PRNG",
        }
        file.write_text(render_properties(security))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        where = ["--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config", str(file)]
        code = run([*words, *where])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return as_user


@pytest.mark.feature("TO-09")
def test_records_in_and_out(shell: Shell) -> None:
    assert shell("topics", "create", "typed")[0] == 0
    assert shell("produce", "typed", stdin="one\ntwo\n", user=USER)[0] == 0
    assert shell("consume", "typed", "-o", "beginning", "-e", "-q", user=USER)[1] == "one\ntwo\n"
    assert json.loads(shell("cluster", "describe", "--json")[1])["cluster_id"]


def test_a_wrong_password_is_one_line(shell: Shell) -> None:
    code, out, error = shell("topics", "list", password="open-sesame")
    assert (code, out) == (1, "")
    assert error.startswith("SASL_AUTHENTICATION_FAILED: 127.0.0.1:")
    assert error.count("\n") == 1
    assert "sesame" not in error


@pytest.mark.feature("TO-07")
def test_lists_of_access_control(shell: Shell) -> None:
    assert shell("topics", "create", "kept")[0] == 0
    rule = [USER, "write", "--topic", "kept", "--deny"]
    assert shell("security", "acl", "add", *rule)[0] == 0
    eventually(lambda: "kept" in shell("security", "acl", "list")[1])

    def is_refused() -> bool:
        code, _, error = shell("produce", "kept", stdin="x\n", user=USER)
        return code == 1 and "TOPIC_AUTHORIZATION_FAILED" in error

    eventually(is_refused)
    assert shell("security", "acl", "remove", *rule)[0] == 0
    eventually(lambda: shell("produce", "kept", stdin="x\n", user=USER)[0] == 0)


@pytest.mark.feature("TO-07")
def test_a_user_and_a_token(shell: Shell) -> None:
    assert shell("security", "user", "set-password", "dave", stdin="dave's password\n")[0] == 0
    eventually(lambda: shell("topics", "list", user="dave", password="dave's password")[0] == 0)
    code, out, error = shell("security", "token", "create", user="dave", password="dave's password")
    assert code == 0, error
    token = json.loads(out)
    by_token = {"user": token["token"], "password": f'{token["hmac"]}" tokenauth="true'}
    eventually(lambda: shell("topics", "list", **by_token)[0] == 0)
    assert shell("security", "user", "delete", "dave")[0] == 0
    eventually(lambda: shell("topics", "list", user="dave", password="dave's password")[0] == 1)


@pytest.mark.feature("TO-07")
def test_quotas(shell: Shell) -> None:
    assert shell("configs", "quotas", "set", "producer_byte_rate=1048576", "--user", USER)[0] == 0
    eventually(lambda: "producer_byte_rate" in shell("configs", "quotas", "describe")[1])
    assert shell("configs", "quotas", "unset", "producer_byte_rate", "--user", USER)[0] == 0
    eventually(lambda: "producer_byte_rate" not in shell("configs", "quotas", "describe")[1])
