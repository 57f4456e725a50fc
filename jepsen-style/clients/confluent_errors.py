"""Core: the meaning of librdkafka's errors for an operation.

It does not know whether a record that failed was ever sent, so only errors that surely come before a send, or before an
append, are definite.
"""

from __future__ import annotations

from typing import Any

import barnabas.client.errors  # noqa: F401 - names the errors as Kafka does
from barnabas.protocol.errors import ErrorCode, KafkaError
from clients.client import ClientError

LOCAL_NAMES = {
    "_MSG_TIMED_OUT": "TimeoutException",
    "_TIMED_OUT": "TimeoutException",
    "_TIMED_OUT_QUEUE": "TimeoutException",
    "_TRANSPORT": "DisconnectException",
    "_ALL_BROKERS_DOWN": "DisconnectException",
    "_FENCED": "ProducerFencedException",
    "_STATE": "IllegalStateException",
}
"""Errors that librdkafka makes itself, as Kafka's client would call them."""
NEVER_SENT = frozenset({"_QUEUE_FULL", "_INVALID_ARG", "_STATE"})
"""Errors of records that never left the client. `_UNKNOWN_TOPIC` and `_PURGE_QUEUE` are not among them: a record in a
queue may wait to be sent again."""


def java_name(error: Any) -> str:
    """The name of the error in Kafka's own client."""
    code, name = error.code(), error.name()
    if code in ErrorCode.__members__.values():
        return type(KafkaError(ErrorCode(code), "")).__name__
    return LOCAL_NAMES.get(name, str(name))


def classified(error: Any, definite_names: frozenset[str], *, sent: bool = True) -> ClientError:
    """From librdkafka's error. `sent` False: the call refused it, and took nothing on. `fatal` is librdkafka's own
    word: this producer, or consumer, is no longer usable."""
    name = java_name(error)
    is_fatal = bool(error.fatal()) or name in ("ProducerFencedException", "FencedInstanceIdException")
    is_definite = not sent or name in definite_names or error.name() in NEVER_SENT
    return ClientError(name, error.str(), definite=is_definite, fatal=is_fatal)
