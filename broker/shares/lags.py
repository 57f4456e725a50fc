"""Lags of share groups: records that are not processed yet, and the age of the oldest, as the leaders know them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import trio

from barnabas.broker.record_times import time_of_next
from barnabas.broker.shares.led_partitions import LedSharePartition, LedSharePartitions
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.offset_times import CAUGHT_UP, UNKNOWN
from barnabas.runtime.families import Family
from barnabas.runtime.world import Clock

log = logging.getLogger(__name__)

LOOKUPS_IN_A_STEP = 100
_LABELS = ("group", "topic", "partition")


class ShareLag(NamedTuple):
    """The lag of one group in one partition that is in use."""

    group_id: str
    topic: str
    partition: int
    records: int
    """From the start offset to the high watermark, without those that need no further delivery."""
    seconds: float | None
    """Age of the record at the start offset; 0 if there is no lag, None if unknown."""


class ShareLags:
    """Lags of the share partitions that this broker leads."""

    def __init__(self, partitions: LedSharePartitions, wall_clock: Clock) -> None:
        self._partitions = partitions
        self._wall_clock = wall_clock

    async def measure(self) -> list[ShareLag]:
        """The lags as of now. The event loop runs meanwhile."""
        lags: list[ShareLag] = []
        for place, led in enumerate(list(self._partitions), 1):
            if led.core is not None and led.error is None:
                lags.append(self._lag(led))
            if place % LOOKUPS_IN_A_STEP == 0:
                await trio.lowlevel.checkpoint()
        return lags

    def _lag(self, led: LedSharePartition) -> ShareLag:
        core = led.core
        assert core is not None
        high_watermark = led.partition.replica.high_watermark
        records = max(high_watermark - core.start_offset - core.delivery_complete_count, 0)
        place = (led.key.group_id, led.partition.topic, led.key.partition)
        return ShareLag(*place, records, self._age(led, core.start_offset) if records else 0.0)

    def _age(self, led: LedSharePartition, offset: int) -> float | None:
        try:
            time_ms = time_of_next(led.partition.log, offset)
        except (KafkaError, OSError) as error:
            log.info("share group lag in %s is unknown: %s", led.partition.name, error)
            return None
        if time_ms == UNKNOWN:
            return None
        return 0.0 if time_ms == CAUGHT_UP else max(self._wall_clock.now_ms() - time_ms, 0) / 1000


def share_lag_families(lags: Sequence[ShareLag]) -> Iterator[Family]:
    labelled = [((it.group_id, it.topic, str(it.partition)), it) for it in lags]
    text = "Records that a share group has not processed, as the leader of the partition knows it."
    yield Family("gauge", "kafka_sharegroup_lag", text, _LABELS, [(labels, it.records) for labels, it in labelled])
    text = "Age of the oldest record that a share group has not processed."
    known = [(labels, it.seconds) for labels, it in labelled if it.seconds is not None]
    yield Family("gauge", "kafka_sharegroup_lag_seconds", text, _LABELS, known)
