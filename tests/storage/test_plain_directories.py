"""The log dirs of a node beside plain ones: a list of logs for each directory, from which every answer is computed."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offsets,
)
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import DirectoryFailure, NewLog
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.names import parse_directory_name
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, all_offsets, append, numbered

Key = tuple[str, int]
KEYS: list[Key] = [("orders", 0), ("orders", 1), ("stock-7", 0)]
PATHS = ["/logs/a", "/logs/b", "/logs/c"]
META = "/logs/meta"
DELAY_MS = 1_000
CONFIG = TopicConfig(file_delete_delay_ms=DELAY_MS)
DISK_FAILED = OSError(errno.EIO, "Input/output error")
LOGS_IN_A_STEP = 2
STATES = ("current", "future", "delete", "stray")


@dataclass
class PlainLog:
    """Offsets of one log; every record has one."""

    topic_id: bytes
    end: int = 0
    start: int = 0
    watermark: int = 0
    durable: int = 0
    cleaned_to: int | None = None

    def checkpointed(self) -> dict[str, int | None]:
        """Its offset in each checkpoint; its only segment begins at 0."""
        start = min(self.start, self.durable)
        return {
            RECOVERY_POINT_CHECKPOINT: self.durable,
            LOG_START_OFFSET_CHECKPOINT: start if start > 0 else None,
            REPLICATION_OFFSET_CHECKPOINT: self.watermark,
            CLEANER_OFFSET_CHECKPOINT: self.cleaned_to,
        }


@dataclass
class PlainDirectory:
    """One log dir."""

    path: str
    logs: dict[Key, PlainLog] = field(default_factory=dict)
    futures: dict[Key, PlainLog] = field(default_factory=dict)
    condemned: list[tuple[int, Key]] = field(default_factory=list)
    """When each is due."""
    strays: list[Key] = field(default_factory=list)
    failed: bool = False
    full: bool = False
    checkpoints: dict[str, dict[Key, int]] = field(default_factory=dict)
    """As last written."""
    epoch: int = -1
    """Broker epoch that was noted here, or written at a clean stop."""

    def names(self) -> Counter[tuple[Key, str]]:
        """Directories of logs inside it."""
        kinds: list[list[Key]] = [[*self.logs], [*self.futures], [key for _, key in self.condemned], self.strays]
        return Counter((key, state) for state, keys in zip(STATES, kinds, strict=True) for key in keys)

    def writes(self, *names: str) -> None:
        """Its checkpoints are written."""
        for name in names:
            both = {**self.logs, **self.futures}
            found = {key: log.checkpointed()[name] for key, log in both.items()}
            self.checkpoints[name] = {key: value for key, value in found.items() if value is not None}


class Node:
    """Both."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 99)))
        self.now_ms = NOW_MS
        self.plain = {path: PlainDirectory(path) for path in (*PATHS, META)}
        self.epoch = 0
        self.topics = self.starts = 0
        self.went_offline: list[tuple[str, set[Key]]] = []
        self.written: list[tuple[str, str]] = []
        """Checkpoints that were written: directory and name."""
        self.watermarks: dict[tuple[str, Key], int] | None = None
        """By directory and log, as they were last gathered."""
        self.is_new = True
        """A log was opened, made or promoted since."""
        self.ids: dict[str, bytes | None] = {}
        self.open()
        self.ids = {each.path: each.directory_id for each in self.real.directories}

    def open(self) -> None:
        rig = self.rig
        self.starts += 1
        chance = random.Random(self.starts)
        self.real = LogDirectories.open(rig.disk, PATHS, 1, chance, "the cluster", metadata_path=META)
        self.real.on_offline = self.noted_offline

    def noted_offline(self, directory: LogDirectory, logs: list[PartitionLog]) -> None:
        self.went_offline.append((directory.path, {(log.topic, log.partition) for log in logs}))

    # -- choices

    @property
    def online(self) -> list[PlainDirectory]:
        return [each for each in self.plain.values() if not each.failed]

    def usable(self) -> list[PlainDirectory]:
        """They may take new logs."""
        return [each for each in self.online if each.path != META]

    def real_directory(self, plain: PlainDirectory) -> LogDirectory:
        return next(each for each in self.real.directories if each.path == plain.path)

    def place(self, key: Key) -> PlainDirectory | None:
        return next((each for each in self.online if key in each.logs), None)

    def a_log(self) -> tuple[Key, PlainDirectory, PlainLog, PartitionLog] | None:
        key = self.draw(st.sampled_from(KEYS))
        place = self.place(key)
        return None if place is None else (key, place, place.logs[key], self.real.logs[key])

    def is_anywhere(self, key: Key) -> bool:
        """Also in a directory that failed, which would come back with it."""
        return any(key in each.logs or key in each.futures for each in self.plain.values())

    # -- logs

    def make(self) -> None:
        free = [key for key in KEYS if not self.is_anywhere(key)]
        usable = self.usable()
        if not free or not usable:
            return
        wanted = self.draw(st.lists(st.sampled_from(free), min_size=1, unique=True))
        new = []
        for key in wanted:
            self.topics += 1
            chosen = self.draw(st.sampled_from([None, bytes(16), *self.ids.values()]))
            new.append(NewLog(*key, self.topics.to_bytes(16, "big"), CONFIG, chosen))
            named = [each for each in usable if self.ids[each.path] == chosen]
            open_ones = [each for each in usable if each.path not in self.real.cordoned] or usable[:1]
            target = named[0] if named else min(open_ones, key=lambda each: len(each.logs))
            target.logs[key] = PlainLog(new[-1].topic_id)
        self.is_new = True
        for work in self.real.make_work(new, self.now_ms):
            self.real.adopt_new(work, work())

    def append(self) -> None:
        if (found := self.a_log()) is None:
            return
        _, place, plain, log = found
        if place.full:
            with pytest.raises(KafkaError, match="is full") as refused:
                append(log)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            return
        for _ in range(self.draw(st.integers(1, 3))):
            append(log)
            plain.end += 1

    def commit(self) -> None:
        if (found := self.a_log()) is not None:
            _, _, plain, log = found
            plain.watermark = self.draw(st.integers(plain.watermark, plain.end))
            log.set_high_watermark(plain.watermark)
            plain.start = self.draw(st.integers(plain.start, plain.watermark))
            log.advance_log_start_offset(plain.start)
            if plain.end and self.draw(st.booleans()):  # nothing is noted about a log that has had no record
                plain.cleaned_to = log.cleaned_to = plain.start

    def flush(self) -> None:
        if (found := self.a_log()) is not None:
            found[3].flush()
            found[2].durable = found[2].end

    def delete(self) -> None:
        key = self.draw(st.sampled_from(KEYS))
        strays = self.draw(st.integers(0, 3)) == 0
        for place in self.online:
            if key in place.logs:
                del place.logs[key]
                if strays:
                    place.strays.append(key)
                else:
                    place.condemned.append((self.now_ms + DELAY_MS, key))
            if key in place.futures and not strays:
                del place.futures[key]
                place.condemned.append((self.now_ms + DELAY_MS, key))
        (self.real.mark_stray if strays else self.real.delete)(*key, self.now_ms)

    def find(self) -> None:
        if (found := self.a_log()) is not None:
            key, _, plain, log = found
            assert self.real.find(*key, plain.topic_id) is log
            with pytest.raises(KafkaError) as other:
                self.real.find(*key, b"\xff" * 16)
            assert other.value.code is ErrorCode.INCONSISTENT_TOPIC_ID

    # -- moves

    def move(self) -> None:
        """Begin a future log with some records of the current one."""
        if (found := self.a_log()) is None:
            return
        key, place, plain, _ = found
        others = [each for each in self.usable() if each is not place]
        if not others or key in self.real.futures.logs or any(key in each.futures for each in self.plain.values()):
            return
        target = self.draw(st.sampled_from(others))
        work = self.real.future_work(NewLog(*key, plain.topic_id, CONFIG), self.real_directory(target), self.now_ms)
        future = self.real.adopt_future(work, work())
        assert future is self.real.futures.logs[key]
        self.is_new = True
        copied = target.futures[key] = PlainLog(plain.topic_id)
        if not target.full:
            copied.end = self.draw(st.integers(0, plain.end))
            for offset in range(copied.end):
                future.append_as_follower(bytearray(numbered(offset)), self.now_ms)

    def end_move(self) -> None:
        key = self.draw(st.sampled_from(KEYS))
        if self.draw(st.booleans()):
            self.move()
        target = next((each for each in self.online if key in each.futures), None)
        if target is None:
            assert not self.real.promote_future(key, self.now_ms)
            self.real.drop_future(key, self.now_ms)
            return
        future = target.futures.pop(key)
        how = self.draw(st.sampled_from(["promote", "promote", "drop", "put aside", "is killed"]))
        place = self.place(key)
        if how == "is killed" and place is not None:
            self.is_killed_between(key, place, target, future)
        elif how == "promote":
            self.is_new = True
            between: list[PartitionLog] = []
            assert self.real.promote_future(key, self.now_ms, between.append)
            assert between == [self.real.logs[key]]
            if place is not None:
                del place.logs[key]
                place.condemned.append((self.now_ms + DELAY_MS, key))
            target.logs[key] = future
        else:
            self.real.drop_future(key, self.now_ms, stray=how == "put aside")
            if how == "put aside":
                target.strays.append(key)
            else:
                target.condemned.append((self.now_ms + DELAY_MS, key))

    def is_killed_between(self, key: Key, place: PlainDirectory, target: PlainDirectory, future: PlainLog) -> None:
        """The process ends between both renames; the metadata names one of the directories."""

        def dies(log: PartitionLog) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            self.real.promote_future(key, self.now_ms, dies)
        target.logs[key] = future
        loser = self.draw(st.sampled_from([place, target]))
        self.restart(clean=False, homes={key: self.ids[(target if loser is place else place).path]})

    # -- directories

    def cordon(self) -> None:
        self.real.cordoned = frozenset(self.draw(st.lists(st.sampled_from(PATHS), unique=True)))

    def fill(self) -> None:
        place = self.draw(st.sampled_from(self.online))
        place.full = self.draw(st.booleans())
        self.real.close_for_room(self.real_directory(place), place.full)

    def fail(self) -> None:
        place = self.draw(st.sampled_from([*self.plain.values()]))
        if self.online == [place]:
            return
        descriptors = self.draw(st.booleans())
        error = OSError(errno.EMFILE, "Too many open files") if descriptors else DISK_FAILED
        lost = [*map(self.real.logs.get, place.logs), *map(self.real.futures.logs.get, place.futures)]
        self.real.note_failures([DirectoryFailure(self.real_directory(place), error)])
        if descriptors or place.failed:
            assert not self.went_offline
            return
        assert self.went_offline == [(place.path, {*place.logs})]
        self.went_offline.clear()
        place.failed = True
        for log in lost:
            assert log is not None
            with pytest.raises(KafkaError, match="Input/output error"):
                append(log)

    def checkpoint(self) -> None:
        names = self.draw(st.lists(st.sampled_from([*PlainLog(b"").checkpointed()]), unique=True))
        self.written.clear()
        assert self.real.checkpoint_work(*names)() == []
        wanted = {*(names or PlainLog(b"").checkpointed())}
        for place in self.online:
            place.writes(*wanted)
        if REPLICATION_OFFSET_CHECKPOINT in wanted:
            # The high watermarks of thousands of logs are gathered only if one of them has moved.
            found = {(place.path, key): log.watermark for place in self.online for key, log in place.logs.items()}
            is_written = (self.online[0].path, REPLICATION_OFFSET_CHECKPOINT) in self.written
            if found == self.watermarks and not (self.is_new and is_written):
                wanted.remove(REPLICATION_OFFSET_CHECKPOINT)
            self.watermarks, self.is_new = found, False
        assert self.written == [(place.path, name) for place in self.online for name in self.in_order(names, wanted)]

    @staticmethod
    def in_order(names: list[str], wanted: set[str]) -> list[str]:
        return [name for name in names or PlainLog(b"").checkpointed() if name in wanted]

    def settle(self) -> None:
        for work in self.real.settle_work():
            assert work() == []
        assert self.real.settle_work() == []

    def remove(self) -> None:
        """Time passes, and files that are due are removed."""
        self.now_ms += self.draw(st.sampled_from([0, 1, DELAY_MS - 1, DELAY_MS]))
        due = any(at_ms <= self.now_ms for place in self.online for at_ms, _ in place.condemned)
        steps, pauses = self.real.deletion_steps(self.now_ms), 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                work = end.value
                break
            pauses += 1
        assert pauses == len(self.real.logs) // LOGS_IN_A_STEP
        assert (work is not None) == due
        if work is not None:
            assert work() == []
            for place in self.online:
                place.condemned = [each for each in place.condemned if each[0] > self.now_ms]

    # -- restarts

    def register(self) -> None:
        self.epoch += 1
        assert self.real.note_epoch(self.epoch) == []
        for place in self.online:
            place.epoch = self.epoch

    def restart(self, *, clean: bool | None = None, homes: dict[Key, bytes | None] | None = None) -> None:
        """A clean stop or a kill; a disk that had failed is well again. `homes`: directories in the metadata."""
        clean = self.draw(st.booleans()) if clean is None else clean
        if homes is None:
            homes = {key: self.draw(st.sampled_from([None, *self.ids.values()])) for key in KEYS}
        if clean:
            self.epoch += 1
            self.real.close(self.epoch)
            for place in self.online:
                for log in (*place.logs.values(), *place.futures.values()):
                    log.durable = log.end
                place.writes(*PlainLog(b"").checkpointed())
        stopped_clean = {place.path for place in self.online} if clean else set()
        self.rig.kill()
        self.open()
        self.is_new, self.watermarks = True, None
        self.check_epoch(stopped_clean)
        works = self.real.load_work(lambda topic: CONFIG, self.now_ms)
        for work in self.draw(st.permutations(works)):
            self.real.adopt(work, work())
        self.real.settle_copies(lambda topic, partition: homes.get((topic, partition)), self.now_ms)
        assert self.real.note_boot() == []
        for place in self.plain.values():
            self.comes_back(place, clean=place.path in stopped_clean)
        for key in KEYS:
            self.settles(key, homes.get(key))
        assert not any(each.recovery_points or each.high_watermarks for each in self.real.directories)

    def settles(self, key: Key, home: bytes | None) -> None:
        """The log at home stays, of two; a future log at home that has all takes over."""
        copies = [place for place in self.plain.values() if key in place.logs]
        losers = [place for place in copies if len(copies) > 1 and self.ids[place.path] != home]
        target = next((place for place in self.plain.values() if key in place.futures), None)
        at_home = target is not None and self.ids[target.path] == home
        if target is not None and at_home and target.futures[key].end >= max(it.logs[key].end for it in copies):
            losers = copies
            target.logs[key] = target.futures.pop(key)
        for place in losers:
            del place.logs[key]
            place.condemned.append((self.now_ms + DELAY_MS, key))

    def check_epoch(self, stopped_clean: set[str]) -> None:
        for place in self.plain.values():
            if place.path in stopped_clean:
                place.epoch = self.epoch
        held = [place for place in self.plain.values() if place.path != META]
        epochs = {place.epoch for place in held}
        assert self.real.previous_broker_epoch == (epochs.pop() if len(epochs) == 1 else -1)

    def comes_back(self, place: PlainDirectory, *, clean: bool) -> None:
        directory = self.real_directory(place)
        assert directory.was_clean == clean and not directory.lost_power
        place.failed = place.full = False
        place.condemned = [(self.now_ms + DELAY_MS, key) for _, key in place.condemned]
        for key, log in (*place.logs.items(), *place.futures.items()):
            noted = {name: offsets.get(key) for name, offsets in place.checkpoints.items()}
            log.start = noted.get(LOG_START_OFFSET_CHECKPOINT) or 0
            log.watermark = max(log.start, noted.get(REPLICATION_OFFSET_CHECKPOINT) or 0)
            log.durable = noted.get(RECOVERY_POINT_CHECKPOINT) or 0
            log.cleaned_to = noted.get(CLEANER_OFFSET_CHECKPOINT)
        if clean:
            # Its epoch counts once: from now on a stop is a crash.
            noted_epoch = self.rig.disk.exists(f"{place.path}/.broker_epoch")
            place.epoch = int(self.rig.disk.read_bytes(f"{place.path}/.broker_epoch").split()[1]) if noted_epoch else -1

    # -- answers

    def check(self) -> None:
        assert [each.path for each in self.real.online] == [each.path for each in self.online]
        assert {each.path: each.directory_id for each in self.real.directories} == self.ids
        assert [each.path for each in self.real.with_replicas] == PATHS
        logs, futures = {}, {}
        for place in self.online:
            logs |= {key: (place, plain) for key, plain in place.logs.items()}
            futures |= {key: (place, plain) for key, plain in place.futures.items()}
            names = filter(None, map(parse_directory_name, self.rig.disk.list(place.path)))
            assert Counter(((each.topic, each.partition), each.kind) for each in names) == place.names()
            for name, offsets in place.checkpoints.items():
                assert read_offsets(self.rig.disk, f"{place.path}/{name}") == offsets
        strays = [(path.rpartition("/")[0], parse_directory_name(path.rpartition("/")[2])) for path in self.real.strays]
        put_aside = Counter((place.path, key) for place in self.plain.values() for key in place.strays)
        assert Counter((path, each[:2]) for path, each in strays if each is not None) == put_aside
        for held, expected in ((self.real.logs, logs), (self.real.futures.logs, futures)):
            assert held.keys() == expected.keys()
            for key, (place, plain) in expected.items():
                self.check_log(held[key], place, plain)
        self.check_flushes({key for key, (_, plain) in logs.items() if plain.start > plain.durable})
        for key in KEYS:
            found = self.real.directory_of(*key)
            assert (None if found is None else found.path) == (logs[key][0].path if key in logs else None)
        assert not self.went_offline

    def check_flushes(self, wanting: set[Key]) -> None:
        """Whoever needs a flush is a candidate, and whoever does not is one no longer than until somebody looks."""
        real = self.real
        candidates = list(real.flush_candidates)
        found = real.need_flush(candidates)
        assert {(log.topic, log.partition) for log in found} == wanting
        assert found == [log for log in candidates if log in found]
        futures = list(real.futures.logs.values())
        assert list(real.flush_candidates) == [log for log in candidates if log in found or log in futures]

    def check_log(self, log: PartitionLog, place: PlainDirectory, plain: PlainLog) -> None:
        assert log.directory.rpartition("/")[0] == place.path
        assert log.topic_id == plain.topic_id
        offsets = (log.log_start_offset, log.high_watermark, log.recovery_point, log.log_end_offset)
        assert offsets == (plain.start, plain.watermark, plain.durable, plain.end)
        assert log.cleaned_to == plain.cleaned_to
        assert all_offsets(log) == list(range(plain.start, plain.end))
        assert log.health.is_closed_for_room == place.full


OFTEN = ["make", "append", "append", "commit"]
SOMETIMES = ["flush", "delete", "find", "move", "end_move", "cordon", "fill", "fail"]
SOMETIMES += ["checkpoint", "settle", "remove", "register", "restart"]


@pytest.mark.feature("ST-17", "ST-10")
@settings(max_examples=examples(150))
@given(st.data())
def test_log_dirs_answer_as_the_plain_ones(data: st.DataObject) -> None:
    node = Node(data.draw)
    write = LogDirectory.write_checkpoint

    def noted(directory: LogDirectory, name: str, offsets: Any) -> None:
        node.written.append((directory.path, name))
        write(directory, name, offsets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogDirectory, "write_checkpoint", noted)
        patch.setattr("barnabas.storage.directories.LOGS_IN_A_STEP", LOGS_IN_A_STEP)
        node.real.load(lambda topic: CONFIG, NOW_MS)
        steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(SOMETIMES), min_size=3, max_size=8))]
        for _ in range(data.draw(st.integers(5, 40))):
            getattr(node, data.draw(st.sampled_from(steps)))()
            node.check()
