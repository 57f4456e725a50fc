"""The progress of one request: the ends of its steps, and the size of its answer so far.

A handler that goes through items named by a client counts them here, and ends its step when the meter reports so:
`if meter.step_ends(): yield`. It also counts what it adds to the answer: an answer that would take too much memory is
not finished, and the client gets an error for the rest.
"""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.dispatch import Call

STEP_ITEMS = 48
"""Items of a few microseconds each in one step."""

COUNTED_BYTES = 64 * 1024
"""An answer is counted in the memory of the node each time that it has grown by this much."""

INLINE_ANSWER_ELEMENTS = 500
"""An answer with more elements is encoded in the worker."""

MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The memory that one answer may take, estimated while it grows."""

ELEMENT_BYTES = 256
"""The memory of one element of an answer until it is sent, without its strings and bytes."""

ANSWER_TOO_LARGE = ErrorCode.POLICY_VIOLATION
"""The error of each item that does not fit into the answer. Clients do not retry it."""


class Meter:
    """Counts the work and the answer of one call; without a call, the work alone."""

    __slots__ = ("_answer_bytes", "_call", "_counted_bytes", "_elements", "_items")

    def __init__(self, call: Call | None = None) -> None:
        self._call = call
        self._items = 0
        self._elements = 0
        self._answer_bytes = 0
        self._counted_bytes = 0

    def step_ends(self, items: int = 1) -> bool:
        """Count items that were done. True if the step has to end here."""
        self._items += items
        if self._items < STEP_ITEMS:
            return False
        self._items = 0
        return True

    def answer_grows(self, elements: int = 1, size_bytes: int = 0) -> None:
        """Count further elements of the answer, with the size of their strings and bytes."""
        self._elements += elements
        self._answer_bytes += elements * ELEMENT_BYTES + size_bytes
        if self._call is None:
            return
        if self._elements > INLINE_ANSWER_ELEMENTS:
            self._call.is_large = True
        if self._answer_bytes - self._counted_bytes >= COUNTED_BYTES:
            self._call.slot.grow(self._answer_bytes - self._counted_bytes)
            self._counted_bytes = self._answer_bytes

    @property
    def is_full(self) -> bool:
        """The answer must not grow further."""
        return self._answer_bytes >= MOST_ANSWER_BYTES
