"""A consumer's settings: Kafka's names and defaults."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from barnabas.client.consumer.reset_policy import ResetPolicy
from barnabas.client.consumer.settings import ConsumerOptions, ConsumerSettings
from barnabas.client.groups.assignors import RoundRobinAssignor
from barnabas.client.schema_settings import SchemaReadingSettings
from barnabas.client.security_settings import SecuritySettings
from barnabas.client.settings import ClientSettings

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in gzip.decompress(
        (Path(__file__).parent / "data" / "consumer-configs.jsonl.gz").read_bytes()
    ).splitlines()
]
"""Kafka 4.3's own list: name, type, default."""

RENAMED = {"interceptor.classes": "interceptors"}
OURS = {
    "client.id": "barnabas",
    "interceptor.classes": (),
    "key.deserializer": "bytes",
    "partition.assignment.strategy": ("range", "cooperative-sticky"),
    "value.deserializer": "bytes",
}
"""Settings for which Kafka has no default, or one in terms of Java."""
NOT_KAFKAS = {"on_unreadable_batch", "max_batch_unfolded_bytes"}


def settings_of(**options: Any) -> ConsumerSettings:
    return ConsumerSettings.of({"bootstrap_servers": "a:1", **options})


def name_of(row: dict[str, Any]) -> str:
    name: str = row["name"]
    return RENAMED.get(name, name.replace(".", "_"))


def test_the_options_are_those_of_the_settings() -> None:
    assert set(get_type_hints(ConsumerOptions)) == set(ConsumerSettings.model_fields)


def test_every_setting_but_two_is_one_of_kafkas() -> None:
    registry = set(SchemaReadingSettings.model_fields) - set(ClientSettings.model_fields)
    own = set(ConsumerSettings.model_fields) - set(SecuritySettings.model_fields) - registry
    assert own - NOT_KAFKAS <= {name_of(row) for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_defaults_are_kafkas(row: dict[str, Any]) -> None:
    name = name_of(row)
    if name not in ConsumerSettings.model_fields or name == "bootstrap_servers":
        return
    if name in SecuritySettings.model_fields:
        return  # see test_security_settings.py
    value = getattr(settings_of(), name)
    if row["name"] in OURS:
        assert value == OURS[row["name"]]
    elif row["default"] is None:
        assert value is None
    else:
        assert (str(value).lower() if isinstance(value, bool) else str(value)) == row["default"]


def test_missing_settings_of_kafka_are_listed() -> None:
    """Classes of Java, metrics that are pushed or reported, and sockets; share consumers have their own settings."""
    missing = {name_of(row) for row in ROWS} - set(ConsumerSettings.model_fields)
    assert {name for name in missing if not name.startswith(("sasl_", "ssl_", "metric", "share_"))} == {
        "config_providers",
        "internal_throw_on_fetch_stable_offset_unsupported",
        "receive_buffer_bytes",
        "security_providers",
        "send_buffer_bytes",
    }


def test_settings_of_the_reader_and_the_member() -> None:
    settings = settings_of(
        group_id="g",
        group_protocol="CLASSIC",
        partition_assignment_strategy="range, sticky",
        isolation_level="READ_COMMITTED",
        auto_offset_reset="by_duration:PT1H",
        client_rack="east",
    )
    assert settings.group("g").partition_assignors == ("range", "sticky")
    assert settings.reading.reset == ResetPolicy("by_duration", 3_600_000)
    assert settings.reads_committed and settings.commits_by_itself
    assert settings.reading.client_rack == settings.group("g").client_rack == "east"
    assert not settings_of().commits_by_itself
    assert settings_of(partition_assignment_strategy=RoundRobinAssignor).partition_assignment_strategy == (
        RoundRobinAssignor,
    )
