"""Core: the options of the source, named like those of Spark's own Kafka source, parsed and checked.

Option names are case-insensitive, as Spark passes them. An unknown option is an error, with a similar name if there is
one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from typing import Any

from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import EARLIEST, LATEST, Isolation
from barnabas.pipeline.cluster_access import SECURITY_OPTIONS, ClusterAccess
from barnabas.pipeline.errors import WrongUse

BOOTSTRAP = "kafka.bootstrap.servers"
GROUP = "groupId"

KNOWN = (
    BOOTSTRAP,
    "bootstrap",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "includeHeaders",
    GROUP,
    "kafka.isolation.level",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.max.partition.fetch.bytes",
    *SECURITY_OPTIONS,
)

DEFAULT_FETCH_BYTES = 8 * 1024 * 1024
_OFFSETS = """{"flights": {"0": 23, "1": 42}}"""
"""Example for error messages."""


class Positions(Enum):
    """The form in which a position is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Position:
    """The start or the end of a read."""

    kind: Positions
    option: str = ""
    """The option that sets it."""
    timestamp_ms: int = 0
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets (EARLIEST and LATEST among them), or timestamps."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read. Exactly one field is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The named topics; None for a pattern."""
        if self.pattern:
            return None
        return self.topics or tuple(dict.fromkeys(partition.topic for partition in self.assigned))

    def wants(self, topic: str) -> bool:
        """Whether a topic is read."""
        names = self.names
        return topic in names if names is not None else re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.pattern:
            return f"topics that match {self.pattern}"
        if self.topics:
            return ", ".join(self.topics)
        return ", ".join(map(str, self.assigned))


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """All options."""

    bootstrap: ClusterAccess
    subscription: Subscription
    starting: Position
    ending: Position
    latest_if_no_timestamp: bool = False
    """Start at the end of a partition without any record at or after the start timestamp, instead of failing."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    include_headers: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    group_id: str | None = None
    client_id: str = "barnabas-pipeline"
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 60_000
    fetch_bytes: int = DEFAULT_FETCH_BYTES


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether rows have headers. Needed before anything else, because it changes the schema."""
    return _boolean(_Given(options), "includeHeaders", False)


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadingOptions:
    """WrongUse for an invalid or unknown option."""
    given = _Given(options)
    given.refuse_unknown()
    bootstrap = given.text(BOOTSTRAP) or given.text("bootstrap")
    if bootstrap is None:
        raise WrongUse(f"option {BOOTSTRAP} is missing; it must be HOST:PORT,…, e.g. 127.0.0.1:9092")
    access = ClusterAccess.of_options(bootstrap, options)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if given.text(name) is not None:
                raise WrongUse(f"option {name} is for batches; a stream has no end")
    else:
        for name in ("maxOffsetsPerTrigger", GROUP):
            if given.text(name) is not None:
                raise WrongUse(f"option {name} is for streams, not for batches")
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise WrongUse(f"option startingOffsetsByTimestampStrategy must be error or latest; got {strategy!r}")
    subscription = _subscription(given)
    starting = _position(given, "starting", Positions.LATEST if streaming else Positions.EARLIEST)
    ending = _position(given, "ending", Positions.LATEST)
    if starting.kind is Positions.LATEST and not streaming:
        raise WrongUse("option startingOffsets of a batch must be earliest or offsets; got latest, which has no rows")
    if ending.kind is Positions.EARLIEST:
        raise WrongUse("option endingOffsets of a batch must be latest or offsets; got earliest, which has no rows")
    for position in (starting, ending):
        _check_names(position, subscription)
    if not streaming:
        _check_values(starting, LATEST, "-1 (latest)")
    _check_values(ending, EARLIEST, "-2 (earliest)")
    isolation = (given.text("kafka.isolation.level") or "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise WrongUse(f"option kafka.isolation.level must be read_committed or read_uncommitted; got {isolation!r}")
    return ReadingOptions(
        access,
        subscription,
        starting,
        ending,
        strategy == "latest",
        _boolean(given, "failOnDataLoss", True),
        _positive(given, "minPartitions"),
        _positive(given, "maxRecordsPerPartition"),
        _positive(given, "maxOffsetsPerTrigger"),
        _boolean(given, "includeHeaders", False),
        Isolation[isolation.upper()],
        given.text(GROUP),
        given.text("kafka.client.id") or "barnabas-pipeline",
        _positive(given, "kafka.request.timeout.ms") or 30_000,
        _positive(given, "kafka.default.api.timeout.ms") or 60_000,
        _positive(given, "kafka.max.partition.fetch.bytes") or DEFAULT_FETCH_BYTES,
    )


class _Given:
    """Options by case-insensitive name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): str(value) for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def refuse_unknown(self) -> None:
        known = {name.lower(): name for name in KNOWN}
        for name in self._options:
            if name in known:
                continue
            close = get_close_matches(name, known, 1)
            hint = f"; did you mean {known[close[0]]}?" if close else ""
            raise WrongUse(f"the source has no option {name}{hint}")


def _boolean(given: _Given, name: str, default: bool) -> bool:
    text = given.text(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise WrongUse(f"option {name} must be true or false; got {text!r}")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise WrongUse(f"option {name} must be a whole number; got {text!r}") from None


def _positive(given: _Given, name: str) -> int | None:
    text = given.text(name)
    if text is None:
        return None
    number = _number(name, text)
    if number <= 0:
        raise WrongUse(f"option {name} must be at least 1; got {number}")
    return number


def _subscription(given: _Given) -> Subscription:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(names) != 1:
        raise WrongUse("exactly one of the options subscribe, subscribePattern and assign must be set; got "
            + (" and ".join(names) or "none"))
    text = given.text(names[0]) or ""
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise WrongUse(f"option subscribe must be TOPIC,TOPIC,…; got {text!r}")
        return Subscription(topics=topics)
    if names[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise WrongUse(f"option subscribePattern must be a regular expression; got {text!r}: {error}") from None
        if not text:
            raise WrongUse("option subscribePattern must be a regular expression; got an empty one")
        return Subscription(pattern=text)
    example = """{"flights": [0, 1]}"""
    found = _json("assign", text, example)
    assigned = []
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(type(each) is int and each >= 0 for each in partitions):
            raise WrongUse(f"option assign must list partitions for {topic}, e.g. {example}; got {partitions!r}")
        assigned += [TopicPartition(topic, each) for each in partitions]
    if not assigned:
        raise WrongUse(f"option assign must name partitions, e.g. {example}; got {text!r}")
    return Subscription(assigned=tuple(sorted(set(assigned))))


def _position(given: _Given, side: str, default: Positions) -> Position:
    """Timestamps take precedence over offsets, as in Spark's own source."""
    name = f"{side}Timestamp"
    if (text := given.text(name)) is not None:
        timestamp_ms = _number(name, text)
        if timestamp_ms < 0:
            raise WrongUse(f"option {name} must be milliseconds since 1970; got {timestamp_ms}")
        return Position(Positions.TIMESTAMP, name, timestamp_ms)
    name = f"{side}OffsetsByTimestamp"
    if (text := given.text(name)) is not None:
        return Position(Positions.TIMESTAMPS, name, by_partition=_by_partition(name, text, 0))
    name = f"{side}Offsets"
    text = given.text(name)
    if text is None:
        return Position(default)
    if text.strip().lower() in ("earliest", "latest"):
        return Position(Positions(text.strip().lower()), name)
    if not text.lstrip().startswith("{"):
        raise WrongUse(f"option {name} must be earliest, latest or offsets as JSON, e.g. {_OFFSETS}; got {text!r}")
    return Position(Positions.OFFSETS, name, by_partition=_by_partition(name, text, EARLIEST))


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    result = {}
    for topic, of_topic in _json(name, text, _OFFSETS).items():
        if not isinstance(of_topic, dict):
            raise WrongUse(f"option {name} must be like {_OFFSETS}; got {of_topic!r} for {topic}")
        for partition, value in of_topic.items():
            if not partition.isdecimal() or type(value) is not int or value < least:
                raise WrongUse(f"option {name} must be like {_OFFSETS}; got {partition!r}: {value!r} for {topic}")
            result[TopicPartition(topic, int(partition))] = value
    return result


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WrongUse(f"option {name} must be JSON, e.g. {example}; got {text!r}")
    return found


def _check_names(position: Position, subscription: Subscription) -> None:
    strangers: Sequence[str] = [
        str(partition)
        for partition in position.by_partition
        if not subscription.wants(partition.topic) or (subscription.assigned and partition not in subscription.assigned)
    ]
    if strangers:
        raise WrongUse(f"option {position.option} names {strangers[0]}, which the query does not read ({subscription})")


def _check_values(position: Position, forbidden: int, name: str) -> None:
    if position.kind is Positions.OFFSETS:
        for partition, offset in position.by_partition.items():
            if offset == forbidden:
                raise WrongUse(f"option {position.option}: {name} for {partition} selects no rows")
