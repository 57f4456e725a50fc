"""What users hang into a producer or a consumer: seen, and perhaps changed, is every record that passes (KIP-42).

Interceptors run in the client's own turn, in the order in which they were given, each on what the one before it made.
They must not wait. What one of them raises is logged and passed over, as in Kafka: no record is lost by it, and no
call fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.errors import ConfigException
from barnabas.client.metadata import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.consumer.record import ConsumerRecord
    from barnabas.client.offsets import OffsetAndMetadata
    from barnabas.client.producer.record_metadata import RecordMetadata

log = logging.getLogger(__name__)

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as it was given to `send`: neither serialized, nor perhaps given a partition or a timestamp yet."""

    topic: str
    value: Any = None
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Overwrite what you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before a record is serialized; the record that goes on is the one that this gives."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called when a record's fate is known, before whoever waits for it wakes. After an `error` the offset of
        `metadata` is -1, and its partition if none was chosen."""

    def close(self) -> None:
        """Called once, when the producer closes."""


class ConsumerInterceptor:
    """Overwrite what you need."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Called with each list of records that a poll is about to give; it gives the list that this gives.
        Positions go on as if nothing was left out or added."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when offsets of the group were committed."""

    def close(self) -> None:
        """Called once, when the consumer closes."""


class ProducerInterceptors:
    """A producer's interceptors, one after the other. Empty ones are false, so that a producer can pass them over."""

    __slots__ = ("_interceptors",)

    def __init__(self, interceptors: Sequence[object] = ()) -> None:
        """ConfigException for anything that is no `ProducerInterceptor`."""
        self._interceptors = _checked(interceptors, ProducerInterceptor)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record that is to be sent."""
        for interceptor in self._interceptors:
            try:
                given = interceptor.on_send(record)
                if not isinstance(given, ProducerRecord):
                    raise TypeError(f"it gave {given!r}")
                record = given
            except Exception as error:  # of the application's; Kafka passes over it, too
                _told(interceptor, "on_send", error)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, "on_acknowledgement", interceptor.on_acknowledgement, metadata, error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, "close", interceptor.close)


class ConsumerInterceptors:
    """A consumer's interceptors, one after the other. Empty ones are false, so that a consumer can pass them over."""

    __slots__ = ("_interceptors",)

    def __init__(self, interceptors: Sequence[object] = ()) -> None:
        """ConfigException for anything that is no `ConsumerInterceptor`."""
        self._interceptors = _checked(interceptors, ConsumerInterceptor)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records that the poll gives."""
        for interceptor in self._interceptors:
            try:
                given = interceptor.on_consume(records)
                if not isinstance(given, list):
                    raise TypeError(f"it gave {given!r}")
                records = given
            except Exception as error:  # of the application's; Kafka passes over it, too
                _told(interceptor, "on_consume", error)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, "on_commit", interceptor.on_commit, offsets)

    def close(self) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, "close", interceptor.close)


def _checked(interceptors: Sequence[object], kind: type[Kind]) -> tuple[Kind, ...]:
    checked = tuple(each for each in interceptors if isinstance(each, kind))
    if len(checked) < len(interceptors):
        wrong = next(each for each in interceptors if not isinstance(each, kind))
        raise ConfigException(f"interceptors: {wrong!r} is no {kind.__name__}")
    return checked


def _call(interceptor: object, name: str, method: Callable[..., None], *arguments: Any) -> None:
    try:
        method(*arguments)
    except Exception as error:  # of the application's; Kafka passes over it, too
        _told(interceptor, name, error)


def _told(interceptor: object, name: str, error: Exception) -> None:
    log.warning("%s.%s: %s: %s", type(interceptor).__name__, name, type(error).__name__, error, exc_info=error)
