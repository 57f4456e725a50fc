"""The log dirs of a node under every kind of power cut at each of their disk operations.

Topics are created, deleted and created again, logs get records, move between directories and lose their oldest
records, checkpoints are written, and the node stops and starts. Whatever a power cut keeps of that: a log has the
records of its own topic, all that were durable, without a gap; and a node that claims to have lost nothing has lost
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.record import decode_records
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.future_logs import take_over
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import NewLog
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, all_batches, append, batch
from tests.storage.test_power_cuts import at_each_change

CONFIG = TopicConfig(segment_bytes=220, index_interval_bytes=1, segment_index_bytes=400, file_delete_delay_ms=0)
PATHS = ["/logs/a", "/logs/b"]
KEYS = [("orders", 0), ("orders", 1)]
Key = tuple[str, int]


@dataclass
class Known:
    """A log as the cluster knows it."""

    topic_id: bytes
    written: int = 0
    """Records that were written, or are being written."""
    durable: int = 0
    starts: tuple[int, ...] = (0,)
    """Where it may begin."""
    is_made: bool = False
    homes: tuple[bytes | None, ...] = (None,)
    """Ids of the directories that the metadata may name."""


@dataclass
class Life:
    """A node and its disk."""

    rig: Rig
    chance: random.Random
    known: dict[Key, Known] = field(default_factory=dict)
    former: dict[Key, list[Known]] = field(default_factory=lambda: {key: [] for key in KEYS})
    """Logs that are deleted, or about to be: a power cut may bring them back."""
    topics: int = 0
    epoch: int = 0
    judging: random.Random = field(default_factory=lambda: random.Random(0))
    node: LogDirectories = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.node = opened(self.rig)
        self.node.load(lambda topic: CONFIG, NOW_MS)

    def log(self, key: Key) -> PartitionLog:
        return self.node.logs[key]

    # -- what happens

    def run(self, steps: list[str]) -> None:
        for step in steps:
            getattr(self, step)(self.chance.choice(KEYS))

    def make(self, key: Key) -> None:
        if key in self.known:
            return
        self.topics += 1
        known = self.known[key] = Known(self.topics.to_bytes(16, "big"))
        for work in self.node.make_work([NewLog(*key, known.topic_id, CONFIG)], NOW_MS):
            self.node.adopt_new(work, work())
        known.is_made = True
        known.homes = (self.home(key),)

    def home(self, key: Key) -> bytes | None:
        place = self.node.directory_of(*key)
        assert place is not None
        return place.directory_id

    def settle(self, key: Key) -> None:
        for work in self.node.settle_work():
            assert work() == []

    def write(self, key: Key) -> None:
        if (known := self.known.get(key)) is not None:
            for _ in range(self.chance.randint(1, 3)):
                known.written += 1
                append(self.log(key), batch(1, value=b"%s %d" % (known.topic_id, known.written - 1)))

    def flush(self, key: Key) -> None:
        if (known := self.known.get(key)) is not None:
            self.log(key).flush()
            known.durable = known.written

    def delete_records(self, key: Key) -> None:
        if (known := self.known.get(key)) is not None and known.written:
            log = self.log(key)
            log.set_high_watermark(log.log_end_offset)
            start = self.chance.randint(log.log_start_offset, log.log_end_offset)
            known.starts = tuple(range(log.log_start_offset, start + 1))
            log.advance_log_start_offset(start)
            log.delete_old_segments(NOW_MS)
            self.remove(key)

    def remove(self, key: Key) -> None:
        work = self.node.deletion_work(NOW_MS)
        assert work is None or work() == []

    def delete(self, key: Key) -> None:
        if (known := self.known.pop(key, None)) is not None:
            self.former[key].append(known)
            self.node.delete(*key, NOW_MS)

    def checkpoint(self, key: Key) -> None:
        assert self.node.checkpoint_work()() == []

    def move(self, key: Key) -> None:
        """Does the same as `broker.replication.log_dir_moves`."""
        if (known := self.known.get(key)) is None:
            return
        current, place = self.log(key), self.node.directory_of(*key)
        target = next(each for each in self.node.directories if each is not place)
        work = self.node.future_work(NewLog(*key, known.topic_id, CONFIG), target, NOW_MS)
        future = self.node.adopt_future(work, work())
        assert future is not None and place is not None
        if current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        for data in all_batches(current):
            future.append_as_follower(bytearray(data), NOW_MS)
        future.set_high_watermark(current.high_watermark)
        future.flush()
        known.homes = (target.directory_id,)  # the controller has recorded it
        assert self.node.promote_future(key, NOW_MS, lambda log: take_over(current, log))
        known.durable = max(known.durable, future.recovery_point)
        for directory in (target, place):
            directory.disk.sync_directory(directory.path)
        self.checkpoint(key)

    def register(self, key: Key) -> None:
        self.epoch += 1
        assert self.node.note_epoch(self.epoch) == []

    def restart(self, key: Key) -> None:
        """A clean stop."""
        self.epoch += 1
        self.node.close(self.epoch)
        for known in self.known.values():
            known.durable, known.starts = known.written, known.starts[-1:]
        self.rig.start()
        self.start()
        for each, known in self.known.items():
            self.check(self.log(each), known)

    # -- judgement

    def judge(self, after: Rig) -> None:
        node = opened(after)
        claims_all = node.previous_broker_epoch >= 0
        for work in node.load_work(lambda topic: CONFIG, NOW_MS):
            node.adopt(work, work())
        node.settle_copies(lambda *key: self.judging.choice(self.homes(key)), NOW_MS)
        node.note_failures(node.note_boot())
        assert node.online == node.directories
        for key, known in self.known.items():
            log = node.logs.get(key)
            if known.is_made:
                assert log is not None, f"{key} is gone"
            if log is not None and log.topic_id == known.topic_id:
                self.check(log, known)
                assert not claims_all or log.log_end_offset == known.written, "it claims to have lost nothing"
            elif known.is_made:
                raise AssertionError(f"{key} is of topic id {log and log.topic_id!r}")
        for key, log in node.logs.items():
            if key not in self.known or log.topic_id != self.known[key].topic_id:
                ids = {each.topic_id: each for each in self.former[key]}
                assert log.topic_id in ids or log.log_end_offset == 0, f"{log} is of no topic"
                if log.topic_id in ids:
                    self.check(log, ids[log.topic_id], is_former=True)
        for log in node.logs.values():
            append(log)

    def homes(self, key: Any) -> tuple[bytes | None, ...]:
        return self.known[key].homes if key in self.known else (None,)

    @staticmethod
    def check(log: PartitionLog, known: Known, *, is_former: bool = False) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        found = [record.value for data in all_batches(log) for record in decode_records(data)]
        assert found == [b"%s %d" % (known.topic_id, number) for number in range(start, end)]
        assert end <= known.written and log.high_watermark <= end
        if not is_former:
            assert start in known.starts, f"{log} starts at {start}"
            assert end >= known.durable, f"{log} had {known.durable} durable records"


def opened(rig: Rig) -> LogDirectories:
    return LogDirectories.open(rig.disk, PATHS, 1, random.Random(1), "the cluster")


def power_cuts(seed: int, steps: list[str]) -> int:
    life = Life(Rig(seed=seed), random.Random(seed))
    return at_each_change(life.rig, lambda: life.run(steps), life.judge)


STEPS: list[Callable[[Life, Key], None]] = [
    Life.make,
    Life.make,
    Life.write,
    Life.write,
    Life.flush,
    Life.settle,
    Life.delete_records,
    Life.remove,
    Life.delete,
    Life.checkpoint,
    Life.move,
    Life.register,
    Life.restart,
]
NAMES = [step.__name__ for step in STEPS]


@pytest.mark.feature("ST-10", "ST-11", "ST-17", "ST-19", "RE-19")
@settings(max_examples=examples(3), deadline=None)
@given(st.integers(0, 1 << 30), st.lists(st.sampled_from(NAMES), min_size=2, max_size=5))
@example(1, ["write", "flush", "delete", "make", "write", "restart"])
@example(2, ["settle", "write", "move", "write", "checkpoint"])
@example(3, ["write", "write", "restart", "delete_records", "delete", "remove"])
def test_a_node_keeps_what_was_durable_after_every_kind_of_power_cut(seed: int, steps: list[str]) -> None:
    assert power_cuts(seed, ["make", "make", *steps]) > 10
