"""How far one request has come: where its steps end, and how large its answer is by now.

A handler that goes through items named by a client counts them here, and ends its step whenever it is told to:
`if meter.step_ends(): yield`. What it adds to the answer it counts, too: an answer that would take too much memory is
not finished, and the client gets an error for the rest.
"""

from __future__ import annotations

from protocol.errors import ErrorCode
from runtime.dispatch import Call

STEP_ITEMS = 48
"""Items of a few microseconds each that one step goes through."""

INLINE_ANSWER_ELEMENTS = 500
"""An answer with more elements is encoded in a worker thread."""

MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The memory that one answer may take, as it is estimated while it grows."""

ELEMENT_BYTES = 256
"""The memory that one element of an answer takes until it is sent, besides its strings and bytes."""

ANSWER_TOO_LARGE = ErrorCode.POLICY_VIOLATION
"""The error of each item whose answer has no room. A client does not repeat such a request unchanged."""


class Meter:
    """Counts the work and the answer of one call; the work alone, if it answers nobody."""

    __slots__ = ("_answer_bytes", "_call", "_elements", "_items")

    def __init__(self, call: Call | None = None) -> None:
        self._call = call
        self._items = 0
        self._elements = 0
        self._answer_bytes = 0

    def step_ends(self, items: int = 1) -> bool:
        """So many items were done. True if the step is to end here."""
        self._items += items
        if self._items < STEP_ITEMS:
            return False
        self._items = 0
        return True

    def answer_grows(self, elements: int = 1, size_bytes: int = 0) -> None:
        """The answer has so many elements more, with strings and bytes of that size."""
        self._elements += elements
        self._answer_bytes += elements * ELEMENT_BYTES + size_bytes
        if self._elements > INLINE_ANSWER_ELEMENTS and self._call is not None:
            self._call.is_large = True

    @property
    def is_full(self) -> bool:
        """Nothing more may be added to the answer."""
        return self._answer_bytes >= MOST_ANSWER_BYTES
