"""The answers of Apache Kafka's own classes about remote log metadata; `data/WriteRemoteLog.java` wrote them down."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "data" / "remote-log.txt.gz"


@cache
def _lines() -> tuple[str, ...]:
    return tuple(gzip.decompress(FILE.read_bytes()).decode().splitlines())


def lines(kind: str) -> list[str]:
    """The lines that begin with this word, without it."""
    found = [line.removeprefix(kind + " ") for line in _lines() if line.startswith(kind + " ")]
    assert found, f"no line in {FILE.name} begins with {kind}"
    return found


def epochs_in(text: str) -> dict[int, int]:
    """`5:10,7:15`"""
    if text == "-":
        return {}
    return {int(epoch): int(offset) for epoch, _, offset in (each.partition(":") for each in text.split(","))}
