"""Core: the records that a reader wants from the remote segments of a log, and those that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.transaction_index import AbortedTransaction


class Wanted(NamedTuple):
    """Records that are wanted from the remote segments of a log."""

    offset: int
    max_bytes: int
    at_least_one_batch: bool
    """True if to return the first batch even if it is larger than `max_bytes`."""
    with_aborted: bool
    """True for readers of committed records."""


class RemoteRecords(NamedTuple):
    """Batches from the one with the wanted offset on; the last one may be cut off."""

    data: bytes
    aborted: Sequence[AbortedTransaction] = ()


Answered = Callable[[Any, ErrorCode], None]
"""Called once, with the result and NONE, or with None and the error."""
