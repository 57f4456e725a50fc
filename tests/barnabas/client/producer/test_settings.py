"""A producer's settings: Kafka's names and defaults, and what goes together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from barnabas.client.errors import ConfigException
from barnabas.client.producer.settings import ProducerOptions, ProducerSettings
from barnabas.client.schema_settings import SchemaWritingSettings
from barnabas.client.security_settings import SecuritySettings
from barnabas.client.settings import ClientSettings

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in gzip.decompress(
        (Path(__file__).parent / "data" / "producer-configs.jsonl.gz").read_bytes()
    ).splitlines()
]
"""Kafka 4.3's own list: name, type, default."""

RENAMED = {"interceptor.classes": "interceptors"}
OURS = {"client.id": "barnabas", "key.serializer": "bytes", "value.serializer": "bytes"}
"""Settings for which Kafka has no default, or an empty one."""
SAME_AS_NONE = {"interceptor.classes": ()}


def settings_of(**options: Any) -> ProducerSettings:
    return ProducerSettings.of({"bootstrap_servers": "a:1", **options})


def test_the_options_are_those_of_the_settings() -> None:
    assert set(get_type_hints(ProducerOptions)) == set(ProducerSettings.model_fields)


def test_every_setting_is_one_of_kafkas() -> None:
    known = {RENAMED.get(row["name"], row["name"].replace(".", "_")) for row in ROWS}
    registry = set(SchemaWritingSettings.model_fields) - set(ClientSettings.model_fields)
    own = set(ProducerSettings.model_fields) - set(SecuritySettings.model_fields) - registry
    assert own - known == {"allow_auto_create_topics", "client_rack"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_defaults_are_kafkas(row: dict[str, Any]) -> None:
    name = RENAMED.get(row["name"], row["name"].replace(".", "_"))
    if name not in ProducerSettings.model_fields or name == "bootstrap_servers":
        return
    if name in SecuritySettings.model_fields:
        return  # see test_security_settings.py
    value = getattr(settings_of(), name)
    if row["name"] in OURS:
        assert value == OURS[row["name"]]
    elif row["name"] in SAME_AS_NONE:
        assert value == SAME_AS_NONE[row["name"]]
    elif row["default"] is None:
        assert value is None
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        assert text == row["default"]


def test_missing_settings_of_kafka_are_listed() -> None:
    """Classes of Java, metrics that are pushed or reported, sockets: settings that this client does not take."""
    names = {RENAMED.get(row["name"], row["name"].replace(".", "_")) for row in ROWS}
    missing = {name for name in names - set(ProducerSettings.model_fields) if not name.startswith(("sasl_", "ssl_"))}
    assert missing == {
        "config_providers",
        "metric_reporters",
        "metrics_recording_level",
        "receive_buffer_bytes",
        "security_providers",
        "send_buffer_bytes",
    }


@pytest.mark.feature("TX-15")
def test_two_phase_commit_needs_an_id_and_has_no_timeout() -> None:
    assert settings_of(transactional_id="t", transaction_two_phase_commit_enable=True).transaction_timeout_ms == 60_000
    with pytest.raises(ConfigException, match="needs a transactional_id"):
        settings_of(transaction_two_phase_commit_enable=True)
    with pytest.raises(ConfigException, match="such transactions have no timeout; got 5000"):
        settings_of(transactional_id="t", transaction_two_phase_commit_enable=True, transaction_timeout_ms=5000)


@pytest.mark.feature("PR-11")
def test_idempotence_gives_way_unless_it_was_asked_for() -> None:
    assert settings_of().enable_idempotence
    for against in ({"acks": 1}, {"acks": "0"}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}):
        assert not settings_of(**against).enable_idempotence
        with pytest.raises(ConfigException, match="enable_idempotence"):
            settings_of(enable_idempotence=True, **against)
        with pytest.raises(ConfigException, match="transactional_id"):
            settings_of(transactional_id="t", **against)
    with pytest.raises(ConfigException, match="transactional_id"):
        settings_of(transactional_id="t", enable_idempotence=False)


@pytest.mark.feature("PR-10")
def test_a_delivery_takes_at_least_a_linger_and_a_request() -> None:
    assert settings_of(linger_ms=100_000).delivery_timeout_ms == 130_000
    with pytest.raises(ConfigException, match="at least linger_ms"):
        settings_of(delivery_timeout_ms=1000)
    assert settings_of(delivery_timeout_ms=1005, request_timeout_ms=1000).delivery_timeout_ms == 1005


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"acks": 2}, "acks"),
        ({"compression_type": "brotli"}, "compression_type"),
        ({"compression_gzip_level": 0}, "1 to 9"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": "large"}, "batch_size"),
        ({"linger": 5}, "linger_ms?"),
        ({"buffer_memory": 1000}, "buffer_memory must be at least batch_size (16384); got 1000"),
        ({"transactional_id": ""}, "transactional_id"),
        ({"partitioner_class": "murmur2_random"}, "partitioner"),
        ({"interceptors": ["mine"]}, "interceptors"),
        ({"bootstrap_servers": []}, "bootstrap_servers"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigException) as caught:
        settings_of(**options)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_codecs_have_their_levels() -> None:
    assert settings_of(compression_type="zstd").compression_level == 3
    assert settings_of(compression_type="lz4", compression_lz4_level=4).compression_level == 4
    assert settings_of(compression_type="snappy").compression_level is None
    assert settings_of().compression == 0
