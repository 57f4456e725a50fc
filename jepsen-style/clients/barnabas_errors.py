"""Errors of our own client, as errors of a `WorkClient`: which are definite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.protocol.errors import ErrorCode, KafkaError
from clients.client import ClientError

NEVER_DEFINITE = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NETWORK_EXCEPTION}
)
"""Errors that may come after the append (KAFKA-13574), whatever a client concludes from them."""


@contextmanager
def definite_errors() -> Iterator[None]:
    """Errors of calls that change nothing in the cluster."""
    try:
        yield
    except KafkaError as error:
        raise ClientError(name_of(error), str(error), definite=True) from error


@contextmanager
def errors_of_change() -> Iterator[None]:
    """Errors of a request that was sent once: one that is not retriable is definite, any other is not."""
    try:
        yield
    except KafkaError as error:
        cause = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
        definite = not error.code.retriable and error.code not in NEVER_DEFINITE
        raise ClientError(name_of(cause), str(error), definite=definite) from error


def may_be_definite(error: Exception) -> bool:
    return not (isinstance(error, KafkaError) and error.code in NEVER_DEFINITE)


def name_of(error: Exception) -> str:
    """Kafka's name of it."""
    return type(error).__name__
