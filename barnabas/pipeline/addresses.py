"""Bootstrap servers as people write them."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.pipeline.errors import PipelineError


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; an IPv6 address stands in brackets, a `PLAINTEXT://` before it is allowed. At least one,
    or PipelineError."""
    addresses = [_parse(part.strip(), text) for part in text.split(",") if part.strip()]
    if not addresses:
        raise PipelineError("no bootstrap servers: give HOST:PORT of a broker, as in 127.0.0.1:9092")
    return list(dict.fromkeys(addresses))


def _parse(part: str, text: str) -> Address:
    host, colon, port = part.removeprefix("PLAINTEXT://").rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise PipelineError(f"bootstrap servers {text!r}: {part!r} is not HOST:PORT, as in 127.0.0.1:9092")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Address(host, int(port))
