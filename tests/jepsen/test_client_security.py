"""Settings of TLS and SASL reach the clients of a run."""

from __future__ import annotations

import pytest

from clients import barnabas_settings, confluent_settings, java_client
from running.plan import Plan, WrongPlan

BY_PASSWORD = (
    "security_protocol=SASL_SSL",
    "sasl_mechanism=SCRAM-SHA-512",
    "sasl_plain_username=alice",
    "sasl_plain_password=wonderland",
    "ssl_truststore_location=/etc/kafka/ca.pem",
)


def test_settings_of_our_client_are_those_of_the_run() -> None:
    settings = Plan("set", cluster="bootstrap", bootstrap="127.0.0.1:1", client_config=BY_PASSWORD).client_settings()
    ours = barnabas_settings.producer(settings)
    assert ours["security_protocol"] == "SASL_SSL"
    assert ours["sasl_plain_password"] == "wonderland"
    assert "wonderland" not in repr(settings)


def test_librdkafka_gets_them_by_its_own_names() -> None:
    settings = Plan("set", cluster="bootstrap", bootstrap="127.0.0.1:1", client_config=BY_PASSWORD).client_settings()
    theirs = confluent_settings.common(settings)
    assert theirs["security.protocol"] == "SASL_SSL"
    assert theirs["sasl.username"] == "alice"
    assert theirs["sasl.password"] == "wonderland"
    assert theirs["ssl.ca.location"] == "/etc/kafka/ca.pem"


def test_a_java_client_gets_a_login_module() -> None:
    settings = Plan("set", cluster="bootstrap", bootstrap="127.0.0.1:1", client_config=BY_PASSWORD).client_settings()
    theirs = java_client.options(settings)["producer"]
    assert theirs["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="wonderland";'
    )
    assert theirs["ssl.truststore.location"] == "/etc/kafka/ca.pem"
    assert not [name for name in theirs if name.startswith("sasl.plain.")]


def test_a_secure_run_is_one_of_nodes_of_ours() -> None:
    assert Plan("set", cluster="sim", secure=True).conditions().secure
    assert "--secure" in Plan("set", cluster="local", secure=True).words()
    with pytest.raises(WrongPlan, match="--secure: only sim, local, netns can be made secure; this is compose"):
        Plan("set", cluster="compose", secure=True)


def test_a_setting_that_is_wrong_ends_the_run_before_it_begins() -> None:
    with pytest.raises(WrongPlan, match="PLAIN needs sasl_jaas_config"):
        Plan("set", client_config=("security_protocol=SASL_SSL", "sasl_mechanism=PLAIN")).client_settings()
