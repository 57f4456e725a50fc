"""State of a share partition as JSON for people: which records are delivered to whom, and which are not.

Bounded: a share partition may have thousands of records in flight, each in a state of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from barnabas.broker.shares.in_flight import Span
from barnabas.broker.shares.led_partitions import LedSharePartition
from barnabas.broker.shares.record_state import RecordState
from barnabas.broker.shares.share_partition import SharePartition, Terms

MOST_SPANS = 100
"""Spans of one share partition in an answer."""


class Moment(NamedTuple):
    """One time on both clocks of a node, in milliseconds."""

    monotonic_ms: int
    wall_ms: int


def share_partition_state(led: LedSharePartition, terms: Terms, offset: int | None, now: Moment) -> dict[str, Any]:
    """`offset`: the spans begin with its; None: with the first that is in flight."""
    log = led.partition.log
    state: dict[str, Any] = {
        "topic": led.partition.topic,
        "partition": led.key.partition,
        "leader_epoch": led.leader_epoch,
        "log_start_offset": log.log_start_offset,
        "high_watermark": led.partition.replica.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "error": "" if led.store_error is None else led.store_error.error.code.name,
        "error_at_ms": None if led.store_error is None else led.store_error.at_ms,
        "lock_timeouts": led.lock_timeouts,
        "is_loaded": led.core is not None,
        "max_record_locks": terms.max_record_locks,
        "delivery_count_limit": terms.delivery_count_limit,
    }
    if led.core is not None:
        state |= _in_flight(led.core, terms, offset, now)
    return state


def _in_flight(core: SharePartition, terms: Terms, offset: int | None, now: Moment) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    left_out = 0
    first = core.start_offset if offset is None else offset
    for span in core.each_span():
        counts[_state(span)] += span.size
        if span.last_offset < first:
            continue
        if len(shown) < MOST_SPANS:
            shown.append(_span(span, now))
        else:
            left_out += 1
    return {
        "state_epoch": core.state_epoch,
        "start_offset": core.start_offset,
        "end_offset": core.end_offset,
        "delivery_complete": core.delivery_complete_count,
        "can_acquire": core.can_acquire(terms.max_record_locks),
        "counts": counts,
        "spans": shown,
        "spans_left_out": left_out,
    }


def _state(span: Span) -> str:
    """The name of the state; `waiting` for released records that are delivered again later."""
    return "waiting" if span.lock is not None and span.lock.is_backoff else span.state.name.lower()


def _span(span: Span, now: Moment) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "first_offset": span.first_offset,
        "last_offset": span.last_offset,
        "state": _state(span),
        "delivery_count": span.delivery_count,
    }
    if span.state is RecordState.ACQUIRED and span.lock is not None:
        if not span.lock.is_backoff:
            shown["member_id"] = span.lock.member_id
            shown["since_ms"] = now.wall_ms - (now.monotonic_ms - span.lock.since_ms)
        shown["lock_ends_ms"] = now.wall_ms + (span.lock.deadline_ms - now.monotonic_ms)
        shown["becomes"] = None if span.target is None else span.target.name.lower()
    return shown
