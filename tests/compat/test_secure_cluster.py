"""Other people's clients on a cluster of `cluster up --secure`: each listener, mechanism, right and refusal."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.cli.local_users import publish_users
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.security.addresses import SASL_PLAINTEXT_ABOVE, SASL_SSL_ABOVE, SSL_ABOVE
from barnabas.security.local_security import LocalSecurity
from tests.compat.java import Java

pytestmark = pytest.mark.compat

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PORT_ABOVE = {"SASL_PLAINTEXT": SASL_PLAINTEXT_ABOVE, "SASL_SSL": SASL_SSL_ABOVE, "SSL": SSL_ABOVE}
OWN_TOPIC, FOREIGN_TOPIC = "alice-flights", "flights"
MAX_LIFE = ("--max-life-time-period", "-1")


@dataclass(frozen=True)
class Secure:
    """The cluster, and what clients need."""

    data: Path
    cluster: LocalCluster
    security: LocalSecurity

    def bootstrap(self, protocol: str) -> str:
        return ",".join(f"127.0.0.1:{node.port + PORT_ABOVE[protocol]}" for node in self.cluster.layout.brokers)

    @property
    def authority(self) -> str:
        return str(self.security.authority_file)

    def password(self, user: str) -> str:
        return self.security.users.read()[user]

    def key(self, user: str) -> str:
        return str(self.security.key_file(user))

    def command(self, *words: str, stdin: str = "", code: int = 0) -> str:
        """Output of a command of ours, as the administrator."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("barnabas")), *words, "--data", str(self.data)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    data = tmp_path_factory.mktemp("secure")
    cluster = LocalCluster(data, free_base_port(), {"group.initial.rebalance.delay.ms": "0"})
    cluster.make_secure()
    cluster.up()
    try:
        cluster.wait_ready()
        publish_users(data)
        assert cluster.security is not None
        found = Secure(data, cluster, cluster.security)
        found.command("topics", "create", OWN_TOPIC, "--partitions", "3")
        found.command("topics", "create", FOREIGN_TOPIC)
        yield found
    finally:
        cluster.down()


class Denied(Exception):
    """The cluster refused the client's credentials, or its operation. The text is the client's name of the error."""


Login = tuple[str, str, str, str]
"""(protocol, mechanism, user, password)"""
Write = Callable[[Secure, Login, str], None]


def confluent(secure: Secure, login: Login, topic: str) -> None:
    from confluent_kafka import KafkaError, Producer

    protocol, mechanism, user, password = login
    failures: list[KafkaError] = []
    settings: dict[str, object] = {
        "bootstrap.servers": secure.bootstrap(protocol),
        "security.protocol": protocol,
        "message.timeout.ms": 5000,
        "error_cb": failures.append,
        "ssl.ca.location": secure.authority,
    }
    if protocol == "SSL":
        settings |= {"ssl.certificate.location": secure.key(user), "ssl.key.location": secure.key(user)}
    else:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    producer = Producer(settings)
    reports: list[KafkaError | None] = []
    producer.produce(topic, b"confluent", on_delivery=lambda error, _message: reports.append(error))
    while not reports:  # message.timeout.ms ends it
        producer.poll(0.1)
        named = [error.name() for error in (*failures, *reports) if error is not None]
        for name in ("_AUTHENTICATION", "TOPIC_AUTHORIZATION_FAILED"):
            if name in named:
                producer.purge()
                raise Denied(name)
    assert reports == [None], [*failures, *reports]


def kafka_python(secure: Secure, login: Login, topic: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError, TopicAuthorizationFailedError

    protocol, mechanism, user, password = login
    settings: dict[str, object] = {"ssl_cafile": secure.authority}
    if protocol == "SSL":
        settings |= {"ssl_certfile": secure.key(user), "ssl_keyfile": secure.key(user)}
    else:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    try:
        producer = KafkaProducer(
            bootstrap_servers=secure.bootstrap(protocol),
            security_protocol=protocol,
            max_block_ms=5000,
            bootstrap_timeout_ms=4000,
            **settings,
        )
    except KafkaError as error:
        raise Denied("_AUTHENTICATION") from error
    try:
        producer.send(topic, b"kafka-python").get(8)
    except TopicAuthorizationFailedError as error:
        raise Denied("TOPIC_AUTHORIZATION_FAILED") from error
    finally:
        producer.close(1)


def aiokafka(secure: Secure, login: Login, topic: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

    protocol, mechanism, user, password = login
    context = ssl.create_default_context(cafile=secure.authority)
    settings: dict[str, object] = {"ssl_context": context if "SSL" in protocol else None}
    if protocol == "SSL":
        context.load_cert_chain(secure.key(user))
    else:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}

    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=secure.bootstrap(protocol),
            security_protocol=protocol,
            request_timeout_ms=5000,
            **settings,
        )
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"aiokafka")
        except TopicAuthorizationFailedError as error:
            raise Denied("TOPIC_AUTHORIZATION_FAILED") from error
        except (KafkaConnectionError, KafkaError) as error:
            raise Denied("_AUTHENTICATION") from error
        finally:
            await producer.stop()

    asyncio.run(write())


WRITERS = [
    pytest.param(confluent, marks=pytest.mark.client("confluent-kafka")),
    pytest.param(kafka_python, marks=pytest.mark.client("kafka-python")),
    pytest.param(aiokafka, marks=pytest.mark.client("aiokafka")),
]


@pytest.mark.feature("SE-01", "SE-02", "SE-03", "SE-04")
@pytest.mark.parametrize("write", WRITERS)
def test_every_listener_and_mechanism_lets_a_user_in(secure: Secure, write: Write) -> None:
    password = secure.password("alice")
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            write(secure, (protocol, mechanism, "alice", password), OWN_TOPIC)
    write(secure, ("SSL", "", "alice", ""), OWN_TOPIC)


@pytest.mark.feature("SE-04")
@pytest.mark.parametrize(
    "write",
    [
        WRITERS[0],
        pytest.param(kafka_python, marks=[pytest.mark.client("kafka-python"), pytest.mark.slow]),
        WRITERS[2],
    ],
)
def test_a_wrong_password_and_an_unknown_user_look_the_same(secure: Secure, write: Write) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        for user in ("alice", "nobody"):
            with pytest.raises(Denied, match="_AUTHENTICATION"):
                write(secure, ("SASL_SSL", mechanism, user, "wrong"), OWN_TOPIC)


@pytest.mark.feature("SE-04", "AD-02")
@pytest.mark.client("confluent-kafka")
def test_a_user_that_is_added_or_deleted_is_so_at_once_for_every_mechanism(secure: Secure) -> None:
    secure.command("security", "user", "add", "erin", "--password-stdin", stdin="first\n")
    secure.command("security", "acl", "add", "erin", "write", "describe", "--topic", FOREIGN_TOPIC)
    for mechanism in MECHANISMS:
        confluent(secure, ("SASL_SSL", mechanism, "erin", "first"), FOREIGN_TOPIC)
        confluent(secure, ("SASL_PLAINTEXT", mechanism, "erin", "first"), FOREIGN_TOPIC)
    secure.command("security", "user", "delete", "erin")
    assert "erin" not in secure.security.users.read()
    for mechanism in MECHANISMS:
        with pytest.raises(Denied, match="_AUTHENTICATION"):
            confluent(secure, ("SASL_SSL", mechanism, "erin", "first"), FOREIGN_TOPIC)
    confluent(secure, ("SASL_SSL", "PLAIN", "alice", secure.password("alice")), OWN_TOPIC)


@pytest.mark.feature("SE-08")
@pytest.mark.parametrize("write", WRITERS)
def test_a_topic_without_the_right_is_refused_until_the_right_is_given(secure: Secure, write: Write) -> None:
    login = ("SASL_SSL", "SCRAM-SHA-512", "bob", secure.password("bob"))
    with pytest.raises(Denied, match="TOPIC_AUTHORIZATION_FAILED"):
        write(secure, login, FOREIGN_TOPIC)
    right = ("bob", "write", "describe", "--topic", FOREIGN_TOPIC)
    secure.command("security", "acl", "add", *right)
    try:
        write(secure, login, FOREIGN_TOPIC)
    finally:
        secure.command("security", "acl", "remove", *right)


@pytest.mark.feature("SE-08", "TO-09")
@pytest.mark.client("java")
def test_kafkas_tools_manage_users_and_rights(secure: Secure, java: Java) -> None:
    admin = ("--command-config", str(secure.security.client_file()))
    tools = Java(java.libs, secure.bootstrap("SASL_SSL"), java.archive)
    user = ("--entity-type", "users", "--entity-name", "dora")
    tools.ask("configs", *admin, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
    login: Login = ("SASL_SSL", "SCRAM-SHA-256", "dora", "secret")
    with pytest.raises(Denied, match="TOPIC_AUTHORIZATION_FAILED"):
        confluent(secure, login, FOREIGN_TOPIC)
    right = ("--allow-principal", "User:dora", "--operation", "Write", "--topic", FOREIGN_TOPIC)
    printed = tools.ask("acls", *admin, "--add", *right).out
    assert "(principal=User:dora, host=*, operation=WRITE, permissionType=ALLOW)" in printed
    confluent(secure, login, FOREIGN_TOPIC)
    assert {"topic", FOREIGN_TOPIC, "User:dora", "write"} <= set(secure.command("security", "acl", "list").split())
    tools.ask("configs", *admin, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    with pytest.raises(Denied, match="_AUTHENTICATION"):
        confluent(secure, login, FOREIGN_TOPIC)


@pytest.mark.feature("SE-07", "TO-09")
@pytest.mark.client("java")
def test_a_delegation_token_is_made_used_and_expired(secure: Secure, java: Java) -> None:
    alice = ("--command-config", str(secure.security.client_file("alice")))
    tools = Java(java.libs, secure.bootstrap("SASL_SSL"), java.archive)
    printed = tools.ask("delegation-tokens", *alice, "--create", *MAX_LIFE).out
    token_id, hmac = printed.splitlines()[-1].split()[:2]
    user = f'username="{token_id}" password="{hmac}" tokenauth="true"'
    login = f"org.apache.kafka.common.security.scram.ScramLoginModule required {user};"
    by_token = secure.data / "by-token.properties"
    text = secure.security.client_file("alice").read_text()
    lines = [f"sasl.jaas.config={login}" if line.startswith("sasl.jaas.config") else line for line in text.splitlines()]
    by_token.write_text("\n".join(lines) + "\n")
    bootstrap = ("--bootstrap-server", secure.bootstrap("SASL_SSL"), "--command-config", str(by_token))
    assert OWN_TOPIC in tools.ask("topics", "--command-config", str(by_token), "--list").lines
    assert "1 record sent" in secure.command("produce", OWN_TOPIC, *bootstrap, stdin="by token\n")
    refused = tools.ask("delegation-tokens", "--command-config", str(by_token), "--create", *MAX_LIFE, code=1)
    assert "DelegationToken" in refused.out + refused.err, "a token makes no other"
    tools.ask("delegation-tokens", *alice, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "AUTHENTICATION" in secure.command("produce", OWN_TOPIC, *bootstrap, stdin="late\n", code=1).upper()


@pytest.mark.feature("SE-10")
def test_controllers_answer_nodes_only(secure: Secure) -> None:
    """A client with a certificate of the clients' authority does not get through the handshake."""
    context = ssl.create_default_context(cafile=secure.authority)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(secure.key("admin"))
    import socket

    for node in secure.cluster.layout.controllers:
        with (
            pytest.raises(OSError),
            socket.create_connection(("127.0.0.1", node.port), 5) as plain,
            context.wrap_socket(plain) as connection,
        ):
            connection.sendall(bytes(4))
            if not connection.recv(1):
                raise ConnectionResetError


@pytest.mark.feature("SE-08")
def test_anonymous_clients_may_do_nothing(secure: Secure) -> None:
    from kafka import KafkaAdminClient

    plain = ",".join(f"127.0.0.1:{node.port}" for node in secure.cluster.layout.brokers)
    client = KafkaAdminClient(bootstrap_servers=plain)
    try:
        assert client.list_topics() == []
    finally:
        client.close()


def test_a_user_writes_and_reads_by_the_files_that_were_made(secure: Secure) -> None:
    for script in ("first_record.py",):
        done = subprocess.run(
            [sys.executable, str(secure.security.directory / "alice" / script)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["b'hello'"]), done.stderr
    user = secure.security.client_file("alice")
    bootstrap = ("--bootstrap-server", secure.bootstrap("SASL_SSL"), "--command-config", str(user))
    assert "1 record sent" in secure.command("produce", OWN_TOPIC, *bootstrap, stdin="by command\n")
    assert "TOPIC_AUTHORIZATION_FAILED" in secure.command("produce", FOREIGN_TOPIC, *bootstrap, stdin="no\n", code=1)


def test_nothing_secret_is_shown(secure: Secure) -> None:
    """Passwords and keys are in the files of their owners, and nowhere else."""
    secrets = [*secure.security.users.read().values(), "PRIVATE KEY"]
    shown = [path.read_text(errors="replace") for path in (secure.data / "logs").iterdir()]
    shown.append(json.dumps([secure.command("configs", "describe", "broker", "1", "--all")], default=str))
    for process in secure.cluster.processes():
        shown.append(Path(f"/proc/{process.pid}/cmdline").read_text())
    from urllib.request import Request, urlopen

    token = secure.security.http_token_file.read_text().strip()
    secrets.append(token)
    for node in secure.cluster.layout.nodes:
        for page in ("decisions", "state", "metrics"):
            wanted = Request(f"http://127.0.0.1:{node.http_port}/{page}", headers={"Authorization": f"Bearer {token}"})
            with urlopen(wanted, timeout=10) as answer:
                shown.append(answer.read().decode())
    assert [secret for secret in secrets for text in shown if secret in text] == []
    for path in (secure.data / "conf").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
