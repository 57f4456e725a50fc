"""Our client on a node with TLS and SASL, ours and Apache Kafka: the right credentials, and the wrong ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas import Admin, Consumer, Producer, sync
from barnabas.client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    ClientQuotaEntity,
    KafkaPrincipal,
    NewTopic,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from barnabas.client.errors import (
    AuthenticationException,
    DelegationTokenNotFoundException,
    SaslAuthenticationException,
    SslAuthenticationException,
    TimeoutException,
    TopicAuthorizationException,
    UnsupportedSaslMechanismException,
)
from tests.compat.client.certificates import Authority
from tests.compat.client.secured_kafka import ADMIN, JAAS_PASSWORD, PASSWORD, USER, SecuredKafka

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN_MODULES = {"PLAIN": "plain.PlainLoginModule"}


@pytest.fixture
def kafka(secured: SecuredKafka) -> SecuredKafka:
    return secured


def jaas(mechanism: str, user: str = USER, password: str = JAAS_PASSWORD, more: str = "") -> str:
    module = LOGIN_MODULES.get(mechanism, "scram.ScramLoginModule")
    return f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}"{more};'


def by_jaas(options: dict[str, Any], config: str) -> dict[str, Any]:
    """The options with a JAAS configuration in place of user and password."""
    left = {name: value for name, value in options.items() if not name.startswith("sasl_plain_")}
    return left | {"sasl_jaas_config": config}


async def write_and_read(options: dict[str, Any], topic: str) -> None:
    """Two transactions that are committed, one that is aborted between them, and a group that reads them."""
    async with Admin(**options) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    async with Producer(**options, transactional_id=f"{topic}-writer") as producer:
        async with producer.transaction():
            await producer.enqueue(topic, b"one")
            await producer.enqueue(topic, b"two")
        with pytest.raises(RuntimeError):
            async with producer.transaction():
                await producer.enqueue(topic, b"never")
                raise RuntimeError
        async with producer.transaction():
            await producer.enqueue(topic, b"three")
    reading = {"group_id": f"{topic}-readers", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(topic, **options, **reading) as consumer:
        values = []
        with trio.fail_after(20):
            async for record in consumer:
                values.append(record.value)
                if len(values) == 3:
                    break
        await consumer.commit()
    assert values == [b"one", b"two", b"three"]


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_user_with_a_password_writes_and_reads(kafka: SecuredKafka, listener: str, mechanism: str) -> None:
    await write_and_read(kafka.options(listener, mechanism), f"by-{listener}-{mechanism}")


@pytest.mark.feature("CL-01")
async def test_a_client_of_tls_writes_and_reads(kafka: SecuredKafka) -> None:
    await write_and_read(kafka.options("SSL"), "by-tls")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_jaas_configuration_is_as_good(kafka: SecuredKafka, mechanism: str) -> None:
    options = by_jaas(kafka.options("SASL_SSL", mechanism), jaas(mechanism))
    async with Admin(**options) as admin:
        assert len((await admin.describe_cluster()).nodes) == 1


def test_the_blocking_client_takes_the_same_settings(kafka: SecuredKafka) -> None:
    options = kafka.options("SASL_SSL", "SCRAM-SHA-512")
    with sync.Admin(**options) as admin:
        admin.create_topics([NewTopic("blocking", 1, 1)])
    with sync.Producer(**options) as producer:
        producer.send("blocking", b"hello")
    with sync.Consumer("blocking", **options, auto_offset_reset="earliest", group_id="blocking") as consumer:
        assert next(iter(consumer)).value == b"hello"


# Refusals


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", [USER, "nobody"])
async def test_a_wrong_password_ends_every_client_at_once(kafka: SecuredKafka, mechanism: str, user: str) -> None:
    options = kafka.options("SASL_SSL", mechanism, user) | {"sasl_plain_password": "not it"}
    began = time.monotonic()
    async with Admin(**options) as admin:
        with pytest.raises(SaslAuthenticationException, match="Authentication failed") as caught:
            await admin.describe_cluster()
    assert "not it" not in str(caught.value)
    async with Producer(**options) as producer:
        with pytest.raises(SaslAuthenticationException, match="Authentication failed"):
            await producer.send("anything", b"")
    with pytest.raises(SaslAuthenticationException, match="Authentication failed"):
        async with Consumer("anything", **options, group_id="anyone") as consumer:
            await consumer.poll(timeout_ms=20_000)
    # Each gives up at the first answer, not when its time limit of a minute is over.
    assert time.monotonic() - began < 50


async def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are(kafka: SecuredKafka) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    unsigned = f'{module} required unsecuredLoginStringClaim_sub="a";'
    options = by_jaas(kafka.options("SASL_PLAINTEXT"), unsigned) | {"sasl_mechanism": "OAUTHBEARER"}
    async with Admin(**options) as admin:
        with pytest.raises(UnsupportedSaslMechanismException, match=r"enabled: .*SCRAM-SHA-256"):
            await admin.describe_cluster()


async def test_another_authority_is_not_trusted(kafka: SecuredKafka) -> None:
    options = kafka.options("SSL") | {"ssl_truststore_certificates": Authority("Somebody Else").pem}
    async with Admin(**options) as admin:
        with pytest.raises(SslAuthenticationException, match=r"TLS handshake with 127.0.0.1:\d+ failed: .*certificate"):
            await admin.describe_cluster()
    async with Producer(**options) as producer:
        with pytest.raises(SslAuthenticationException):
            await producer.send("anything", b"")


async def test_the_certificate_must_have_the_name_that_was_dialled(kafka: SecuredKafka) -> None:
    options = kafka.options("NAMED")
    async with Admin(**options) as admin:
        with pytest.raises(SslAuthenticationException, match=r"127\.0\.0\.1"):
            await admin.describe_cluster()
    async with Admin(**options, ssl_endpoint_identification_algorithm="") as admin:
        assert (await admin.describe_cluster()).nodes


async def test_a_listener_that_wants_a_certificate(kafka: SecuredKafka, tmp_path: Path) -> None:
    options = kafka.options("MTLS")
    async with Admin(**options, default_api_timeout_ms=5_000) as admin:
        with pytest.raises(SslAuthenticationException, match="certificate"):
            await admin.describe_cluster()
    key, store = kafka.client, tmp_path / "client.p12"
    store.write_bytes(key.pkcs12("store password"))
    in_file = tmp_path / "client.pem"
    in_file.write_text(key.key_pem("key password") + key.chain_pem)
    ways: list[dict[str, Any]] = [
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": key.key_pem(),
            "ssl_keystore_certificate_chain": key.chain_pem,
        },
        {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(in_file), "ssl_key_password": "key password"},
        {
            "ssl_keystore_type": "PKCS12",
            "ssl_keystore_location": str(store),
            "ssl_keystore_password": "store password",
        },
    ]
    for way in ways:
        async with Admin(**options, **way) as admin:
            assert (await admin.describe_cluster()).nodes


@pytest.mark.parametrize(
    ("client", "listener", "line"),
    [
        ("PLAINTEXT", "SSL", "TLS"),
        ("SSL", "PLAINTEXT", "TLS"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "SASL|closed"),
        ("SASL_PLAINTEXT", "PLAINTEXT", "SASL"),
        ("SASL_PLAINTEXT", "SASL_SSL", "TLS"),
    ],
)
async def test_the_wrong_protocol_for_a_port_is_one_line(
    kafka: SecuredKafka, client: str, listener: str, line: str
) -> None:
    options = kafka.options(client) | {"bootstrap_servers": kafka.bootstrap(listener)}
    async with Admin(**options, default_api_timeout_ms=3_000) as admin:
        with pytest.raises((AuthenticationException, TimeoutException), match=line) as caught:
            await admin.describe_cluster()
    assert "\n" not in str(caught.value)


# Sessions


@pytest.mark.feature("CL-01")
async def test_a_session_that_ends_every_second_is_renewed(kafka: SecuredKafka) -> None:
    options = kafka.options("REAUTH")
    async with Admin(**options) as admin:
        await admin.create_topics([NewTopic("renewed", 1, 1)])
    async with Producer(**options, linger_ms=0, retries=0) as producer:
        until = trio.current_time() + 4
        sent = 0
        while trio.current_time() < until:
            await producer.send("renewed", b"%d" % sent)
            sent += 1
    async with Consumer("renewed", **options, auto_offset_reset="earliest", group_id="renewing") as consumer:
        got = 0
        with trio.fail_after(20):
            async for _ in consumer:
                got += 1
                if got == sent:
                    break


# Requests for which the cluster must know the user


@pytest.mark.feature("CL-04")
async def test_access_control_lists(kafka: SecuredKafka) -> None:
    allowed = AclBinding(AclResourceType.TOPIC, "ruled", f"User:{USER}", AclOperation.READ)
    denied = AclBinding(
        AclResourceType.TOPIC, "ruled", f"User:{USER}", AclOperation.WRITE, AclPermissionType.DENY, "127.0.0.1"
    )
    both = AclBindingFilter(AclResourceType.TOPIC, "ruled")
    async with Admin(**kafka.options("SASL_SSL", user=ADMIN)) as admin:
        await admin.create_topics([NewTopic("ruled", 1, 1)])
        await admin.create_acls([allowed, denied])
        with trio.fail_after(10):
            while set(await admin.describe_acls(both)) != {allowed, denied}:
                await trio.sleep(0.05)
        async with Producer(**kafka.options("SASL_SSL")) as producer:
            with pytest.raises(TopicAuthorizationException):
                await producer.send("ruled", b"")
        removed = await admin.delete_acls(both)
        assert set(removed[both]) == {allowed, denied}
        with trio.fail_after(10):
            while await admin.describe_acls(both):
                await trio.sleep(0.05)
    async with Producer(**kafka.options("SASL_SSL")) as producer:
        await producer.send("ruled", b"")


@pytest.mark.feature("CL-04")
async def test_a_user_is_made_gets_in_and_is_deleted(kafka: SecuredKafka) -> None:
    options = kafka.options("SASL_PLAINTEXT", "SCRAM-SHA-512", "bob")
    async with Admin(**kafka.options("SASL_SSL", user=ADMIN)) as admin:
        await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_512, PASSWORD, iterations=5_000)]
        )
        described = await _once_known(admin, "bob")
        assert [(it.mechanism, it.iterations) for it in described] == [(ScramMechanism.SCRAM_SHA_512, 5_000)]
        async with Admin(**options) as his:
            assert (await his.describe_cluster()).nodes
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)])
        with trio.fail_after(10):
            while "bob" in await admin.describe_user_scram_credentials():
                await trio.sleep(0.05)
    async with Admin(**options) as his:
        with pytest.raises(SaslAuthenticationException):
            await his.describe_cluster()


async def _once_known(admin: Admin, user: str) -> Any:
    with trio.fail_after(10):
        while user not in (found := await admin.describe_user_scram_credentials()):
            await trio.sleep(0.05)
    return found[user]


@pytest.mark.feature("CL-04")
async def test_quotas_of_a_user(kafka: SecuredKafka) -> None:
    entity = ClientQuotaEntity.of(user=USER, client_id="reports")
    async with Admin(**kafka.options("SASL_SSL", user=ADMIN)) as admin:
        await admin.alter_client_quotas({entity: {"producer_byte_rate": 1e9, "consumer_byte_rate": 2e9}})
        with trio.fail_after(10):
            while entity not in (found := await admin.describe_client_quotas()):
                await trio.sleep(0.05)
        assert found[entity] == {"producer_byte_rate": 1e9, "consumer_byte_rate": 2e9}
        await admin.alter_client_quotas({entity: {"producer_byte_rate": None, "consumer_byte_rate": None}})
        with trio.fail_after(10):
            while entity in await admin.describe_client_quotas():
                await trio.sleep(0.05)


@pytest.mark.feature("CL-04")
async def test_a_delegation_token_stands_for_its_owner(kafka: SecuredKafka) -> None:
    me, renewer = KafkaPrincipal(USER), KafkaPrincipal("renewer")
    async with Admin(**kafka.options("SASL_SSL")) as admin:
        token = await admin.create_delegation_token(renewers=[renewer], max_lifetime_ms=3_600_000)
        assert (token.owner, token.renewers) == (me, (renewer,))
        with trio.fail_after(10):
            while token.token_id not in [each.token_id for each in await admin.describe_delegation_token([me])]:
                await trio.sleep(0.05)
        login = jaas("SCRAM-SHA-256", token.token_id, _base64(token.hmac), " tokenauth=true")
        by_token = by_jaas(kafka.options("SASL_SSL", "SCRAM-SHA-256"), login)
        async with Admin(**by_token) as bearer:
            await bearer.create_topics([NewTopic("by-token", 1, 1)])
        assert await admin.renew_delegation_token(token.hmac, renew_time_period_ms=60_000) <= token.max_timestamp_ms
        await admin.expire_delegation_token(token.hmac)
        with trio.fail_after(10):
            while token.token_id in [each.token_id for each in await admin.describe_delegation_token([me])]:
                await trio.sleep(0.05)
        with pytest.raises(DelegationTokenNotFoundException):
            await admin.renew_delegation_token(token.hmac)
    async with Admin(**by_token) as bearer:
        with pytest.raises(SaslAuthenticationException):
            await bearer.describe_cluster()


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()
