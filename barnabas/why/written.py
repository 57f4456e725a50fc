"""What a node of this machine decided in earlier lives: its ring went with its process, its log is still there."""

from __future__ import annotations

from pathlib import Path

from barnabas.why.story import Json, read_decisions
from runtime.decisions import LOG_LINE, read_log_line


def read_log(path: Path, node: str) -> list[Json]:
    """The decisions in a node's log, as far as it was not rotated away; none if there is no log."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            found = [read_log_line(line, node) for line in lines if LOG_LINE in line]
    except OSError:
        return []
    return read_decisions({"decisions": found})
