"""Reads decisions from the log file of a node on this machine: those made before its last restart are only there."""

from __future__ import annotations

from pathlib import Path

from barnabas.runtime.decisions import LOG_LINE, read_log_line
from barnabas.why.story import Json, read_decisions


def read_log(path: Path, node: str) -> list[Json]:
    """Decisions in a node's current log file; empty if there is no file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            found = [read_log_line(line, node) for line in lines if LOG_LINE in line]
    except OSError:
        return []
    return read_decisions({"decisions": found})
