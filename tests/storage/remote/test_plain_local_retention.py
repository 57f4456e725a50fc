"""What leaves the disk of a tiered log beside a count of it, segment by segment."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.settings.topic import TopicConfig
from barnabas.storage.remote.local_retention import LocalDeletion, LocalExtent, local_deletion, local_limits
from tests.examples import examples


@dataclass
class Aging:
    base_offset: int
    size_bytes: int
    time_ms: int

    def largest_timestamp(self) -> int:
        return self.time_ms


LIMIT = st.sampled_from([-2, -1, 0, 5, 9, 20])


@pytest.mark.feature("TS-02")
@settings(max_examples=examples(300))
@given(st.data())
def test_as_many_segments_leave_the_disk_as_may(data: st.DataObject) -> None:
    draw = data.draw
    offsets, segments = 0, list[Aging]()
    for _ in range(draw(st.integers(1, 5))):
        segments.append(Aging(offsets, draw(st.integers(0, 6)), draw(st.integers(0, 20))))
        offsets += draw(st.integers(1, 3))
    end = offsets if segments[-1].size_bytes else segments[-1].base_offset
    place = st.integers(0, end)
    watermark = draw(place)
    extent = LocalExtent(draw(st.integers(0, watermark)), draw(st.integers(0, watermark)), draw(place), watermark, end)
    policy = draw(st.sampled_from([["delete"], ["compact"], ["compact", "delete"]]))
    config = TopicConfig(
        cleanup_policy=frozenset(policy),
        retention_ms=draw(st.integers(-1, 15)),
        retention_bytes=draw(st.integers(-1, 15)),
        local_retention_ms=draw(LIMIT),
        local_retention_bytes=draw(LIMIT),
    )
    now_ms = draw(st.integers(0, 30))

    keeps_all = policy == ["compact"]
    whole_ms, whole_bytes = (-1, -1) if keeps_all else (config.retention_ms, config.retention_bytes)
    keep_ms = whole_ms if config.local_retention_ms == -2 else config.local_retention_ms
    keep_bytes = whole_bytes if config.local_retention_bytes == -2 else config.local_retention_bytes
    assert local_limits(config) == (keep_ms, keep_bytes)

    ends = [*(each.base_offset for each in segments[1:]), end]
    start = max(extent.log_start_offset, extent.local_log_start_offset)

    def due(upper: int) -> int:
        """Segments at the front that end at `upper` at the latest, and are below the start, too many or too old."""
        count = 0
        while count < len(segments) - 1 and ends[count] <= min(start, upper):
            count += 1
        for rule in ("bytes", "ms"):
            while count < len(segments) and ends[count] <= upper:
                each, rest = segments[count], sum(it.size_bytes for it in segments[count + 1 :])
                is_active = count == len(segments) - 1
                too_much = rule == "bytes" and 0 <= keep_bytes <= rest
                too_old = rule == "ms" and 0 <= keep_ms < now_ms - each.time_ms
                if not (too_much or too_old) or (is_active and not each.size_bytes):
                    break
                count += 1
        return count

    proven = min(watermark, max(extent.proven_end_offset, extent.log_start_offset))
    active = len(segments) - 1
    expected = LocalDeletion(min(due(proven), active), rolls=due(watermark) > active)
    assert local_deletion(segments, extent, config, now_ms) == expected
