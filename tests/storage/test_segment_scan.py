"""Damage in closed segments, as a scan of all their bytes finds it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES
from barnabas.settings.topic import TopicConfig
from barnabas.storage.segment_scan import last_damage
from tests.examples import examples
from tests.storage.rig import Rig, append, batch

CRC_COVERS_FROM = 21


@pytest.mark.feature("ST-10", "KR-05")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_the_last_damaged_segment_is_found(data: st.DataObject) -> None:
    """Bytes that a CRC covers are changed, or the end of a file is missing, or a batch is."""
    draw = data.draw
    rig = Rig()
    log = rig.open(TopicConfig(segment_bytes=1 << 20))
    starts: list[list[int]] = []
    """Where the batches of each segment begin."""
    for _ in range(draw(st.integers(1, 4))):
        starts.append([])
        for _ in range(draw(st.integers(1, 3))):
            starts[-1].append(log.active_segment.size_bytes)
            append(log, batch(draw(st.integers(1, 2)), value=bytes(draw(st.sampled_from([0, 10, 90])))))
        log.roll(log.config.segment_ms)
    bases = [segment.base_offset for segment in log.segments]
    damaged: list[int] = []
    for number, segment in enumerate(log.segments[:-1]):
        how = draw(st.sampled_from(["well", "well", "flipped", "cut", "without its last batch"]))
        file, size = segment.log_file(), segment.size_bytes
        first = starts[number][draw(st.integers(0, len(starts[number]) - 1))]
        if how == "flipped":
            at = first + draw(st.integers(CRC_COVERS_FROM, BATCH_HEADER_BYTES))
            file.pwrite(bytes([file.pread(1, at)[0] ^ 1]), at)
        elif how == "cut":
            file.truncate(size - draw(st.integers(1, size - 1)))
        elif how != "well":
            file.truncate(starts[number][-1])
        if how != "well":
            damaged.append(number)
    offset = draw(st.integers(0, log.log_end_offset + 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.storage.segment_scan.SCAN_BYTES", draw(st.sampled_from([61, 100, 150, 1 << 20])))
        found = last_damage(log.segments, offset)
    known = [number for number in damaged if bases[number + 1] <= offset]
    if not known:
        assert found is None
        return
    assert found is not None and found[0] == bases[known[-1] + 1]
    assert found[1].startswith(f"segment {bases[known[-1]]}: ")
