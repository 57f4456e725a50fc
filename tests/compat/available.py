"""Which of the other people's clients are on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql")
"""Debian keeps its programs out of PATH, one directory for each version."""
MISSING = ROOT / ".cache" / "compat" / "missing"
FRANZ_GO = ROOT / ".cache" / "compat" / "share-group"
"""The program of franz-go, compiled by `install.sh`."""

APART = {name: ROOT / ".cache" / "compat" / name / "bin" / "python" for name in ("faust", "quixstreams")}
"""The Pythons that have faust-streaming and quixstreams, installed by `install.sh`."""


def missing() -> dict[str, tuple[str, str]]:
    """Thing to (`impossible` or `failed`, why), as `install.sh` found it."""
    if not MISSING.exists():
        return {}
    lines = [line.split("\t", 2) for line in MISSING.read_text().splitlines()]
    return {thing: (kind, why) for thing, kind, why in lines}


def kafka_libs() -> Path | None:
    """The directory with Kafka's jars."""
    named = os.environ.get("KAFKA_LIBS")
    libs = Path(named) if named else ROOT / ".cache" / "kafka-libs"
    return libs if any(libs.glob("kafka-tools-*.jar")) else None


def package_of(client: str) -> str:
    """The package of `install.sh` that a client needs. Apache Kafka's own broker comes with the tools in Java."""
    return "java" if client == "apache-kafka" else client


def lacking(client: str) -> str:
    """Why tests of a client cannot run here, or nothing."""
    client = package_of(client)
    if client == "kcat" and shutil.which("kcat") is None:
        return missing().get("kcat", ("", "there is no kcat; tests/compat/install.sh installs it"))[1]
    if client == "franz-go" and not FRANZ_GO.exists():
        return missing().get("franz-go", ("", "not compiled; tests/compat/install.sh does it"))[1]
    if client in APART and not APART[client].exists():
        return missing().get(client, ("", "not installed; tests/compat/install.sh does it"))[1]
    if client == "java" and (shutil.which("java") is None or kafka_libs() is None):
        return missing().get("java", ("", "no Java with Kafka's jars; tests/compat/install.sh installs them"))[1]
    if client == "postgresql" and shutil.which("initdb") is None and not any(DEBIAN_POSTGRESQL.glob("*/bin/initdb")):
        return missing().get("postgresql", ("", "there is no PostgreSQL; tests/compat/install.sh installs it"))[1]
    return ""
