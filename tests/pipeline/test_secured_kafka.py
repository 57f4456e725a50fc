"""The blocking client, Spark's source and the sink on Apache Kafka with TLS and SASL."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import sync
from barnabas.client.admin import NewTopic
from barnabas.client.errors import (
    IllegalSaslStateException,
    SaslAuthenticationException,
    SslAuthenticationException,
)
from barnabas.client.security_settings import SecuritySettings
from barnabas.cluster.ports import free_base_port
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import ClusterAccess
from barnabas.pipeline.errors import TimedOut
from barnabas.protocol.errors import KafkaError
from tests.compat.available import kafka_libs
from tests.compat.client.certificates import Authority
from tests.compat.client.secured_kafka import JAAS_PASSWORD, PORTS, USER, SecuredKafka, secured_kafka

pytestmark = [pytest.mark.slow, pytest.mark.feature("PL-01")]

TOPIC = "ledger"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    libs = kafka_libs()
    if libs is None:
        pytest.skip("no jars of Kafka; tests/compat/install.sh fetches them")
    base_port = free_base_port(tuple(range(len(PORTS) + 1)))
    with secured_kafka(libs, tmp_path_factory.mktemp("secured-kafka"), base_port) as node:
        with sync.Admin(bootstrap_servers=node.bootstrap("PLAINTEXT")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        yield node


def opened(options: dict[str, Any]) -> BlockingCluster:
    security = {name: value for name, value in options.items() if name != "bootstrap_servers"}
    access = ClusterAccess(options["bootstrap_servers"], SecuritySettings.of(security).given_values())
    return BlockingCluster(access, retry_timeout_ms=2_000)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SSL", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("REAUTH", "SCRAM-SHA-256")],
)
def test_a_blocking_client_gets_in_and_keeps_its_connection(kafka: SecuredKafka, listener: str, mechanism: str) -> None:
    with opened(kafka.options(listener, mechanism)) as cluster:
        assert TOPIC in cluster.metadata().topics
        connection = cluster.connection(1)
        for _ in range(3):
            assert cluster.list_offsets({(TOPIC, 0): -2})[TOPIC, 0].offset == 0
        assert cluster.connection(1) is connection, "what TLS itself sends is not the end of the connection"


def test_a_blocking_client_opens_another_connection_when_its_session_ends(kafka: SecuredKafka) -> None:
    with opened(kafka.options("REAUTH")) as cluster:
        connection = first = cluster.connection(cluster.coordinator("anyone", 0))
        while connection is first:
            cluster.metadata([TOPIC])
            connection = cluster.connection(1)
        assert TOPIC in cluster.metadata([TOPIC]).topics


@pytest.mark.parametrize(
    ("listener", "change", "error", "line"),
    [
        ("SASL_SSL", {"sasl_plain_password": "guess"}, SaslAuthenticationException, "Authentication failed"),
        ("NAMED", {}, SslAuthenticationException, "not valid for '127.0.0.1'"),
        ("MTLS", {}, SslAuthenticationException, "certificate"),
        ("SSL", {"ssl_truststore_certificates": Authority("Another").pem}, SslAuthenticationException, "certificate"),
        ("SSL", {"security_protocol": "PLAINTEXT"}, SslAuthenticationException, "speaks TLS on this port"),
        ("PLAINTEXT", {"security_protocol": "SSL"}, TimedOut, "does not speak TLS on this port"),
        ("SASL_PLAINTEXT", {"bootstrap": "PLAINTEXT"}, IllegalSaslStateException, "does not expect SASL"),
    ],
)
def test_a_refusal_is_one_line(
    kafka: SecuredKafka, listener: str, change: dict[str, str], error: type[Exception], line: str
) -> None:
    options = kafka.options(listener) | {name: value for name, value in change.items() if name != "bootstrap"}
    if "bootstrap" in change:
        options["bootstrap_servers"] = kafka.bootstrap(change["bootstrap"])
    with opened(options) as cluster, pytest.raises(error, match=line) as caught:
        cluster.metadata()
    assert "\n" not in str(caught.value)
    assert "guess" not in str(caught.value)
    assert not isinstance(caught.value, KafkaError) or not caught.value.retriable


@pytest.mark.spark
@pytest.mark.feature("PL-04")
def test_spark_reads_and_writes_with_the_options_of_its_own_source(spark: Any, kafka: SecuredKafka) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{JAAS_PASSWORD}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": kafka.authority.pem,
    }
    rows = spark.createDataFrame([(b"k", b"v"), (b"k", b"w")], "key binary, value binary").coalesce(1)
    rows.write.format("barnabas").mode("append").options(**options).option("topic", TOPIC).save()
    read = spark.read.format("barnabas").options(**options).option("subscribe", TOPIC).load()
    assert sorted(bytes(row.value) for row in read.select("value").collect()) == [b"v", b"w"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        read.explain(True)
    for secret in (JAAS_PASSWORD, kafka.authority.pem[:60]):
        assert secret not in shown.getvalue() + repr(read)
