"""Core: bootstrap servers as text."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.pipeline.errors import PipelineError


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`, each optionally with `PLAINTEXT://`; IPv6 addresses are in brackets. PipelineError unless
    there is at least one and all are valid."""
    addresses = [_parse(part.strip(), text) for part in text.split(",") if part.strip()]
    if not addresses:
        raise PipelineError("bootstrap servers must be HOST:PORT,…, e.g. 127.0.0.1:9092; got nothing")
    return list(dict.fromkeys(addresses))


def _parse(part: str, text: str) -> Address:
    host, colon, port = part.removeprefix("PLAINTEXT://").rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise PipelineError(f"bootstrap servers must be HOST:PORT,…, e.g. 127.0.0.1:9092; got {part!r} in {text!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Address(host, int(port))
