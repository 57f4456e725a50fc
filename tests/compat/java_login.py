"""Kafka's own client with a login: lists topics by kafka-topics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.compat.available import kafka_libs
from tests.compat.java import Java


def list_topics(
    directory: Path, address: str, values: Mapping[str, str], properties: Mapping[str, str], *, code: int = 0
) -> str:
    """Output of kafka-topics --list with the values as its command-config and with properties of the JVM."""
    config = directory / "client.properties"
    defaults = {"security.protocol": "SASL_PLAINTEXT", "request.timeout.ms": "20000", "default.api.timeout.ms": "20000"}
    config.write_text("".join(f"{key}={text}\n" for key, text in {**defaults, **values}.items()))
    libs = kafka_libs()
    assert libs is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", " ".join(f"-D{name}={text}" for name, text in properties.items()))
        done = Java(libs, address).ask(
            "topics",
            "--list",
            "--command-config",
            str(config),
            code=code,
            expected="TGT renewal thread has been interrupted",
        )
    return done.out + done.err
