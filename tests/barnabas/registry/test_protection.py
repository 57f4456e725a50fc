"""A registry with a certificate and a token: strangers learn nothing, registries pass writes on."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import sync
from barnabas.cli.main import run
from barnabas.client.errors import ConfigException, SerializationException
from barnabas.client.schemas.access import registry_of
from barnabas.dev.embedded import embedded
from barnabas.https import read_https
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.sasl.http_exchange import HttpFailed, HttpRequest, answer_of
from barnabas.runtime.tls import reload
from barnabas.security.certificates import Certificate
from tests.barnabas.registry.rig import record
from tests.barnabas.registry.test_running import broker, registry, schemas
from tests.runtime.tls.stage import authority, certificate

TOKEN = HttpToken("a-token-of-a-registry")
ORDER = record("id:int")


@dataclass(frozen=True)
class Files:
    """The files of a registry."""

    directory: Path

    @property
    def store(self) -> Path:
        return self.directory / "registry.pem"

    @property
    def config(self) -> Path:
        return self.directory / "https.properties"

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    def write(self, own: Certificate) -> Files:
        self.store.write_bytes(own.key_store_pem)
        self.authority.write_bytes(authority().certificate_pem)
        self.config.write_text(
            f"ssl.keystore.type=PEM\nssl.keystore.location={self.store}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.authority}\n"
        )
        return self

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path).write(certificate())


async def ask(
    url: str, files: Files, method: str, path: str, body: object = None, token: str = TOKEN.authorization
) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **({"Authorization": token} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    asked = HttpRequest(url + path, headers, data, files.context(), method=method)
    answer = await trio.to_thread.run_sync(answer_of, asked)
    return answer.status, json.loads(answer.body)


async def test_every_request_needs_the_token(files: Files) -> None:
    basic = "Basic " + base64.b64encode(f"anybody:{TOKEN.secret}".encode()).decode()
    https = read_https(files.config, "the registry")
    async with broker() as node, registry(node, token=TOKEN, https=https) as running:
        assert running.url.startswith("https://127.0.0.1:")
        for right in (TOKEN.authorization, basic):
            assert await ask(running.url, files, "GET", "/subjects", token=right) == (200, [])
        for wrong in ("", "Bearer " + TOKEN.secret[:-1], "Basic !", "Digest " + TOKEN.secret):
            for method, path in (("GET", "/subjects"), ("POST", schemas("s")), ("GET", "/nothing")):
                answer = await ask(running.url, files, method, path, token=wrong)
                assert answer == (401, {"error_code": 401, "message": "HTTP 401 Unauthorized"})

        def challenge() -> str | None:
            place = running.url.removeprefix("https://")
            connection = http.client.HTTPSConnection(place, context=files.context(), timeout=10)
            try:
                connection.request("GET", "/subjects")
                return connection.getresponse().headers["WWW-Authenticate"]
            finally:
                connection.close()

        assert await trio.to_thread.run_sync(challenge) == 'Basic realm="barnabas", charset="UTF-8"'


async def test_a_client_without_trust_or_with_plain_http_is_refused(files: Files) -> None:
    https = read_https(files.config, "the registry")
    async with broker() as node, registry(node, https=https) as running:
        plain = running.url.replace("https", "http")
        for url, reason in ((running.url, "CERTIFICATE_VERIFY_FAILED"), (plain, f"{plain}/subjects: ")):
            with pytest.raises(HttpFailed, match=reason):
                await trio.to_thread.run_sync(answer_of, HttpRequest(url + "/subjects"))
        assert await ask(running.url, files, "GET", "/subjects", token="") == (200, [])


async def test_a_write_is_passed_on_with_the_token(files: Files) -> None:
    both = {"token": TOKEN, "https": read_https(files.config, "the registry")}
    async with broker() as node, registry(node, **both) as one, registry(node, **both) as other:
        with trio.fail_after(30):
            while sorted(each.service.election.leads for each in (one, other)) != [False, True]:
                await trio.sleep(0.01)
        for number, each in enumerate((one, other), start=1):
            status, answer = await ask(each.url, files, "POST", schemas(f"s{number}"), {"schema": ORDER})
            assert (status, answer["id"]) == (200, 1)
        assert (await ask(other.url, files, "GET", "/subjects"))[1] == ["s1", "s2"]


async def test_no_token_is_sent_to_a_leader_over_plain_http(files: Files) -> None:
    """A stranger in the group could name itself the leader."""
    async with broker() as node, registry(node) as plain:
        https = read_https(files.config, "the registry")
        async with registry(node, token=TOKEN, https=https) as guarded:
            assert plain.service.election.leads
            status, answer = await ask(guarded.url, files, "POST", schemas("s"), {"schema": ORDER})
            assert status == 500 and answer["message"] == f"the leader {plain.url} is not reached by https"


async def test_a_renewed_certificate_needs_no_restart(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.05)
    https = read_https(files.config, "the registry")
    async with broker() as node, registry(node, https=https) as running:
        host, port = running.url.removeprefix("https://").rsplit(":", 1)

        def served() -> str:
            return ssl.get_server_certificate((host, int(port)))

        renewed = certificate(key=2)
        assert await trio.to_thread.run_sync(served) != renewed.certificate_pem.decode()
        files.write(renewed)
        with trio.fail_after(20):
            while await trio.to_thread.run_sync(served) != renewed.certificate_pem.decode():
                await trio.sleep(0.05)


def test_our_clients_log_in_to_the_registry_of_a_secure_node(tmp_path: Path) -> None:
    with embedded(topics=["orders"], secure=True, registry=True) as servers:
        settings = {"bootstrap_servers": servers, **servers.client_settings, **servers.registry_settings}
        assert servers.registry_url.startswith("https://")
        with sync.Producer(**settings, value_serializer="avro", value_schema=ORDER) as producer:
            producer.send("orders", {"id": 7})
        with sync.Consumer(
            "orders", **settings, value_deserializer="avro", group_id="board", auto_offset_reset="earliest"
        ) as consumer:
            assert next(iter(consumer)).value == {"id": 7}
        wrong = settings | {"schema_registry_basic_auth_user_info": "admin:wrong"}
        with (
            sync.Producer(**wrong, value_serializer="avro", value_schema=ORDER) as producer,
            pytest.raises(SerializationException, match="answered 401: HTTP 401 Unauthorized"),
        ):
            producer.send("orders", {"id": 8})
        file = servers.node.client_file
        assert file is not None
        words = ["consume", "orders", "--value", "avro", "--from-beginning", "-n", "1", "--client-config", str(file)]
        assert run([*words, "--timeout", "20"]) == 0


URL = "https://alice:s%3Aecret@127.0.0.1:1,https://127.0.0.1:2"
SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";'


def basic(info: str) -> str:
    return "Basic " + base64.b64encode(info.encode()).decode()


@pytest.mark.parametrize(
    ("settings", "authorization"),
    [
        ({}, basic("alice:s:ecret")),
        ({"basic_auth_credentials_source": "URL"}, basic("alice:s:ecret")),
        ({"basic_auth_user_info": "bob:x"}, basic("bob:x")),
        ({"basic_auth_credentials_source": "URL", "basic_auth_user_info": "bob:x"}, basic("alice:s:ecret")),
        ({"bearer_auth_token": "abc"}, "Bearer abc"),
    ],
)
def test_the_login_by_confluents_settings(settings: Mapping[str, str], authorization: str) -> None:
    lookup = registry_of({f"schema_registry_{name}": it for name, it in {"url": URL, **settings}.items()}, "it")
    assert lookup.authorization == authorization
    assert list(lookup.urls) == ["https://127.0.0.1:1", "https://127.0.0.1:2"]
    assert "ecret" not in repr(lookup)


@pytest.mark.parametrize(
    "login", [{"sasl_plain_username": "alice", "sasl_plain_password": "secret"}, {"sasl_jaas_config": JAAS}]
)
def test_the_login_of_the_connection_to_kafka(login: Mapping[str, str]) -> None:
    own = {"schema_registry_url": "http://r", "schema_registry_basic_auth_credentials_source": "SASL_INHERIT"}
    assert registry_of({**own, **SASL, **login}, "it").authorization == basic("alice:secret")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"url": "ftp://u:secret@r"}, "it needs schema_registry_url, such as http://127.0.0.1:8081; got 'ftp://r'"),
        (
            {"basic_auth_credentials_source": "FILE"},
            "schema_registry_basic_auth_credentials_source must be URL, USER_INFO or SASL_INHERIT; got 'FILE'",
        ),
        ({"basic_auth_credentials_source": "USER_INFO"}, "needs schema_registry_basic_auth_user_info"),
        ({"basic_auth_credentials_source": "SASL_INHERIT"}, "needs a connection to Kafka by PLAIN"),
        ({"basic_auth_user_info": "secret"}, "must be user:password; the colon is missing"),
        ({"bearer_auth_token": "sec ret"}, "must be ASCII without spaces"),
        ({"ssl_truststore_location": "/none.pem", "ssl_truststore_type": "PEM"}, "schema registry: .*none.pem"),
        ({"ssl_truststore_type": "ZIP"}, "ZIP"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: Mapping[str, str], reason: str) -> None:
    given = {f"schema_registry_{name}": it for name, it in {"url": "https://r", **settings}.items()}
    with pytest.raises(ConfigException, match=reason) as refused:
        registry_of(given, "it")
    assert "sec" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a listener with TLS needs a key store; set ssl.keystore.location or ssl.keystore.key"),
        ("ssl.keystore.place=x\n", "unknown setting ssl.keystore.place; allowed: ssl.allow.dn.changes, "),
        ("ssl.keystore.type=PEM\nssl.keystore.location=/none.pem\n", "/none.pem"),
    ],
)
def test_a_file_without_a_certificate_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    file = tmp_path / "https.properties"
    file.write_text(text)
    assert run(["registry", "--port", "0", "-b", "127.0.0.1:9", "--https-config", str(file)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"--https-config {file}: ") and reason in complaint
    assert complaint.count("\n") == 1
