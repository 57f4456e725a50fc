"""Core: a fault of the ways to brokers, as a user writes it: `broker=1 direction=responses bytes_per_second=10000`."""

from __future__ import annotations

import shlex
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.rules import LinkState
from barnabas.fault_proxy.wrong_field import reason_of

MOST_MS = 60 * 60 * 1000


class LinkRule(BaseModel):
    """All brokers, or one, and how the way to it or from it is broken."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    broker: str = ""
    """`host:port` as the cluster names it, or the id; empty: all."""
    direction: Literal["both", "requests", "responses"] = "both"
    cut: bool = False
    """Nothing passes, and neither end notices."""
    latency_ms: float = Field(0.0, ge=0, le=MOST_MS)
    jitter_ms: float = Field(0.0, ge=0, le=MOST_MS)
    """On top of the latency, at most; order stays."""
    bytes_per_second: int = Field(0, ge=0)
    """0: as fast as it goes."""
    loss: float = Field(0.0, ge=0, lt=1)
    """Probability that a burst waits until TCP would have sent it again."""
    reset_after_bytes: int = Field(0, ge=0)
    """Number of bytes after which a connection is reset, in the middle of a frame; 0: never."""

    @field_validator("broker", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def state(self) -> LinkState:
        values = self.model_dump(exclude={"broker", "direction"})
        return LinkState(**values)


def parse_link(text: str) -> LinkRule:
    """The fault of a line of NAME=VALUE. Raises `WrongArgument`."""
    given: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongArgument(f"link {text!r}: {error}") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise WrongArgument(f"link {text!r}: {word!r} is not NAME=VALUE, as in bytes_per_second=10000")
        given[name] = value
    return make_link(given, f"link {text!r}")


def make_link(given: dict[str, Any], where: str) -> LinkRule:
    """The fault of these fields. Raises `WrongArgument`, whose message begins with `where`."""
    try:
        found = LinkRule(**given)
    except ValidationError as error:
        reasons = "; ".join(reason_of(each, LinkRule.model_fields) for each in error.errors())
        raise WrongArgument(f"{where}: {reasons}") from None
    except TypeError:
        raise WrongArgument(f"{where}: names must be texts") from None
    if found.state == LinkState():
        names = ", ".join(name for name in LinkRule.model_fields if name not in ("broker", "direction"))
        raise WrongArgument(f"{where}: needs one of {names}; got none of them")
    return found
