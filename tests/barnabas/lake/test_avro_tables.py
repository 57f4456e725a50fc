"""Avro values with ids of a schema registry as columns, which grow with the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.dev.embedded import EmbeddedServers, embedded
from barnabas.sync import Producer
from tests.barnabas.lake.lakes import Lake, identifier

TOPIC = "sales"


@pytest.fixture
def servers() -> Iterator[EmbeddedServers]:
    with embedded(registry=True) as found:
        yield found


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Sale", "fields": list(fields)})


NUMBER = {"name": "number", "type": "int"}
WIDE = {"name": "number", "type": "long"}
CUSTOMER = {"name": "customer", "type": ["null", "string"], "default": None}


def produce(servers: EmbeddedServers, text: str, *values: dict[str, Any]) -> None:
    with Producer(
        bootstrap_servers=servers,
        value_serializer="avro",
        value_schema=text,
        schema_registry_url=servers.registry_url,
    ) as producer:
        for value in values:
            producer.send(TOPIC, value=value)


def test_columns_grow_with_the_schema(
    servers: EmbeddedServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path, str(servers), capsys)
    servers.create_topic(TOPIC)
    words = ("--mode", "avro", "--schema-registry", servers.registry_url, "--available-now")
    produce(servers, schema(NUMBER), {"number": 1}, {"number": 2})
    lake("run", TOPIC, *words)
    produce(servers, schema(WIDE, CUSTOMER), {"number": 2**40, "customer": "Ada"})
    with Producer(bootstrap_servers=servers) as producer:
        for value in (b"", b"\x00\x00\x00\x00\x63x", b"no magic", b"\x00\x00\x00\x00\x01"):
            producer.send(TOPIC, value=value)
        producer.send(TOPIC, key=b"gone", value=None)
    produce(servers, schema(NUMBER), {"number": 3})
    account = lake("run", TOPIC, *words)[identifier(TOPIC)]
    assert (account["records"], account["dead letters"]) == (3, 4)
    rows = sorted(lake.table(TOPIC).scan().to_arrow().to_pylist(), key=lambda row: row["metadata"]["offset"])
    assert [(row["number"], row["customer"]) for row in rows] == [
        (1, None),
        (2, None),
        (2**40, "Ada"),
        (None, None),
        (3, None),
    ]
    assert rows[3]["metadata"]["key"] == b"gone"
    verdict = lake("check", identifier(TOPIC))
    assert (verdict["records"], verdict["dead_letters"], verdict["findings"]) == (5, 4, [])


def test_a_registry_that_is_away_is_waited_for() -> None:
    """Records are no dead letters because nobody could read their schema for a while."""
    from barnabas.client.schemas.lookup import RegistryLookup
    from barnabas.lake.avro_values import RegistryIds
    from barnabas.lake.errors import SchemaUnavailable

    decoder = RegistryIds(TOPIC, RegistryLookup(["http://127.0.0.1:9"], timeout_ms=1_000))
    with pytest.raises(SchemaUnavailable, match="no schema registry answered"):
        decoder.read(b"\x00\x00\x00\x00\x01x")
