"""Clusters whose nodes and clients all prove themselves by OAUTHBEARER, or all by GSSAPI: no other listener is open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin import NewTopic
from barnabas.client.errors import AuthenticationException
from barnabas.cluster.ports import free_base_port
from barnabas.protocol.errors import KafkaError
from tests.compat.kdc import REALM, missing, running_kdc
from tests.runtime.sasl.provider import Provider, public_jwk, rsa_key, running, signed

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.feature("SE-05", "SE-10")]

BARNABAS = str(Path(sys.executable).with_name("barnabas"))
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
HOST = "localhost"
SECRET = "hush-hush"
PATIENCE_SECONDS = 60


def properties(directory: Path, node: int, base_port: int, values: Mapping[str, str]) -> Path:
    """The file of controller 1, broker 2 or broker 3."""
    role = "controller" if node == 1 else "broker"
    listener = "CTRL" if node == 1 else "CLIENT"
    lines = {
        "process.roles": role,
        "node.id": str(node),
        "listeners": f"{listener}://{HOST}:{base_port + node}",
        "controller.listener.names": "CTRL",
        "controller.quorum.voters": f"1@{HOST}:{base_port + 1}",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CTRL:SASL_PLAINTEXT",
        "log.dirs": str(directory / f"data-{node}"),
        "offsets.topic.replication.factor": "2",
        "group.initial.rebalance.delay.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:kafka;User:alice",
        **({"inter.broker.listener.name": "CLIENT"} if node != 1 else {}),
        **values,
    }
    path = directory / f"node-{node}.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
    return path


@contextmanager
def running_cluster(
    directory: Path, values: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Start a controller and two brokers; yields the client's options."""
    base_port = free_base_port((1, 2, 3))
    files = [properties(directory, node, base_port, values) for node in (1, 2, 3)]
    for file in files:
        command = [BARNABAS, "storage", "format", "--config", str(file), "--cluster-id", CLUSTER_ID]
        subprocess.run(command, check=True, capture_output=True)
    nodes = []
    try:
        for file in files:
            with file.with_suffix(".log").open("wb") as log:
                env = {**os.environ, **environment}
                nodes.append(subprocess.Popen([BARNABAS, "node", str(file)], stdout=log, stderr=log, env=env))
        yield {
            "bootstrap_servers": ",".join(f"{HOST}:{base_port + node}" for node in (2, 3)),
            "security_protocol": "SASL_PLAINTEXT",
        }
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait(30)
    for file in files:
        text = file.with_suffix(".log").read_text()
        assert "Traceback" not in text and SECRET not in text, text


async def write_and_read(options: dict[str, Any]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with Admin(**options) as admin:
            while len((await admin.describe_cluster()).nodes) < 2:
                await trio.sleep(0.1)
            await admin.create_topics([NewTopic("flights", 3, 2)])
        async with Producer(**options, acks="all") as producer:
            for number in range(30):
                await producer.enqueue("flights", b"%d" % number)
        found = set()
        async with Consumer("flights", **options, group_id="readers", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                found.add(record.value)
                if len(found) == 30:
                    break


async def ask(options: dict[str, Any]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with Admin(**options) as admin:
            await admin.describe_cluster()


async def wait_until_served(options: dict[str, Any]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                await ask(options)
                return
            except KafkaError:
                await trio.sleep(0.1)


def test_a_cluster_by_tokens_of_a_provider(tmp_path: Path) -> None:
    now = int(time.time())

    def token(key: str, name: str) -> str:
        return signed(rsa_key(key), {"sub": name, "aud": "events", "iss": "us", "iat": now, "exp": now + 3600})

    # The provider is down when the nodes start.
    provider = Provider(keys=[public_jwk("RS256", rsa_key("one"), "one")], failures=3)
    provider.responses = [(200, json.dumps({"access_token": token("one", "kafka")}).encode())] * 1000
    with running(provider):
        values = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": provider.url("jwks"),
            "sasl.oauthbearer.expected.audience": "events",
            "sasl.oauthbearer.expected.issuer": "us",
            "sasl.oauthbearer.token.endpoint.url": provider.url("token"),
            "sasl.oauthbearer.client.credentials.client.id": "nodes",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"{provider.url('jwks')},{provider.url('token')}",
        }
        with running_cluster(tmp_path, values, {}) as options:
            options["sasl_mechanism"] = "OAUTHBEARER"
            good = {**options, "sasl_login_callback_handler_class": lambda: token("one", "alice")}
            trio.run(wait_until_served, good)
            trio.run(write_and_read, good)
            forged = {**options, "sasl_login_callback_handler_class": lambda: token("another", "alice")}
            with pytest.raises(AuthenticationException, match="invalid_token"):
                trio.run(ask, forged)


def test_a_cluster_by_tickets_of_kerberos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with running_kdc(tmp_path) as kdc:
        for name, value in kdc.environment.items():
            monkeypatch.setenv(name, value)
        keytab, alice, mallory = kdc.add(f"kafka/{HOST}"), kdc.add("alice"), kdc.add("mallory")
        module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
        jaas = f'{module} storeKey=true keyTab="{keytab}" principal="kafka/{HOST}@{REALM}";'
        values = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.mechanism.controller.protocol": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": f"RULE:[1:$1@$0](mallory@{REALM})s/.*/nobody/,DEFAULT",
            "listener.name.client.gssapi.sasl.jaas.config": jaas,
            "listener.name.ctrl.gssapi.sasl.jaas.config": jaas,
        }
        with running_cluster(tmp_path, values, kdc.environment) as options:
            options |= {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"}

            def login(principal: str, path: Path) -> str:
                return f'{module} keyTab="{path}" principal="{principal}@{REALM}";'

            good = {**options, "sasl_jaas_config": login("alice", alice)}
            trio.run(wait_until_served, good)
            trio.run(write_and_read, good)
            wrong = {**options, "sasl_jaas_config": login("mallory", alice)}
            with pytest.raises(AuthenticationException, match="no ticket of Kerberos"):
                trio.run(ask, wrong)
            no_rights = {**options, "sasl_jaas_config": login("mallory", mallory)}
            with pytest.raises(KafkaError, match=r"(?i)authoriz"):
                trio.run(write_and_read, no_rights)
