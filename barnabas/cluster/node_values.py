"""Core: addresses and directories in the values of a node's configuration file."""

from __future__ import annotations

from collections.abc import Mapping


def shifted(address: str, shift: int) -> str:
    """An address whose port is so much higher."""
    head, _colon, port = address.strip().rpartition(":")
    return f"{head}:{int(port) + shift}"


def log_directories_in(values: Mapping[str, str]) -> list[str]:
    """The directories to format: those of logs, and that of the metadata log if it has one of its own."""
    named = values.get("log.dirs") or values.get("log.dir") or ""
    directories = [each.strip() for each in named.split(",") if each.strip()]
    metadata = values.get("metadata.log.dir")
    return [*directories, metadata] if metadata and metadata not in directories else directories
