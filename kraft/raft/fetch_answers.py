"""The leader's response to a fetch: records, the divergence of the logs, or a snapshot (KIP-595, KIP-630).

Functions of the request and the leader's log. `Raft` decides whether this replica may respond at all.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.kraft.raft.messages import Fetch, FetchAnswer
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.protocol.errors import ErrorCode


def is_well_formed(request: Fetch, local_id: int) -> bool:
    return (
        request.max_wait_ms >= 0
        and request.fetch_offset >= 0
        and 0 <= request.last_fetched_epoch <= request.epoch
        and request.replica.id != local_id
    )


def with_what_comes_next(answer: FetchAnswer, request: Fetch, log: OwnLog) -> FetchAnswer:
    """`answer` with what the replica needs next: a snapshot, the offset to truncate at, or records if there are any."""
    history = log.history
    if log.latest_snapshot is not None and (
        request.fetch_offset == 0 or history.needs_snapshot(request.fetch_offset, request.last_fetched_epoch)
    ):
        return replace(answer, snapshot=log.latest_snapshot)
    diverging = history.divergence(request.fetch_offset, request.last_fetched_epoch)
    if diverging is not None:
        return replace(answer, diverging=diverging)
    if request.fetch_offset < history.end_offset:
        return replace(answer, readable=(request.fetch_offset, history.end_offset))
    return answer


def must_wait(request: Fetch, answer: FetchAnswer) -> bool:
    """True if the answer holds nothing new for the replica: it is kept until it does, or until `max_wait_ms` passed."""
    knows_high_watermark = (
        request.high_watermark is None
        or answer.high_watermark is None
        or answer.high_watermark <= request.high_watermark
    )
    return (
        answer.error is ErrorCode.NONE
        and answer.readable is None
        and answer.diverging is None
        and answer.snapshot is None
        and request.max_wait_ms > 0
        and knows_high_watermark
    )
