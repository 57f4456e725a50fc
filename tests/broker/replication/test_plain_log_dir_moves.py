"""Moves of a replica between directories, while its log lives: whatever happens, the log is what it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.log_dir_moves import LogDirMoves, MovePorts
from barnabas.broker.replication.partition import Partition, PartitionHost
from barnabas.broker.replication.replica import Replica, ReplicaSettings
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.decisions import DecisionKind, Note, Notes
from barnabas.runtime.world import World
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.log_directory import LogDirectory
from tests.broker.replication.shells import TrioClock
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, numbered

T = TypeVar("T")
NODE, KEY, TOPIC_ID = 4, ("orders", 0), bytes(15) + b"\x07"
SIZE = len(numbered(0))
MODULE = "barnabas.broker.replication.log_dir_moves"


@dataclass
class State:
    """All that a log must keep on its way."""

    start: int
    local_start: int
    end: int
    watermark: int
    copied: int
    cleaned_to: int | None
    epochs: list[tuple[int, int]]
    batches: dict[int, bytes]
    """By base offset."""

    @classmethod
    def of(cls, log: PartitionLog) -> State:
        batches = {read_header(data).base_offset: data for data in log.batches(log.local_log_start_offset)}
        ends = (log.log_start_offset, log.local_log_start_offset, log.log_end_offset, log.high_watermark)
        # Where the first epoch began before the log's start makes no difference: a copy may know it, or not.
        epochs = [(epoch, max(start, log.log_start_offset)) for epoch, start in log.epochs.entries()]
        return cls(*ends, log.highest_copied_offset, log.cleaned_to, epochs, batches)


@dataclass
class Move:
    """A move under way, as the test knows it."""

    home: LogDirectory
    target: LogDirectory
    is_quiet: bool = True
    """The log did not change since it began."""
    is_assigned: bool = False
    is_accepted: bool = False
    copied_bytes: int = 0


class Quota:
    """Takes the number of copied bytes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.exceeded = False

    def is_exceeded(self, now_ms: int) -> bool:
        return self.exceeded

    def record(self, size_bytes: int, now_ms: int) -> None:
        assert self.node.move is not None
        self.node.move.copied_bytes += size_bytes


class Node:
    """A broker with two directories and one partition."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], nursery: trio.Nursery) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 99)))
        self.tiered = draw(st.booleans())
        self.config = TopicConfig(
            segment_bytes=3 * SIZE,
            index_interval_bytes=1,
            segment_index_bytes=1 << 14,
            retention_ms=-1,
            file_delete_delay_ms=0,
            local_retention_bytes=0 if self.tiered else -2,
            remote_storage_enable=self.tiered,
            remote_log_storage_system_enable=self.tiered,
        )
        self.directories = self.opened()
        made = self.directories.make(NewLog(*KEY, TOPIC_ID, self.config), NOW_MS)
        assert made is not None
        clock = TrioClock()
        nothing: Any = lambda *args: None  # noqa: E731
        host = PartitionHost(clock, clock, nothing, nothing, nothing)
        replica = Replica(NODE, lambda node: None, ReplicaSettings(), 0, 0)
        self.partition = Partition(KEY[0], TOPIC_ID, made, replica, host)
        self.notes, self.expected_notes = Notes(), Notes()
        self.quota = Quota(self)
        self.move: Move | None = None
        self.asked: list[tuple[Move, Callable[[], None]]] = []
        """Assignments that the controller has not answered."""
        self.taken_back: list[bytes] = []
        self.mistakes: list[AssertionError] = []
        self.swaps = self.checkpoints = 0
        self.written = 0
        world = World(cast(Any, None), self.rig.disk, clock, clock, random.Random(1), cast(Any, self.run_blocking))
        store: Any = SimpleNamespace(directories=self.directories, is_closing=False, checkpoint=self.note_checkpoint)
        partitions: Any = SimpleNamespace(find=lambda topic, index: self.partition if (topic, index) == KEY else None)
        ports = MovePorts(world, nursery, store, partitions, self.assign, self.quota, self.notes, NODE)
        self.moves = LogDirMoves(ports)
        self.log = made
        self.state = State.of(made)

    def opened(self) -> LogDirectories:
        found = LogDirectories.open(self.rig.disk, ["/logs/a", "/logs/b"], NODE, random.Random(1), "the cluster")
        found.load(lambda topic: self.config, NOW_MS)
        return found

    @staticmethod
    async def run_blocking(work: Callable[[], T]) -> T:
        await trio.sleep(0.001)
        return work()

    async def note_checkpoint(self) -> None:
        self.checkpoints += 1

    def assign(self, key: tuple[bytes, int], directory: bytes, answered: Callable[[], None] | None) -> None:
        assert key == (TOPIC_ID, 0)
        if answered is None:
            self.taken_back.append(directory)
            return
        try:
            self.check_assignment(directory, answered)
        except AssertionError as error:
            self.mistakes.append(error)  # the shell retries whatever fails
            raise

    def check_assignment(self, directory: bytes, answered: Callable[[], None]) -> None:
        move, future = self.move, self.directories.futures.logs[KEY]
        assert move is not None and directory == move.target.directory_id and not move.is_assigned
        move.is_assigned = True
        self.asked.append((move, answered))
        self.is_copied(future)
        if move.is_quiet:
            assert future.recovery_point == self.state.end, "the copy is durable before the controller knows it"
            assert move.copied_bytes == sum(map(len, self.state.batches.values()))

    def is_copied(self, log: PartitionLog) -> None:
        """It has all of the records."""
        found, known = State.of(log), self.state
        assert found.end == known.end
        assert found.local_start <= known.local_start if self.tiered else found.local_start == known.local_start
        first = max(found.local_start, known.local_start)
        ends = [{base: data for base, data in each.batches.items() if base >= first} for each in (found, known)]
        assert ends[0] == ends[1]

    # -- the life of the log

    def changed(self) -> None:
        self.state = State.of(self.log)
        self.partition.replica.log_end_offset = self.state.end
        self.partition.replica.high_watermark = self.state.watermark
        if self.move is not None:
            self.move.is_quiet = False

    def write(self, gap: int, epoch: int, most: int = 2) -> None:
        self.written += 1
        log = self.log
        data = numbered(log.log_end_offset + gap, self.draw(st.integers(1, most)), epoch, NOW_MS + self.written)
        log.append_as_follower(bytearray(data), NOW_MS)
        self.changed()

    @property
    def epoch(self) -> int:
        return max(0, self.log.latest_epoch)

    def append(self) -> None:
        self.write(0, self.epoch + self.draw(st.sampled_from([0, 0, 0, 1])))

    def append_behind_gap(self) -> None:
        """A follower of a compacted log appends, with an epoch of which nothing is left."""
        gap = self.draw(st.integers(1, 3))
        if self.log.latest_epoch < 0:
            self.log.epochs.assign(0, self.log.log_end_offset)  # no epoch is older
        if self.draw(st.booleans()):
            self.log.epochs.assign(self.epoch + 1, self.log.log_end_offset + self.draw(st.integers(0, gap - 1)))
        self.write(gap, self.epoch + self.draw(st.integers(0, 2)))

    def truncate(self) -> None:
        """And the records of another leader follow, as many as were cut."""
        before, epoch = self.log.log_end_offset, self.epoch + 1
        self.log.truncate_to(max(self.log.local_log_start_offset, before - self.draw(st.integers(1, 3))))
        while self.log.log_end_offset < before:
            self.write(0, epoch, most=1)
        self.changed()

    def begin_epoch(self) -> None:
        self.log.epochs.assign(self.epoch + 1, self.log.log_end_offset)
        self.changed()

    def restart(self) -> None:
        self.log.truncate_fully_and_start_at(self.log.log_end_offset + self.draw(st.integers(1, 3)))
        self.changed()

    def commit(self) -> None:
        log = self.log
        log.set_high_watermark(self.draw(st.integers(log.high_watermark, log.log_end_offset)))
        if self.draw(st.booleans()):
            log.advance_log_start_offset(min(log.high_watermark, log.log_start_offset + self.draw(st.integers(0, 3))))
        log.cleaned_to = self.draw(st.sampled_from([None, log.log_start_offset]))
        self.changed()

    def copy_to_remote(self) -> None:
        """Remote records leave the disk."""
        log = self.log
        if self.tiered:
            log.flush()
            log.highest_copied_offset = max(log.highest_copied_offset, log.high_watermark - 1)
            log.delete_old_segments(NOW_MS)
            self.changed()

    # -- moves

    def begin(self) -> None:
        if self.move is not None:
            return
        home = self.directories.directory_of(*KEY)
        assert home is not None
        target = next(each for each in self.directories.directories if each is not home)
        work = self.directories.future_work(NewLog(*KEY, TOPIC_ID, self.config), target, NOW_MS)
        assert self.directories.adopt_future(work, work()) is not None
        self.move = Move(home, target)
        self.moves.look()
        self.noted(f"moves from {home.path} to {target.path}", "AlterReplicaLogDirs asked for it", 0)
        assert self.moves.target_of(KEY) is target and len(self.moves) == 1

    def noted(self, what: str, cause: str, offset: int) -> None:
        text = f"the replica of orders-0 on broker {NODE} {what}"
        facts = {"offset": offset}
        self.expected_notes.keep(Note(DecisionKind.LOG, "orders-0", text, (f"broker {NODE}",), cause, facts))

    def accept(self) -> None:
        """The controller answers what it was asked."""
        for move, answered in self.asked:
            move.is_accepted = True
            answered()
        self.asked.clear()

    def cancel(self) -> None:
        move, self.move = self.move, None
        before = [*self.taken_back]
        end = self.directories.futures.logs[KEY].log_end_offset if move is not None else 0
        self.moves.cancel(KEY)
        assert self.moves.target_of(KEY) is None and len(self.moves) == 0
        if move is not None:
            self.noted(f"stays in {move.home.path}", "the move was cancelled", end)
        is_known = move is not None and move.is_assigned
        assert self.taken_back == [*before, *([move.home.directory_id] if move is not None and is_known else [])]

    def throttle(self) -> None:
        self.quota.exceeded = not self.quota.exceeded

    def fill(self) -> None:
        for directory in self.directories.directories:
            if directory is not self.directories.directory_of(*KEY):
                self.directories.close_for_room(directory, self.draw(st.booleans()))

    # -- answers

    def check(self) -> None:
        if self.mistakes:
            raise self.mistakes[0]
        if self.partition.log is not self.log:
            move, self.move = self.move, None
            assert move is not None and move.is_accepted
            self.swaps += 1
            self.log = self.partition.log
            self.directories.close_for_room(move.target, False)
            assert self.directories.directory_of(*KEY) is move.target
            assert self.directories.logs[KEY] is self.log and not self.directories.futures.logs
            self.noted(f"is in {move.target.path} now", f"all of it was copied from {move.home.path}", self.state.end)
        self.is_copied(self.log)
        found, known = State.of(self.log), self.state
        for name in ("start", "end", "watermark", "copied", "cleaned_to", "epochs"):
            assert getattr(found, name) == getattr(known, name), name
        assert self.log.topic_id == TOPIC_ID
        assert self.notes == self.expected_notes
        assert len(self.moves) == (self.move is not None)

    async def finish(self) -> None:
        """Nothing is in the way any longer."""
        self.quota.exceeded = False
        for directory in self.directories.directories:
            self.directories.close_for_room(directory, False)
        with trio.fail_after(60):
            while self.directories.futures.logs:
                self.accept()
                await trio.sleep(0.1)
        self.check()
        await trio.sleep(2)
        assert self.checkpoints == self.swaps


OFTEN = ["append", "append", "begin", "begin", "accept"]
SOMETIMES = ["append_behind_gap", "truncate", "truncate", "begin_epoch", "restart", "commit", "copy_to_remote"]
SOMETIMES += ["cancel", "throttle", "fill"]


@pytest.mark.feature("RE-19")
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_log_stays_what_it_is_wherever_it_moves(data: st.DataObject) -> None:
    async def life() -> None:
        async with trio.open_nursery() as nursery:
            node = Node(data.draw, nursery)
            steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(SOMETIMES), min_size=1, max_size=4))]
            for _ in range(data.draw(st.integers(3, 20))):
                getattr(node, data.draw(st.sampled_from(steps)))()
                await trio.sleep(data.draw(st.sampled_from([0, 0.001, 0.02, 1.5])))
                node.check()
            await node.finish()
            nursery.cancel_scope.cancel()
        node.log.close()
        node.rig.kill()
        again = node.opened().logs[KEY]
        assert State.of(again).batches.keys() >= {base for base in node.state.batches if base >= node.state.local_start}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{MODULE}.COPY_BYTES", data.draw(st.sampled_from([1, 2 * SIZE, 1 << 16])))
        trio.run(life, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.feature("RE-19", "RE-13")
@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("when", ["before the controller is asked", "before it answers"])
def test_a_copy_that_is_as_long_but_not_the_same_is_copied_again(epoch: int, when: str) -> None:
    """The replica follows another leader, which has other records."""
    values: list[Any] = [0, False, *[1] * 9]

    async def life() -> None:
        async with trio.open_nursery() as nursery:
            node = Node(lambda strategy: values.pop(0), nursery)
            for _ in range(5):
                node.write(0, epoch)
            node.quota.exceeded = when == "before the controller is asked"
            node.begin()
            if node.quota.exceeded:
                future = node.directories.futures.logs[KEY]
                for offset in range(5):
                    future.append_as_follower(bytearray(node.state.batches[offset]), NOW_MS)
            await trio.sleep(2)
            assert bool(node.asked) is not node.quota.exceeded
            node.log.truncate_to(3)
            for _ in range(2):
                node.write(0, epoch + 1)
            node.quota.exceeded = False
            await trio.sleep(2)
            node.accept()
            await trio.sleep(2)
            node.check()
            await node.finish()
            assert node.swaps == 1
            nursery.cancel_scope.cancel()

    trio.run(life, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.feature("RE-19", "TS-02")
async def test_remote_records_are_not_copied(autojump_clock: object) -> None:
    """The copy begins where the local part of the log does."""
    values: list[Any] = [0, True]
    async with trio.open_nursery() as nursery:
        node = Node(lambda strategy: values.pop(0) if values else 1, nursery)
        for _ in range(9):
            node.write(0, 0, most=1)
        node.log.set_high_watermark(9)
        node.copy_to_remote()
        assert 0 == node.state.start < node.state.local_start < 9
        node.begin()
        await node.finish()
        assert node.swaps == 1 and node.log.segments[0].base_offset == node.state.local_start
        nursery.cancel_scope.cancel()


@pytest.mark.feature("RE-19")
async def test_a_log_that_is_never_quiet_is_moved_nevertheless(autojump_clock: object) -> None:
    """Its last part is copied in one step, so that there is a moment at which both are alike."""
    values: list[Any] = [0, False]
    async with trio.open_nursery() as nursery:
        node = Node(lambda strategy: values.pop(0) if values else 1, nursery)
        for _ in range(9):
            node.write(0, 0, most=1)
        node.begin()
        for _ in range(3_000):
            node.write(0, 0, most=1)
            node.accept()
            await trio.sleep(0.0009)
            if node.partition.log is not node.log:
                break
        assert node.partition.log is not node.log
        node.check()
        nursery.cancel_scope.cancel()
