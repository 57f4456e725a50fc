"""The settings that secure connections: what is accepted, what is refused in one line, and that secrets never show."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.admin import AdminSettings
from barnabas.client.consumer.settings import ConsumerSettings
from barnabas.client.errors import ConfigException
from barnabas.client.producer.settings import ProducerSettings
from barnabas.client.security_names import SecurityOptions
from barnabas.client.security_settings import NO_SECURITY, SECRETS, SecuritySettings
from barnabas.client.settings import ClientSettings

SECRET = "open-sesame"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";'


OF_KAFKA: dict[str, object] = {
    "sasl.jaas.config": None,
    "sasl.kerberos.service.name": None,
    "sasl.login.callback.handler.class": None,
    "sasl.login.connect.timeout.ms": None,
    "sasl.login.read.timeout.ms": None,
    "sasl.login.refresh.buffer.seconds": 300,
    "sasl.login.refresh.min.period.seconds": 60,
    "sasl.login.refresh.window.factor": 0.8,
    "sasl.login.refresh.window.jitter": 0.05,
    "sasl.login.retry.backoff.max.ms": 10_000,
    "sasl.login.retry.backoff.ms": 100,
    "sasl.mechanism": "GSSAPI",
    "sasl.oauthbearer.assertion.algorithm": "RS256",
    "sasl.oauthbearer.assertion.claim.aud": None,
    "sasl.oauthbearer.assertion.claim.exp.seconds": 300,
    "sasl.oauthbearer.assertion.claim.iss": None,
    "sasl.oauthbearer.assertion.claim.jti.include": False,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": 60,
    "sasl.oauthbearer.assertion.claim.sub": None,
    "sasl.oauthbearer.assertion.file": None,
    "sasl.oauthbearer.assertion.private.key.file": None,
    "sasl.oauthbearer.assertion.private.key.passphrase": None,
    "sasl.oauthbearer.assertion.template.file": None,
    "sasl.oauthbearer.client.credentials.client.id": None,
    "sasl.oauthbearer.client.credentials.client.secret": None,
    "sasl.oauthbearer.header.urlencode": False,
    "sasl.oauthbearer.jwt.retriever.class": None,
    "sasl.oauthbearer.scope": None,
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
    "sasl.oauthbearer.token.endpoint.url": None,
    "security.protocol": "PLAINTEXT",
    "ssl.cipher.suites": (),
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.key.password": None,
    "ssl.keystore.certificate.chain": None,
    "ssl.keystore.key": None,
    "ssl.keystore.location": None,
    "ssl.keystore.password": None,
    "ssl.keystore.type": "JKS",
    "ssl.protocol": "TLSv1.3",
    "ssl.truststore.certificates": None,
    "ssl.truststore.location": None,
    "ssl.truststore.password": None,
    "ssl.truststore.type": "JKS",
}
"""Those of Kafka 4.3 that are not about Java's own classes, Kerberos programs or the keys of listeners."""
OURS = {"sasl.plain.username", "sasl.plain.password"}


def settings(**given: Any) -> ClientSettings:
    return ClientSettings.of({"bootstrap_servers": "there:1", **given})


def test_names_and_defaults_are_kafkas() -> None:
    assert {name.replace("_", ".") for name in SecuritySettings.model_fields} == set(OF_KAFKA) | OURS
    for key, default in OF_KAFKA.items():
        assert getattr(NO_SECURITY, key.replace(".", "_")) == default, key


def test_without_settings_nothing_is_secured() -> None:
    default = settings()
    assert (default.security_protocol, default.encrypts, default.authenticates) == ("PLAINTEXT", False, False)


@pytest.mark.parametrize(
    ("protocol", "encrypts", "authenticates"),
    [("ssl", True, False), ("Sasl_Plaintext", False, True), ("SASL_SSL", True, True)],
)
def test_protocols_are_known_in_any_case(protocol: str, encrypts: bool, authenticates: bool) -> None:
    given = settings(security_protocol=protocol, sasl_mechanism="PLAIN", sasl_jaas_config=JAAS)
    assert given.security_protocol == protocol.upper()
    assert (given.encrypts, given.authenticates) == (encrypts, authenticates)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"security_protocol": "TLS"}, "must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; got 'TLS'"),
        ({"security.protocol": "SSL"}, "unknown setting security.protocol; did you mean security_protocol?"),
        ({"ssl_endpoint_identification_algorithm": "ldaps"}, "must be https or empty; got 'ldaps'"),
        (
            {"sasl_plain_username": "a", "sasl_plain_password": SECRET},
            "sasl_plain_username needs security_protocol SASL_PLAINTEXT or SASL_SSL; got PLAINTEXT",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
            "PLAIN needs sasl_jaas_config, or sasl_plain_username and sasl_plain_password; got neither",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "a"},
            "sasl_plain_username needs sasl_plain_password; got none",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_password": SECRET},
            "sasl_plain_password needs sasl_plain_username; got none",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM"},
            "sasl_mechanism must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI; got 'SCRAM'",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_plain_username": "a"},
            "sasl_plain_username needs sasl_mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; got OAUTHBEARER",
        ),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigException) as caught:
        settings(**given)
    assert str(caught.value.message).endswith(line)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", [AdminSettings, ConsumerSettings, ProducerSettings])
def test_secrets_show_nowhere(kind: type[ClientSettings]) -> None:
    given = kind.of({"bootstrap_servers": "there:1", **dict.fromkeys(SECRETS - {"sasl_plain_password"}, SECRET)})
    for shown in (repr(given), str(given), given.model_dump_json(), str(given.model_dump())):
        assert SECRET not in shown


def test_a_secret_of_the_wrong_type_does_not_show_in_the_error() -> None:
    for name in SECRETS:
        with pytest.raises(ConfigException, match=name) as caught:
            settings(**{name: [SECRET]})
        assert SECRET not in str(caught.value)


def test_every_setting_is_a_keyword_of_every_client() -> None:
    assert set(SecurityOptions.__annotations__) == set(SecuritySettings.model_fields)


def test_values_have_the_names_and_the_form_of_kafka() -> None:
    given = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        ssl_enabled_protocols="TLSv1.2, TLSv1.3",
        ssl_cipher_suites=["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"],
        ssl_key_password=SECRET,
        sasl_oauthbearer_scope="kafka",
    )
    tls = given.values_under("ssl.")
    assert tls["ssl.enabled.protocols"] == "TLSv1.2,TLSv1.3"
    assert tls["ssl.cipher.suites"] == "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384"
    assert tls["ssl.key.password"] == SECRET
    assert "ssl.keystore.location" not in tls
    assert given.values_under("sasl.oauthbearer.")["sasl.oauthbearer.scope"] == "kafka"
    assert given.values_under("sasl.oauthbearer.")["sasl.oauthbearer.header.urlencode"] == "false"
