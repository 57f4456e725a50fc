"""Interceptors of producers and consumers: they see, and may change, every record that passes (KIP-42).

Interceptors run on the client's own task, in the order in which they were given, each on the result of the one before.
They must not wait. An exception of an interceptor is logged and ignored, as in Kafka: no record is lost, and no call
fails.
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
    """A record as it was given to `send`: not serialized, and possibly without a partition or a timestamp."""

    topic: str
    value: Any = None
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Base class; override the methods that you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before a record is serialized; returns the record to send."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called when a record is acknowledged or has failed, before waiting callers wake. After an `error` the offset
        of `metadata` is -1, and so is its partition if none was chosen."""

    def close(self) -> None:
        """Called once, when the producer closes."""


class ConsumerInterceptor:
    """Base class; override the methods that you need."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Called with each list of records before a poll returns it; returns the list to return. Positions advance as
        if nothing was left out or added."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after offsets of the group were committed."""

    def close(self) -> None:
        """Called once, when the consumer closes."""


class ProducerInterceptors:
    """A producer's interceptors, in order. False if there are none, so that a producer can skip them."""

    __slots__ = ("_interceptors",)

    def __init__(self, interceptors: Sequence[object] = ()) -> None:
        """ConfigException for an object that is not a `ProducerInterceptor`."""
        self._interceptors = _checked(interceptors, ProducerInterceptor)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                given = interceptor.on_send(record)
                if not isinstance(given, ProducerRecord):
                    raise TypeError(f"must return a ProducerRecord; got {given!r}")
                record = given
            except Exception as error:  # the application's own code: logged and ignored, as in Kafka
                _log_failure(interceptor, "on_send", error)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, "on_acknowledgement", interceptor.on_acknowledgement, metadata, error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            _call(interceptor, "close", interceptor.close)


class ConsumerInterceptors:
    """A consumer's interceptors, in order. False if there are none, so that a consumer can skip them."""

    __slots__ = ("_interceptors",)

    def __init__(self, interceptors: Sequence[object] = ()) -> None:
        """ConfigException for an object that is not a `ConsumerInterceptor`."""
        self._interceptors = _checked(interceptors, ConsumerInterceptor)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Records for the poll to return."""
        for interceptor in self._interceptors:
            try:
                given = interceptor.on_consume(records)
                if not isinstance(given, list):
                    raise TypeError(f"must return a list of records; got {given!r}")
                records = given
            except Exception as error:  # the application's own code: logged and ignored, as in Kafka
                _log_failure(interceptor, "on_consume", error)
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
        raise ConfigException(f"interceptors must be {kind.__name__} objects; got {wrong!r}")
    return checked


def _call(interceptor: object, name: str, method: Callable[..., None], *arguments: Any) -> None:
    try:
        method(*arguments)
    except Exception as error:  # the application's own code: logged and ignored, as in Kafka
        _log_failure(interceptor, name, error)


def _log_failure(interceptor: object, name: str, error: Exception) -> None:
    log.warning(
        "interceptor %s.%s raised %s: %s", type(interceptor).__name__, name, type(error).__name__, error, exc_info=error
    )
