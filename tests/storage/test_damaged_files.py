"""Files of a stopped log that were damaged, lost or lengthened, of any kind: the next start has every record of the
batches that are whole, repairs what can be repaired, and the start after that finds nothing to repair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.record import decode_records
from barnabas.storage.log import PartitionLog
from tests.examples import examples
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, all_batches, append, batch, producer_batch
from tests.storage.test_aborted import CONFIG, check, end

Draw = Callable[[st.SearchStrategy[Any]], Any]
INDEX_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}


def filled(draw: Draw, rig: Rig) -> PartitionLog:
    """Some segments, with transactions of two producers and records of any time."""
    log = rig.open(CONFIG)
    open_at: dict[int, int] = {}
    sequences = {8: 0, 9: 0}
    for _ in range(draw(st.integers(4, 22))):
        producer = draw(st.sampled_from([8, 9]))
        how = draw(st.sampled_from(["plain", "plain", "transactional", "end", "roll", "flush"]))
        if how == "plain":
            epoch = max(0, log.latest_epoch) + draw(st.sampled_from([0, 0, 1]))
            append(log, batch(draw(st.integers(1, 2)), NOW_MS + draw(st.integers(0, 9))), leader_epoch=epoch)
        elif how == "transactional":
            epoch = max(0, log.latest_epoch)
            data = producer_batch(producer, 0, sequences[producer], transactional=True)
            open_at.setdefault(producer, append(log, data, leader_epoch=epoch).first_offset)
            sequences[producer] += 1
        elif how == "end" and producer in open_at and log.latest_epoch <= 0:
            del open_at[producer]
            end(log, producer, commit=draw(st.booleans()))
        elif how == "roll":
            log.roll(NOW_MS)
        elif how == "flush":
            log.flush()
    log.set_high_watermark(log.log_end_offset)
    return log


def damage(draw: Draw, rig: Rig, last: int) -> bool:
    """Damage a file so that it can be noticed. Returns whether a start must report it."""
    names = [name for name in rig.names() if name[0] == "0"]
    if not names:
        return False
    name = draw(st.sampled_from(names))
    base, _, rest = name.partition(".")
    suffix, path = f".{rest}", f"{DIRECTORY}/{name}"
    size, has_batches = rig.disk.size(path), rig.disk.exists(f"{DIRECTORY}/{base}.log")
    if suffix == ".log":
        if int(base) == last:
            # The end of the log is what was being written.
            file = rig.disk.open(path)
            file.pwrite(draw(st.sampled_from([b"\0" * 70, b"\xff" * 5, b"nonsense" * 20])), size)
            return True
        return False
    if suffix == ".snapshot":
        rig.disk.open(path).pwrite(b"\xee", draw(st.integers(0, size - 1)))
        return False
    how = draw(st.sampled_from(["gone", "a part is missing", "more", "zeros"]))
    entry = INDEX_BYTES[suffix]
    if how == "gone" and suffix != ".txnindex":  # a missing one says that nothing was aborted
        rig.disk.remove(path)
        return has_batches and (suffix == ".index" or rig.disk.size(f"{DIRECTORY}/{base}.log") > 0)
    if how == "a part is missing" and size:
        rig.disk.open(path).truncate(size - draw(st.integers(1, entry - 1)))
        return True
    if how == "more":
        rig.disk.open(path).pwrite(b"\xff" * entry, size)
        return True
    if how == "zeros" and suffix != ".txnindex":
        rig.disk.open(path).truncate(size + 3 * entry)  # as Kafka preallocates it
    return False


def check_inside(log: PartitionLog) -> None:
    """Every look-up has the answer of the batches."""
    check(log)
    records = [(it.timestamp, it.offset) for data in all_batches(log) for it in decode_records(data)]
    for wanted in range(NOW_MS - 1, NOW_MS + 11):
        expected = next((each for each in records if each[0] >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (None if found is None else found[:2]) == expected
    latest = max(records, key=lambda each: (each[0], -each[1]), default=None)
    found = log.offset_for_max_timestamp()
    assert (None if found is None else found[:2]) == latest
    for _, offset in records:
        part = log.read(offset, 1, log.log_end_offset)
        assert part is not None
        assert offset in [it.offset for it in decode_records(part.file.pread(part.size_bytes, part.position))]


@pytest.mark.feature("ST-06", "ST-07", "ST-08", "ST-10", "ST-12")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_a_start_repairs_what_is_damaged_and_the_next_one_finds_nothing(data: st.DataObject) -> None:
    draw = data.draw
    rig = Rig(seed=draw(st.integers(0, 9)))
    log = filled(draw, rig)
    before, epochs, clean = all_batches(log), log.epochs.entries(), draw(st.booleans())
    recovery_point, last = log.recovery_point, log.segments[-1].base_offset
    if clean:
        log.close()
        recovery_point = log.log_end_offset
    rig.kill()
    must_report = damage(draw, rig, last)
    again = rig.open(CONFIG, recovery_point=recovery_point, clean_shutdown=clean)
    again.set_high_watermark(log.log_end_offset)
    assert all_batches(again) == before
    assert again.epochs.entries() == epochs
    # Indexes behind the recovery point are made again in any case.
    assert again.recovery_events or not must_report or not clean
    check_inside(again)
    again.close()
    rig.kill()
    third = rig.open(CONFIG, recovery_point=again.log_end_offset, clean_shutdown=True)
    third.set_high_watermark(again.log_end_offset)
    assert third.recovery_events == []
    assert all_batches(third) == before
    check_inside(third)
