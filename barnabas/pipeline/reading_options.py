"""The options of the source: named as those of Spark's own Kafka source, read once and checked. A core.

Spark gives option names in small letters; what does not exist is refused, with the name that was perhaps meant.
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
from barnabas.pipeline.addresses import parse_bootstrap
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
)

DEFAULT_FETCH_BYTES = 8 * 1024 * 1024


class Positions(Enum):
    """What a position is given by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading begins or ends."""

    kind: Positions
    option: str = ""
    """The option that said so."""
    timestamp_ms: int = 0
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets (EARLIEST and LATEST among them), or timestamps."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions are read: one of these is given."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics that are named; None for a pattern, which may have any."""
        if self.pattern:
            return None
        return self.topics or tuple(dict.fromkeys(partition.topic for partition in self.assigned))

    def wants(self, topic: str) -> bool:
        """Whether a topic of this name is read."""
        names = self.names
        return topic in names if names is not None else re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.pattern:
            return f"topics like {self.pattern}"
        if self.topics:
            return ", ".join(self.topics)
        return ", ".join(map(str, self.assigned))


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """All that was asked for."""

    bootstrap: str
    subscription: Subscription
    starting: Position
    ending: Position
    latest_if_no_timestamp: bool = False
    """Where no record is as young as the timestamp to begin with: begin at the end, instead of refusing."""
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
    """Whether the rows have headers: asked before anything else, for it changes the schema."""
    return _boolean(_Given(options), "includeHeaders", False)


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadingOptions:
    """WrongUse, in one line, for what cannot be."""
    given = _Given(options)
    given.refuse_unknown()
    bootstrap = given.text(BOOTSTRAP) or given.text("bootstrap")
    if bootstrap is None:
        raise WrongUse(f"option {BOOTSTRAP} is missing: give HOST:PORT of a broker, as in 127.0.0.1:9092")
    parse_bootstrap(bootstrap)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if given.text(name) is not None:
                raise WrongUse(f"option {name}: a stream has no end; leave it out")
    else:
        for name in ("maxOffsetsPerTrigger", GROUP):
            if given.text(name) is not None:
                raise WrongUse(f"option {name} is for streams; leave it out")
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise WrongUse(f"option startingOffsetsByTimestampStrategy: {strategy!r} is neither error nor latest")
    subscription = _subscription(given)
    starting = _position(given, "starting", Positions.LATEST if streaming else Positions.EARLIEST)
    ending = _position(given, "ending", Positions.LATEST)
    if starting.kind is Positions.LATEST and not streaming:
        raise WrongUse("option startingOffsets: a batch that begins at latest has no rows; give earliest, or offsets")
    if ending.kind is Positions.EARLIEST:
        raise WrongUse("option endingOffsets: a batch that ends at earliest has no rows; give latest, or offsets")
    for position in (starting, ending):
        _check_names(position, subscription)
    if not streaming:
        _check_values(starting, LATEST, "-1 (latest)")
    _check_values(ending, EARLIEST, "-2 (earliest)")
    isolation = (given.text("kafka.isolation.level") or "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise WrongUse(f"option kafka.isolation.level: {isolation!r} is neither read_committed nor read_uncommitted")
    return ReadingOptions(
        bootstrap,
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
    """The options as they came, by their names in whatever case."""

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
            meant = f"; {known[close[0]]}?" if close else ""
            raise WrongUse(f"option {name}: the source has no such option{meant}")


def _boolean(given: _Given, name: str, default: bool) -> bool:
    text = given.text(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise WrongUse(f"option {name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise WrongUse(f"option {name}: {text!r} is no whole number") from None


def _positive(given: _Given, name: str) -> int | None:
    text = given.text(name)
    if text is None:
        return None
    number = _number(name, text)
    if number <= 0:
        raise WrongUse(f"option {name}: {number} is not more than 0")
    return number


def _subscription(given: _Given) -> Subscription:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(names) != 1:
        raise WrongUse("give exactly one of the options subscribe, subscribePattern and assign")
    text = given.text(names[0]) or ""
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise WrongUse("option subscribe: no topic; give TOPIC,TOPIC,…")
        return Subscription(topics=topics)
    if names[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise WrongUse(f"option subscribePattern: {text!r} is no regular expression: {error}") from None
        if not text:
            raise WrongUse("option subscribePattern: empty; give a regular expression")
        return Subscription(pattern=text)
    example = """{"flights": [0, 1]}"""
    found = _json("assign", text, example)
    assigned = []
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(type(each) is int and each >= 0 for each in partitions):
            raise WrongUse(f"option assign: {topic} needs a list of partitions, as in {example}")
        assigned += [TopicPartition(topic, each) for each in partitions]
    if not assigned:
        raise WrongUse(f"option assign: no partition; as in {example}")
    return Subscription(assigned=tuple(sorted(set(assigned))))


def _position(given: _Given, side: str, default: Positions) -> Position:
    """What is said by time is stronger, as in Spark's own source."""
    name = f"{side}Timestamp"
    if (text := given.text(name)) is not None:
        timestamp_ms = _number(name, text)
        if timestamp_ms < 0:
            raise WrongUse(f"option {name}: {timestamp_ms} is no time; give milliseconds since 1970")
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
    return Position(Positions.OFFSETS, name, by_partition=_by_partition(name, text, EARLIEST))


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    example = """{"flights": {"0": 23, "1": 42}}"""
    result = {}
    for topic, of_topic in _json(name, text, example).items():
        if not isinstance(of_topic, dict):
            raise WrongUse(f"option {name}: {topic} needs a number for each partition, as in {example}")
        for partition, value in of_topic.items():
            if not partition.isdecimal() or type(value) is not int or value < least:
                raise WrongUse(f"option {name}: {topic} has {partition!r}: {value!r}; it should be as in {example}")
            result[TopicPartition(topic, int(partition))] = value
    return result


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WrongUse(f"option {name}: {text!r} is not as in {example}")
    return found


def _check_names(position: Position, subscription: Subscription) -> None:
    strangers: Sequence[str] = [
        str(partition)
        for partition in position.by_partition
        if not subscription.wants(partition.topic) or (subscription.assigned and partition not in subscription.assigned)
    ]
    if strangers:
        raise WrongUse(f"option {position.option} names {strangers[0]}, which is not read ({subscription})")


def _check_values(position: Position, forbidden: int, told: str) -> None:
    if position.kind is Positions.OFFSETS:
        for partition, offset in position.by_partition.items():
            if offset == forbidden:
                raise WrongUse(f"option {position.option}: {partition} has {told}, and so no rows")
