"""A disk that fails at any operation, whatever the log is doing: it is reported once, and nothing is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.runtime.simulated.store import DiskFault
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_snapshot_format import encode_snapshot
from tests.storage.rig import NOW_MS, Rig, all_batches, append, batch, numbered, producer_batch, small_segments

CONFIG = replace(small_segments(), retention_ms=0, file_delete_delay_ms=0)
EPOCHS = [(0, 0), (4, 12), (6, 14)]
"""Epochs of a leader whose log is compacted."""


def filled(rig: Rig) -> tuple[PartitionLog, int]:
    """Twelve records in three segments with an aborted transaction in the first; and what is durable of it."""
    log = rig.open(CONFIG)
    append(log, producer_batch(7, 0, 0, transactional=True))
    append(log, build_end_txn_batch(EndTxn(False, 0), 7, 0, NOW_MS))
    append(log, batch(3))
    log.roll(NOW_MS)
    append(log, batch(2), leader_epoch=1)
    log.flush()
    durable = log.recovery_point
    append(log, batch(2), leader_epoch=1)
    log.roll(NOW_MS)
    append(log, batch(3), leader_epoch=2)
    log.set_high_watermark(9)
    log.close_files()
    return log, durable


def gap(log: PartitionLog) -> object:
    return log.append_as_follower(bytearray(numbered(15, 1, 6)), NOW_MS, leaders_epochs=EPOCHS)


OPERATIONS: dict[str, Callable[[PartitionLog], object]] = {
    "append as leader": lambda log: append(log, batch(2), leader_epoch=3),
    "append as follower": lambda log: log.append_as_follower(bytearray(numbered(12, 2, 3)), NOW_MS),
    "append behind a gap": gap,
    "append with a roll": lambda log: append(log, batch(2, value=bytes(450)), leader_epoch=3),
    "roll": lambda log: log.roll(NOW_MS),
    "read": lambda log: log.read(3, 10, 12),
    "find aborted": lambda log: log.aborted_transactions(0, 12),
    "truncate": lambda log: log.truncate_to(10),
    "truncate to an earlier segment": lambda log: log.truncate_to(6),
    "truncate what is durable": lambda log: log.truncate_to(1),
    "restart": lambda log: log.truncate_fully_and_start_at(40),
    "start behind remote": lambda log: log.start_behind_remote(40, 5, [(1, 5)], encode_snapshot(()), NOW_MS),
    "retention": lambda log: log.delete_old_segments(NOW_MS + 1_000),
    "flush": lambda log: log.flush(),
}
KEEPING = ("append", "roll", "read", "find", "flush")
"""Operations that remove nothing begin with these words."""


class Failing:
    """Lets all operations of the disk fail from some number on."""

    def __init__(self, rig: Rig, kinds: set[str], after: int) -> None:
        self.kinds, self.left = kinds, after
        self.struck = False
        rig.store.faults.append(DiskFault(frozenset()))  # otherwise nobody looks
        rig.store.strike = self.strike  # type: ignore[method-assign]

    def strike(self, operation: str, path: str) -> DiskFault | None:
        if operation not in self.kinds:
            return None
        self.left -= 1
        if self.left >= 0:
            return None
        self.struck = True
        return DiskFault(frozenset(self.kinds), "", errno.EIO, 1.0, None)


@pytest.mark.feature("RE-18", "ST-10")
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kinds", [{"open"}, {"write"}, {"sync"}, {"read"}], ids="+".join)
def test_a_failure_is_reported_once_and_a_restart_finds_a_log(name: str, kinds: set[str]) -> None:
    for after in range(100):
        rig = Rig(seed=after)
        log, durable = filled(rig)
        before = all_batches(log)
        log.close_files()
        reported: list[OSError] = []
        log.health.on_failure = reported.append
        noted: list[int] = [durable]
        log.on_recovery_point_lowered = lambda log: noted.append(log.recovery_point)  # noqa: B023
        failing = Failing(rig, kinds, after)
        try:
            OPERATIONS[name](log)
        except KafkaError as refused:
            assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR and "orders-0" in refused.message
            assert failing.struck and log.failure is not None and reported == [log.failure]
            for other in ("append as leader", "read"):
                with pytest.raises(KafkaError):
                    OPERATIONS[other](log)
            assert len(reported) == 1
        else:
            assert not failing.struck and log.failure is None and not reported
        del rig.store.strike
        rig.store.faults.clear()
        rig.kill()
        again = rig.open(CONFIG, recovery_point=noted[-1])
        found = all_batches(again)
        if name.startswith(KEEPING):
            assert found[: len(before)] == before
        else:
            assert found == [data for data in before if data in found]
            assert again.log_end_offset <= 12 or not found
        append(again, leader_epoch=9)
        if not failing.struck:
            return
    raise AssertionError("it never came to its end")
