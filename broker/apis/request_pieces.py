"""Splits a request that names very many partitions into pieces, each small enough for one step of the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

from barnabas.protocol.schema import Struct

Topic = TypeVar("Topic", bound=Struct)

PIECE_PARTITIONS = 128
"""Partitions of one piece. One batch commits the offsets of one piece."""


def pieces_of(topics: Iterable[Topic], partitions: str = "partitions") -> Iterator[list[Topic]]:
    """The topics in pieces of PIECE_PARTITIONS partitions; a topic with more is in several pieces. `partitions` is the
    field that lists the partitions of a topic."""
    piece: list[Topic] = []
    room = PIECE_PARTITIONS
    for topic in topics:
        every = getattr(topic, partitions)
        taken = 0
        while True:
            some = every[taken : taken + room]
            taken += len(some)
            room -= max(len(some), 1)
            piece.append(topic if len(some) == len(every) else copy_with(topic, **{partitions: some}))
            if room <= 0:
                yield piece
                piece, room = [], PIECE_PARTITIONS
            if taken == len(every):
                break
    if piece:
        yield piece


def copy_with(message: Topic, **fields: Any) -> Topic:
    """A copy of a message, or of a part of one, with some fields replaced."""
    other = copy(message)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
