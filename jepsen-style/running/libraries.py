"""The client libraries that a run can have, by name; and which versions of everything it has."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from clients.barnabas_client import BarnabasLibrary
from clients.client import ClientLibrary
from worlds.cluster import ClusterUnderTest

_ROOT = Path(__file__).resolve().parents[2]
_GIT_SECONDS = 10.0


def open_libraries(names: Sequence[str], cluster: ClusterUnderTest) -> list[ClientLibrary]:
    """Clients of these libraries work with that cluster."""
    return [_library(name, cluster) for name in names]


def _library(name: str, cluster: ClusterUnderTest) -> ClientLibrary:
    if name == "confluent":
        from clients import confluent_library

        return confluent_library.library(cluster.now_ns)
    if name == "java":
        from clients import java_client

        return java_client.library(cluster.now_ns)
    return BarnabasLibrary(cluster.world, cluster.now_ns)


def check_libraries(names: Sequence[str]) -> dict[str, str]:
    """Their versions, and those of what they run on. Raises clients.library_missing.LibraryMissing."""
    versions = {"python": platform.python_version(), "trio": version("trio")}
    commit = _commit()
    for name in names:
        if name == "confluent":
            from clients import confluent_client

            versions["librdkafka"] = confluent_client.check()
        elif name == "java":
            from clients import java_client

            versions["kafka-clients"] = java_client.check()
    versions["barnabas"] = f"{_own_version()}{f' ({commit})' if commit else ''}"
    return versions


def _own_version() -> str:
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Empty where this is no checkout."""
    try:
        found = subprocess.run(
            ["git", "-C", str(_ROOT), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
