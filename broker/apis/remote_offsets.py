"""The part of a ListOffsets request for which remote segments have to be searched by time (KIP-405)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.broker.apis.remote_fetch import RemoteReadPorts
from barnabas.broker.remote.gathering import Answers, Gathering
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import ListOffsetsPartitionResponse
from barnabas.storage.segment_list import TimestampedOffset


class RemoteLookup(NamedTuple):
    """A partition of the request, and what has to be known of it when the result comes."""

    partition: Partition
    timestamp: int
    answer: ListOffsetsPartitionResponse
    end_offset: int
    """The offset up to which the sender may read."""
    is_sure: bool
    """False if this leader does not know yet up to where the last one has served."""


Settle = Callable[[RemoteLookup, TimestampedOffset | None, ErrorCode], None]
"""Writes the result, or an error, into the answer."""


def search_remotely(
    ports: RemoteReadPorts, lookups: Sequence[RemoteLookup], wait_ms: int, settle: Settle, finish: Callable[[], None]
) -> None:
    """Settle all look-ups within `wait_ms` (0: `remote.list.offsets.request.timeout.ms`), then call `finish`."""
    reads, counts = ports.reads, ports.reads.counts

    def expired() -> None:
        counts.expired_lookups += 1

    def ended(answers: Answers[int]) -> None:
        for place, lookup in enumerate(lookups):
            settle(lookup, *answers.get(place, (None, ErrorCode.REQUEST_TIMED_OUT)))
        finish()

    gathering = Gathering[int](ports.wheel, ports.monotonic, ended)
    begins = {
        place: partial(reads.find_time, lookup.partition, lookup.timestamp) for place, lookup in enumerate(lookups)
    }
    gathering.begin(begins, wait_ms or ports.settings().remote_list_offsets_request_timeout_ms, expired)
