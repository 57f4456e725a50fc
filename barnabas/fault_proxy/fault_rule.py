"""Core: one fault of requests, as a user writes it: checked, in one line, or as the reason why it is none.

    Produce topic=orders error=NOT_LEADER_OR_FOLLOWER times=2
    Fetch client=board-* response_delay_ms=500 every=10
    * drop=response probability=0.01
"""

from __future__ import annotations

import difflib
import shlex
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.topics import names_topics
from barnabas.fault_proxy.wrong_field import reason_of
from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.throttle_times import FIELD as THROTTLE_FIELD

ANY = "*"
"""Stands for every API."""
MOST_MS = 24 * 60 * 60 * 1000
MOST_TEXT = 1000
"""Characters of a name or pattern."""

Drop = Literal["request", "response"]
Cut = Literal["request", "response", "mid-frame"]

_BY_NAME = {spec.name.lower(): spec for spec in API_SPECS.values()}


class FaultRule(BaseModel):
    """Requests by their API, topic and client, and what happens to those of them that it strikes.

    `after` skips the first requests that match, `every` strikes one in so many of the others, `times` ends it,
    `probability` leaves each to chance.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    api: str
    """Name of an API, such as Produce, or its key, or `*`."""
    topic: str | None = Field(None, min_length=1, max_length=MOST_TEXT)
    """Glob for a topic that the request names."""
    client: str | None = Field(None, min_length=1, max_length=MOST_TEXT)
    """Glob for the client id."""
    error: str | None = None
    """Name or number of the error code with which the proxy answers."""
    applied: bool = False
    """With `error`: the request takes effect first."""
    drop: Drop | None = None
    """Lose the request, or the response after the request took effect, and what follows on its connection."""
    cut: Cut | None = None
    """Reset the connection in place of the request, in place of the response, or in the middle of the response."""
    delay_ms: int = Field(0, ge=0, le=MOST_MS)
    """Hold the request, and what follows on its connection, for so long."""
    response_delay_ms: int = Field(0, ge=0, le=MOST_MS)
    """Hold the response, and what follows on its connection, for so long."""
    throttle_ms: int = Field(0, ge=0, le=MOST_MS)
    """Throttle time to report in the response, if it reports none that is longer."""
    after: int = Field(0, ge=0)
    every: int = Field(1, ge=1)
    times: int | None = Field(None, ge=1)
    probability: float = Field(1.0, gt=0.0, le=1.0)

    @field_validator("api", mode="before")
    @classmethod
    def _known_api(cls, value: object) -> str:
        text = str(value).strip()
        if text == ANY or (text.isascii() and text.isdigit() and int(text) <= 32767):
            found = None if text == ANY else _spec_of(int(text))
            return text if found is None else found.name
        found = _BY_NAME.get(text.lower().replace("_", ""))
        if found is None:
            near = difflib.get_close_matches(text.lower(), _BY_NAME, n=1)
            hint = f"did you mean {_BY_NAME[near[0]].name}?" if near else "e.g. Produce, Fetch or FindCoordinator"
            raise ValueError(f"must be the name or the key of an API, or *; {hint} got {text!r}")
        return found.name

    @field_validator("error", mode="before")
    @classmethod
    def _known_error(cls, value: object) -> str | None:
        if value is None:
            return None
        text = str(value).strip().upper()
        found = _error_of(text)
        if found is None or found is ErrorCode.NONE:
            near = difflib.get_close_matches(text, [each.name for each in ErrorCode], n=1)
            hint = f"did you mean {near[0]}?" if near else "e.g. NOT_LEADER_OR_FOLLOWER"
            raise ValueError(f"must be the name or the number of an error of Kafka; {hint} got {text!r}")
        return found.name

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        effects = [name for name in ("error", "drop", "cut") if getattr(self, name) is not None]
        if len(effects) > 1:
            raise ValueError(f"{effects[0]} and {effects[1]} exclude each other; got both")
        if not effects and not (self.delay_ms or self.response_delay_ms or self.throttle_ms):
            raise ValueError(
                "a rule needs error, drop, cut, delay_ms, response_delay_ms or throttle_ms; got none of them"
            )
        if self.applied and self.error is None:
            raise ValueError("applied needs error; got none")
        if (self.throttle_ms or self.response_delay_ms) and (self.drop or self.cut in ("request", "response")):
            raise ValueError("throttle_ms and response_delay_ms need a response; drop and cut leave none")
        self._check_api()
        return self

    def _check_api(self) -> None:
        """A rule that can never match is an error."""
        if self.api == ANY:
            return
        spec = self.spec
        if spec is None:
            if self.topic or self.error or self.throttle_ms:
                raise ValueError(f"API {self.api} is not known here: a rule of it has no topic, error or throttle_ms")
            return
        if self.topic is not None and not names_topics(spec):
            raise ValueError(f"requests of {spec.name} name no topics; got topic={self.topic}")
        if self.throttle_ms and all(each.name != THROTTLE_FIELD for each in spec.response_type().FIELDS):
            raise ValueError(f"responses of {spec.name} have no throttle time; got throttle_ms={self.throttle_ms}")

    @property
    def spec(self) -> ApiSpec | None:
        """The API; None for any, and for one that is not known here."""
        if self.api == ANY:
            return None
        return _spec_of(int(self.api)) if self.api.isdigit() else _BY_NAME[self.api.lower()]

    @property
    def api_key(self) -> int | None:
        """None for any."""
        if self.api == ANY:
            return None
        return int(self.api) if self.api.isdigit() else int(_BY_NAME[self.api.lower()].key)

    @property
    def error_code(self) -> ErrorCode | None:
        return None if self.error is None else ErrorCode[self.error]

    @property
    def needs_answer(self) -> bool:
        """True if it does something to the answer of a broker, and so nothing to a request that gets none."""
        changes = self.applied or self.drop == "response" or self.cut in ("response", "mid-frame")
        return changes or (self.error is None and bool(self.response_delay_ms or self.throttle_ms))

    def is_about(self, api_key: int, client_id: str | None) -> bool:
        """True if API and client match."""
        return self.api_key in (None, api_key) and (self.client is None or fnmatchcase(client_id or "", self.client))

    def is_about_topic(self, name: str) -> bool:
        return self.topic is None or fnmatchcase(name, self.topic)

    @property
    def text(self) -> str:
        """The rule in one line, as `parse_rule` takes it."""
        words = [self.api]
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name != "api" and value != field.default:
                words.append(f"{name}={str(value).lower() if isinstance(value, bool) else value}")
        return shlex.join(words)


def parse_rule(text: str) -> FaultRule:
    """The rule of a line: an API, then NAME=VALUE. Raises `WrongArgument`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongArgument(f"rule {text!r}: {error}") from None
    if not words or "=" in words[0]:
        raise WrongArgument(f"rule {text!r}: must begin with an API or *, as in 'Produce error=NOT_LEADER_OR_FOLLOWER'")
    given: dict[str, Any] = {"api": words[0]}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals:
            raise WrongArgument(f"rule {text!r}: {word!r} is not NAME=VALUE, as in topic=orders")
        if name in given:
            raise WrongArgument(f"rule {text!r}: {name} is there twice")
        given[name] = value
    return make_rule(given, f"rule {text!r}")


def make_rule(given: dict[str, Any], where: str) -> FaultRule:
    """The rule of these fields. Raises `WrongArgument`, whose message begins with `where`."""
    try:
        return FaultRule(**given)
    except ValidationError as error:
        reasons = "; ".join(reason_of(each, FaultRule.model_fields) for each in error.errors())
        raise WrongArgument(f"{where}: {reasons}") from None
    except TypeError:
        raise WrongArgument(f"{where}: names must be texts") from None


def _spec_of(key: int) -> ApiSpec | None:
    try:
        return API_SPECS.get(ApiKey(key))
    except ValueError:
        return None


def _error_of(text: str) -> ErrorCode | None:
    if text in ErrorCode.__members__:
        return ErrorCode[text]
    try:
        return ErrorCode(int(text))
    except ValueError:
        return None
