"""Reads the words of a plain `barnabas dev` without the parser of the other commands.

To load that parser takes a quarter of the time in which a broker starts, and ten megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.cluster.errors import WrongArgument
from barnabas.dev.options import DEFAULT_PORT, LOOPBACK, DevOptions, NewDevTopic

MOST_PORT = 65_000


def plain_options(words: Sequence[str]) -> DevOptions | None:
    """The options of `barnabas dev WORDS`; None if the parser has to look at them: they are wrong, ask for help, or are
    less common."""
    values = {"--port": str(DEFAULT_PORT), "--host": LOOPBACK, "--http-port": "0", "--dir": ""}
    given: list[tuple[str, str]] = []
    rest = iter(words)
    is_secure = False
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--secure":
            is_secure = True
            continue
        text = value if equals else next(rest, "")
        if name not in (*values, "--topic") or not text or text.startswith("-"):
            return None
        given.append((name, text))
    values |= dict(given)
    port, http_port = _port(values["--port"]), _port(values["--http-port"])
    if port is None or http_port is None:
        return None
    try:
        topics = [NewDevTopic.parse(text) for name, text in given if name == "--topic"]
    except WrongArgument:
        return None
    return DevOptions(
        port=port,
        host=values["--host"],
        directory=Path(values["--dir"]) if values["--dir"] else None,
        is_secure=is_secure,
        http_port=http_port if "--http-port" in dict(given) else None,
        topics=topics,
    )


def _port(text: str) -> int | None:
    """None if it is not plainly a port."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= MOST_PORT else None
