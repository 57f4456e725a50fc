"""Core: the embedded protocol of consumers in classic groups: an int16 version, then a message."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeVar

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.records.coordinator import read_int16
from barnabas.protocol.schema import Message, decode_prefix, encode_chunks

NEWEST_VERSION = 3
VERSION_BYTES = 2
KNOWN_LISTS = 4
"""Lists of topics with which `TopicsReader` compares a subscription."""

M = TypeVar("M", bound=Message)


def read_version(data: bytes) -> int:
    """The version to decode, at most our newest. Raises MalformedMessage."""
    version = read_int16(data)
    if version < 0:
        raise MalformedMessage(f"a consumer's version cannot be {version}")
    return min(version, NEWEST_VERSION)


def read_subscription(data: bytes, most_elements: int | None = None) -> ConsumerProtocolSubscription:
    """Raises MalformedMessage; TooManyElements if it has more than `most_elements`."""
    return _read(ConsumerProtocolSubscription, data, read_version(data), most_elements)


def read_topics(data: bytes, most_elements: int | None = None) -> list[str]:
    """The topics of a subscription. All versions begin as version 0 does, and some clients claim a newer version than
    they write. Raises MalformedMessage; TooManyElements if there are more than `most_elements`.
    """
    read_int16(data)
    return _read(ConsumerProtocolSubscription, data, 0, most_elements).topics


class TopicsReader:
    """Reads the topics of the subscriptions of many members. Most have the same: those are compared, and not read."""

    def __init__(self, most_elements: int) -> None:
        """`most_elements`: topics of all subscriptions that are read."""
        self._left = most_elements
        self._known: deque[tuple[bytes, frozenset[str]]] = deque(maxlen=KNOWN_LISTS)
        """The bytes of lists of topics, and the topics."""

    def read(self, data: bytes) -> frozenset[str]:
        """Raises MalformedMessage; TooManyElements."""
        for encoded, topics in self._known:
            if data.startswith(encoded, VERSION_BYTES):
                return topics
        named = read_topics(data, self._left)
        self._left -= len(named)
        size = 4 + sum(2 + len(name.encode()) for name in named)
        topics = frozenset(named)
        self._known.appendleft((bytes(data[VERSION_BYTES : VERSION_BYTES + size]), topics))
        return topics


def read_assignment(data: bytes, most_elements: int | None = None) -> ConsumerProtocolAssignment:
    """Raises MalformedMessage; TooManyElements if it has more than `most_elements`."""
    return _read(ConsumerProtocolAssignment, data, read_version(data), most_elements)


def _read(kind: type[M], data: bytes, version: int, most_elements: int | None) -> M:
    # Fields that a newer version has appended are ignored.
    message, _ = decode_prefix(kind, data, VERSION_BYTES, version, most_elements)
    return message


def write_subscription(subscription: ConsumerProtocolSubscription) -> bytes:
    """Encode in our newest version."""
    return b"".join(encode_chunks(subscription, NEWEST_VERSION, NEWEST_VERSION.to_bytes(2, "big")))


def write_assignment(partitions: Mapping[str, Sequence[int]], version: int = NEWEST_VERSION) -> bytes:
    """`partitions`: numbers by topic name."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=list(numbers))
            for name, numbers in partitions.items()
        ]
    )
    return b"".join(encode_chunks(message, version, version.to_bytes(2, "big")))
