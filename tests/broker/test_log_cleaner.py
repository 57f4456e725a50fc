"""The cleaner of a broker, over logs in a simulated world."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import trio

from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.log_store import LogStore
from barnabas.broker.metrics import cleaner_families
from barnabas.broker.traffic import CleanerWork
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings, load_broker_settings
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    PartitionOffsets,
    read_offsets,
)
from barnabas.storage.cleaning import Phase
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.log_directory import LogDirectory
from tests.protocol.records.poison import batch_around, poisons, zeros
from tests.storage.cleaning_rig import close_segments, compacted, keyed, put, records_of, values
from tests.storage.rig import NOW_MS, append

CONFIG = compacted(segment_bytes=1000, min_cleanable_dirty_ratio=0.5)
NODE = "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=100@localhost:9093\n"


def settings_of(**changes: str) -> BrokerSettings:
    overrides = {name.replace("_", "."): text for name, text in changes.items()}
    listeners = "listeners=PLAINTEXT://localhost:9092\ncontroller.listener.names=CONTROLLER\n"
    return load_broker_settings(NODE + listeners, "test", overrides)[0]


@dataclass
class Bench:
    """A cleaner with logs to clean."""

    world: World
    store: LogStore
    settings: BrokerSettings = field(default_factory=settings_of)
    work: CleanerWork = field(default_factory=CleanerWork)

    def log(self, topic: str, count: int, config: TopicConfig = CONFIG, keys: int = 3) -> PartitionLog:
        """`count` records of few keys, in closed segments."""
        now_ms = self.world.wall_clock.now_ms()
        log = self.store.directories.make(NewLog(topic, 0, topic.encode().ljust(16, b"\0"), config), now_ms)
        assert log is not None
        for number in range(count):
            put(log, (f"k{number % keys}", f"value {number}"))
        close_segments(log)
        return log

    def checkpoint(self, name: str) -> dict[tuple[str, int], int]:
        return read_offsets(self.world.disk, f"/data/{name}")

    def change(self, **changes: str) -> None:
        self.settings = settings_of(**changes)


def play(story: Callable[[Bench], Awaitable[None]], seed: int = 1) -> None:
    """The story, while the cleaner runs."""

    async def simulated(universe: object) -> None:
        world = make_world("node", universe)  # type: ignore[arg-type]
        directories = LogDirectories.open(world.disk, ["/data"], 1, world.chance, uuid_to_string(bytes(16)))
        directories.load(lambda topic: CONFIG, 0)
        bench = Bench(world, LogStore(directories, world))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(LogCleaner(world, bench.store, lambda: bench.settings, bench.work).run)
            await story(bench)
            nursery.cancel_scope.cancel()

    run_simulation(seed, simulated)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(3600):
        while not condition():
            await trio.sleep(0.01)


@pytest.mark.feature("CR-02", "CR-03")
def test_only_compacted_topics_are_compacted_and_what_was_done_is_noted() -> None:
    async def story(bench: Bench) -> None:
        compact, plain = bench.log("compact", 50), bench.log("plain", 50, TopicConfig(segment_bytes=1000))
        await trio.sleep(14.9)
        assert compact.cleaned_to is None, "log.cleaner.backoff.ms"
        await until(lambda: compact.cleaning.phase is Phase.IDLE and compact.cleaned_to == 50)
        assert values(compact) == [(number, f"k{number % 3}", f"value {number}") for number in (47, 48, 49)]
        assert len(records_of(plain)) == 50
        await trio.sleep(0.1)
        assert bench.checkpoint(CLEANER_OFFSET_CHECKPOINT) == {("compact", 0): 50}
        assert bench.checkpoint(RECOVERY_POINT_CHECKPOINT)["compact", 0] == 50

    play(story)


@pytest.mark.feature("CR-15")
def test_metrics_show_what_is_dirty_and_what_cannot_be_cleaned() -> None:
    async def story(bench: Bench) -> None:
        log, broken = bench.log("compact", 50), bench.log("broken", 10)
        broken.cleaning.problem = "damaged"
        assert numbers(bench)["kafka_log_logcleanermanager_uncleanable_bytes"] == broken.size_bytes
        await until(lambda: log.cleaning.phase is Phase.CLEANING)
        assert numbers(bench)["kafka_log_logcleanermanager_max_dirty_percent"] == 100
        await until(lambda: log.cleaned_to == 50 and log.cleaning.phase is Phase.IDLE)
        found = numbers(bench)
        assert found["kafka_log_logcleanermanager_max_dirty_percent"] == 0, "the search after it finds nothing"
        assert found["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 1
        assert 0 < found["kafka_log_logcleaner_cleaner_recopy_percent"] < 10, "3 of 50 records"
        assert 0 < found["kafka_log_logcleaner_max_buffer_utilization_percent"] < 10
        assert found["kafka_log_logcleaner_max_clean_time_secs"] >= 0.001
        assert found["kafka_log_logcleaner_max_compaction_delay_secs"] == 0

    play(story)


@pytest.mark.feature("CR-15")
def test_a_log_beyond_its_largest_lag_is_overdue() -> None:
    async def story(bench: Bench) -> None:
        bench.change(log_cleaner_threads="0")
        bench.log("late", 50, compacted(segment_bytes=1000, max_compaction_lag_ms=60_000))
        await trio.sleep(120)
        bench.change()
        await until(lambda: bench.work.backlog.overdue_ms > 0)
        assert 60 <= numbers(bench)["kafka_log_logcleaner_max_compaction_delay_secs"] <= 80

    play(story)


def numbers(bench: Bench) -> dict[str, float]:
    """Sums of the cleaner's metrics."""
    families = cleaner_families(bench.store.directories, bench.work)
    return {family.name: sum(float(value) for _, value in family.samples) for family in families}  # type: ignore[arg-type]


@pytest.mark.feature("CR-04")
def test_a_restart_knows_what_is_clean() -> None:
    async def story(bench: Bench) -> None:
        log = bench.log("compact", 50)
        await until(lambda: log.cleaned_to == 50)
        await trio.sleep(1)
        bench.store.directories.close(1)
        again = LogDirectories.open(bench.world.disk, ["/data"], 1, bench.world.chance)
        again.load(lambda topic: CONFIG, 0)
        assert again.logs["compact", 0].cleaned_to == 50
        bench.store.directories = again

    play(story)


@pytest.mark.feature("CR-04", "CR-09")
def test_records_in_place_of_truncated_ones_are_not_clean_after_a_crash() -> None:
    async def story(bench: Bench) -> None:
        log = bench.log("compact", 50)
        await until(lambda: log.cleaned_to == 50 and log.cleaning.phase is Phase.IDLE)
        await until(lambda: bench.checkpoint(CLEANER_OFFSET_CHECKPOINT) == {("compact", 0): 50})
        log.truncate_to(20)
        assert bench.checkpoint(CLEANER_OFFSET_CHECKPOINT) == {("compact", 0): log.cleaned_to}
        assert log.cleaned_to == 20
        log.truncate_fully_and_start_at(10)
        assert bench.checkpoint(CLEANER_OFFSET_CHECKPOINT) == {}

    play(story)


@pytest.mark.feature("CR-02", "ST-10")
def test_nothing_is_cleaned_before_it_is_written_down_that_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk has no room for the checkpoint. Retention makes some, and then a loss of power would find the gaps of
    a cleaning behind the recovery point, where they count as losses.
    """
    write_checkpoint = LogDirectory.write_checkpoint
    full = True

    def write_if_there_is_room(directory: LogDirectory, name: str, offsets: PartitionOffsets) -> None:
        if full:
            raise OSError(errno.ENOSPC, "no room")
        write_checkpoint(directory, name, offsets)

    monkeypatch.setattr(LogDirectory, "write_checkpoint", write_if_there_is_room)

    async def story(bench: Bench) -> None:
        nonlocal full
        log = bench.log("compact", 50)
        await trio.sleep(60)
        assert len(records_of(log)) == 50
        assert bench.store.directories.online
        full = False
        await until(lambda: log.cleaned_to == 50)

    play(story)


@pytest.mark.feature("CR-05")
def test_every_log_has_its_turn_the_dirtiest_first() -> None:
    async def story(bench: Bench) -> None:
        logs = [bench.log(f"topic{number}", 30) for number in range(5)]
        await until(lambda: all(log.cleaned_to == 30 for log in logs))
        for number, log in enumerate(logs):
            for each in range(4 + 20 * number):
                put(log, (f"k{each}", "x"))
            close_segments(log)
        order: list[int] = []
        with trio.fail_after(3600):
            while len(order) < 5:
                order += [n for n, log in enumerate(logs) if (log.cleaned_to or 0) > 30 and n not in order]
                await trio.sleep(0.001)
        assert order == [4, 3, 2, 1, 0]

    play(story)


@pytest.mark.feature("CR-06")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_thread_cleans_one_log_at_a_time(threads: int) -> None:
    async def story(bench: Bench) -> None:
        bench.change(log_cleaner_threads=str(threads), log_cleaner_io_buffer_size="1000")
        logs = [bench.log(f"topic{number}", 60) for number in range(6)]
        most = 0
        while any(log.cleaned_to != 60 for log in logs):
            most = max(most, sum(log.cleaning.phase is Phase.CLEANING for log in logs))
            await trio.sleep(0.001)
        assert most == threads

    play(story)


@pytest.mark.feature("CR-07")
def test_the_throttle_makes_it_last() -> None:
    async def story(bench: Bench) -> None:
        bench.change(log_cleaner_io_max_bytes_per_second="1000", log_cleaner_io_buffer_size="400")
        log = bench.log("compact", 100)
        size = log.size_bytes
        await until(lambda: log.cleaning.phase is Phase.CLEANING)
        began = bench.world.monotonic.now_ms()
        await until(lambda: log.cleaned_to == 100)
        spent_seconds = (bench.world.monotonic.now_ms() - began) / 1000
        assert spent_seconds >= 2 * size / 1000, "every byte is read for the map and for the copy"
        assert spent_seconds < 4 * size / 1000

    play(story)


def test_a_cleaner_that_is_off_does_nothing() -> None:
    async def story(bench: Bench) -> None:
        bench.change(log_cleaner_enable="false")
        log = bench.log("compact", 50)
        await trio.sleep(100)
        assert log.cleaned_to is None
        bench.change(log_cleaner_threads="0")
        await trio.sleep(100)
        assert log.cleaned_to is None
        bench.change()
        await until(lambda: log.cleaned_to == 50)

    play(story)


@pytest.mark.feature("CR-09")
@pytest.mark.parametrize("what", ["truncated", "deleted", "not compacted", "disk lost"])
def test_a_log_that_changes_is_given_up_and_the_others_go_on(what: str) -> None:
    for seed in range(8):
        moment = 0.004 * seed

        async def story(bench: Bench, moment: float = moment) -> None:
            bench.change(log_cleaner_io_buffer_size="1000")
            log, other = bench.log("compact", 60), bench.log("other", 20)
            await until(lambda: log.cleaning.phase is Phase.CLEANING)
            await trio.sleep(moment)
            if what == "truncated":
                log.truncate_to(10)
            elif what == "deleted":
                bench.store.directories.delete("compact", 0, 0)
            elif what == "not compacted":
                log.config = TopicConfig()
            else:
                bench.store.failed("compact", 0, OSError("gone"))
            await until(lambda: log.cleaning.phase is Phase.IDLE)
            if what == "disk lost":
                return
            await until(lambda: other.cleaned_to == 20)
            assert log.failure is None
            assert bench.store.directories.online
            if what == "truncated":
                for number in range(20):
                    append(log, keyed(("a", str(number))))
                log.set_high_watermark(log.log_end_offset)
                end = log.log_end_offset
                close_segments(log)
                await until(lambda: log.cleaned_to == end)
                assert values(log)[-1][1:] == ("a", "19")

        play(story, seed)


@pytest.mark.feature("CR-06")
def test_a_damaged_log_is_left_alone_from_then_on() -> None:
    async def story(bench: Bench) -> None:
        log, other = bench.log("compact", 60), bench.log("other", 20)
        file = bench.world.disk.open(log.segments[1].log_path)
        file.pwrite(b"damage", 80)
        await until(lambda: other.cleaned_to == 20 and log.cleaning.phase is Phase.IDLE)
        assert log.cleaning.problem is not None
        assert log.cleaned_to is None
        assert log.failure is None
        await trio.sleep(100)
        assert log.cleaned_to is None

    play(story)


@pytest.mark.feature("CR-06")
@pytest.mark.parametrize(
    ("poison", "problem"),
    [
        (poisons(NOW_MS)["garbage"], "at offset 60"),
        (zeros(17 << 20, 4, NOW_MS), "the batch at offset 60: a batch that unfolds to more than 16777216 bytes"),
        (batch_around(b"", 3_000_000, 0, NOW_MS), "3000000 records in the batch at offset 60"),
    ],
    ids=["garbage", "too many bytes", "too many records"],
)
def test_a_log_with_poison_in_it_is_left_alone_and_the_cleaner_goes_on(poison: bytes, problem: str) -> None:
    async def story(bench: Bench) -> None:
        log = bench.log("compact", 60)
        await until(lambda: log.cleaned_to == 60)
        for _ in range(40):
            append(log, poison)
        log.set_high_watermark(log.log_end_offset)
        close_segments(log)
        other = bench.log("other", 20)
        await until(lambda: other.cleaned_to == 20 and log.cleaning.phase is Phase.IDLE)
        assert log.cleaning.problem is not None and problem in log.cleaning.problem
        assert (log.cleaned_to, log.failure) == (60, None)

    play(story)


@pytest.mark.feature("CR-04")
def test_a_log_that_takes_the_name_of_a_deleted_one_is_not_taken_for_clean() -> None:
    async def story(bench: Bench) -> None:
        log, other = bench.log("compact", 60), bench.log("other", 20)
        await until(lambda: log.cleaned_to == 60 and other.cleaned_to == 20)
        await trio.sleep(1)
        bench.store.directories.delete("compact", 0, 0)
        await trio.sleep(20)
        assert bench.checkpoint(CLEANER_OFFSET_CHECKPOINT) == {("other", 0): 20}

    play(story)
