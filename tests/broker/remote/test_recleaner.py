"""Compacted logs in two tiers: the remote part is compacted again, and no key is lost or reappears under any leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from barnabas.broker.remote.copier import Copier
from barnabas.broker.remote.remote_pass import RemotePass
from barnabas.broker.remote.tended import Job
from barnabas.cluster.fault_points import RECLEAN_POINTS
from barnabas.storage.cleaner import extent_of
from barnabas.storage.compaction import Compaction
from barnabas.storage.remote.compacted_copy import decode_copy
from barnabas.storage.remote.segment import RemoteSegment, SegmentState
from tests.broker.remote.compacted_rig import TOMBSTONES_MS, Replicas, untiered
from tests.broker.remote.tier_rig import KEY, NodeKilled

pytestmark = pytest.mark.feature("TS-05", "CR-03")

BIG = "x" * 150
STARTED, FINISHED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED


Story = Callable[[Replicas], Awaitable[None]]


def running(story: Story, *, tiered_later: bool = False) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            replicas = Replicas(nursery, untiered()) if tiered_later else Replicas(nursery)
            await story(replicas)
            assert not replicas.broken
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def fill(replicas: Replicas, *pairs: tuple[str, str | None]) -> None:
    """Write these, and make them cleanable on both replicas."""
    for key, value in pairs:
        replicas.put(key, None if value is None else value + BIG)
    for number in (0, 1):
        replicas.close(number)


def finished(replicas: Replicas) -> list[RemoteSegment]:
    known = replicas.metadata.segments(KEY)
    assert known is not None
    superseded = {each.segment_id for each, _ in known.superseded()}
    found = [each for each in known.all() if each.state is FINISHED]
    return sorted((each for each in found if each.segment_id not in superseded), key=lambda each: each.start_offset)


def remote_keys(replicas: Replicas) -> list[tuple[int, str, bool]]:
    """(offset, key, whether it is a tombstone) of what is remote."""
    return [
        (record.offset, (record.key or b"").decode(), record.value is None)
        for segment in finished(replicas)
        for record in replicas._stored(segment)
    ]


def test_only_clean_segments_are_copied() -> None:
    async def story(replicas: Replicas) -> None:
        fill(replicas, ("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"), ("c", "1"))
        await replicas.all(0)
        assert finished(replicas) == []
        replicas.clean(0)
        await replicas.all(0)
        assert remote_keys(replicas) == [(1, "a", False), (3, "b", False), (4, "c", False)]
        copies = [decode_copy(each.custom_metadata) for each in finished(replicas)]
        assert {(copy.leader_epoch, copy.cleaned_to) for copy in copies if copy} == {(1, 5)}
        assert finished(replicas)[-1].end_offset == 4
        replicas.delete_local(0)
        assert replicas.log(0).local_log_start_offset == 5
        assert replicas.log(0).log_start_offset == 0

    running(story)


def test_later_records_replace_what_is_remote() -> None:
    async def story(replicas: Replicas) -> None:
        fill(replicas, *((key, "1") for key in "abcdef"))
        replicas.clean(0)
        await replicas.all(0)
        replicas.delete_local(0)
        fill(replicas, ("a", "2"), ("c", "2"), ("e", "2"))
        replicas.clean(0)
        before = {each.segment_id for each in finished(replicas)}
        await replicas.all(0)
        assert remote_keys(replicas) == [(at, key, False) for at, key in enumerate("abcdeface") if at not in (0, 2, 4)]
        after = finished(replicas)
        assert after[0].start_offset == 0
        assert {each.segment_id for each in after} != before
        assert {copy.cleaned_to for each in after if (copy := decode_copy(each.custom_metadata))} == {9}
        await replicas.work(0, Job.EXPIRE)
        ids = {each.segment_id for each in after}
        assert {each.segment_id for each in replicas.metadata.known[KEY].all()} == ids
        assert len(replicas.store.objects) == 5 * len(ids)
        await replicas.work(0, Job.RECLEAN)
        assert finished(replicas) == after, "nothing is dirty any more"

    running(story)


def test_a_tombstone_goes_after_its_time_and_not_before() -> None:
    async def story(replicas: Replicas) -> None:
        fill(replicas, ("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"))
        replicas.clean(0)
        await replicas.all(0)
        replicas.delete_local(0)
        fill(replicas, ("a", None), ("b", "2"))
        replicas.clean(0)
        await trio.sleep(10 * TOMBSTONES_MS / 1000)
        replicas.clean(0)
        assert (4, "a", True) in [
            (record.offset, (record.key or b"").decode(), record.value is None) for record in replicas.view(0)[0]
        ], "older records are remote"
        await replicas.all(0)
        assert (0, "a", False) not in remote_keys(replicas)
        assert (4, "a", True) in remote_keys(replicas)
        fill(replicas, ("c", "2"))
        replicas.clean(0)
        await replicas.all(0)
        assert (4, "a", True) in remote_keys(replicas), "its time has just begun"
        await trio.sleep(TOMBSTONES_MS / 1000)
        fill(replicas, ("d", "2"))
        replicas.clean(0)
        await replicas.all(0)
        assert "a" not in [key for _, key, _ in remote_keys(replicas)]

    running(story)


@pytest.mark.parametrize("point", RECLEAN_POINTS)
def test_a_leader_that_ends_in_a_pass_leaves_what_the_next_one_can_go_on_with(point: str) -> None:
    async def story(replicas: Replicas) -> None:
        fill(replicas, *((key, "1") for key in "abcdefgh"))
        replicas.clean(0)
        await replicas.all(0)
        replicas.delete_local(0)
        fill(replicas, ("a", None), ("c", "2"), ("h", None))
        replicas.clean(0)
        await replicas.work(0, Job.COPY)
        replicas.tiers[0].kill_at = point
        with pytest.raises(NodeKilled):
            await replicas.work(0, Job.RECLEAN)
        replicas.elect(deposed_knows=True)
        replicas.check()
        assert not replicas.broken
        await replicas.all(1)
        await trio.sleep(1_000)
        await replicas.all(1)
        assert [key for _, key, _ in remote_keys(replicas)] == ["b", "d", "e", "f", "g", "a", "c", "h"]
        assert len(replicas.store.objects) == 5 * len(finished(replicas)), "nothing is left of the pass"

    running(story)


@pytest.mark.parametrize("held", [STARTED, FINISHED])
def test_an_earlier_leader_cannot_bring_back_what_a_later_one_has_cleaned(held: SegmentState) -> None:
    async def story(replicas: Replicas) -> None:
        fill(replicas, ("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"))
        for number in (0, 1):
            replicas.clean(number)
        gate = replicas.own[0].gate = trio.Event()
        replicas.own[0].held = held
        replicas.nursery.start_soon(replicas.work, 0, Job.COPY)
        await wait_all_tasks_blocked()
        replicas.elect(deposed_knows=False)
        for key in ("a", "b"):
            fill(replicas, (key, None), ("c", "2"))
            replicas.clean(1)
            await replicas.all(1)
            replicas.delete_local(1)
            await trio.sleep(TOMBSTONES_MS / 1000)
        for _ in range(3):
            fill(replicas, ("d", "2"))
            replicas.clean(1)
            await replicas.all(1)
            await trio.sleep(TOMBSTONES_MS / 1000)
        assert {"a", "b"}.isdisjoint(key for _, key, _ in remote_keys(replicas))
        gate.set()
        await wait_all_tasks_blocked()
        assert {"a", "b"}.isdisjoint(key for _, key, _ in remote_keys(replicas))
        replicas.wake()

    running(story)


def test_a_new_leader_copies_nothing_until_it_is_clean_up_to_where_its_epoch_began() -> None:
    async def story(replicas: Replicas) -> None:
        fill(replicas, ("a", "1"), ("b", "1"))
        replicas.clean(1)
        replicas.put("a", None)
        replicas.put("b", "2")
        replicas.elect(deposed_knows=True)
        log = replicas.log(1)
        await replicas.work(1, Job.COPY)
        assert finished(replicas) == [], "the first segment is clean, but only up to its own end"
        assert log.active_segment.base_offset == log.log_end_offset == log.clean_wanted_to == 4, "it is closed"
        log.flush()
        assert extent_of(log, replicas.now_ms).is_wanted
        replicas.clean(1)
        assert not extent_of(log, replicas.now_ms).is_wanted
        await replicas.work(1, Job.COPY)
        assert remote_keys(replicas) == [(2, "a", True), (3, "b", False)]
        assert {copy.cleaned_to for each in finished(replicas) if (copy := decode_copy(each.custom_metadata))} == {4}

    running(story)


async def removes_tombstones(replicas: Replicas, number: int) -> None:
    """The replica cleans as it likes, until all tombstones that are closed now have had their time."""
    for _ in range(2):
        replicas.clean(number)
        await trio.sleep(TOMBSTONES_MS / 1000)
        fill(replicas, ("x", "1"))
    replicas.clean(number)


async def the_other_leads(replicas: Replicas) -> None:
    """It copies what it has, and everything leaves its disk."""
    replicas.learn()
    replicas.elect(deposed_knows=True)
    number = replicas.leader
    fill(replicas, ("y", "1"))
    replicas.log(number).flush()
    replicas.clean(number)
    await replicas.all(number)
    replicas.delete_local(number)


FIRST = (("a", "1"), ("p", "1"), ("q", "1"), ("r", "1"))
"""Two segments; each is left with too much for the cleaner to make one of them."""


async def copies_one_segment(replicas: Replicas) -> None:
    """Then the store is away, until the other replica leads."""
    before = replicas.store.puts
    replicas.store.failing = lambda operation, key: operation == "put" and replicas.store.puts >= before + 5
    await replicas.work(0, Job.COPY)
    replicas.store.failing = lambda operation, key: False


async def tiered_while_the_leader_is_dirty(replicas: Replicas) -> None:
    fill(replicas, *FIRST)
    fill(replicas, ("a", None), ("c", "2"))
    await removes_tombstones(replicas, 1)
    assert "a" not in keys_of(replicas, 1)
    assert "a" in keys_of(replicas, 0)
    replicas.begin_tiering(other_knows=True)
    await copies_one_segment(replicas)
    await the_other_leads(replicas)


async def tiered_while_the_leader_is_clean_up_to_before_a_tombstone(replicas: Replicas) -> None:
    fill(replicas, *FIRST)
    replicas.clean(0)
    fill(replicas, ("a", None), ("c", "2"))
    await removes_tombstones(replicas, 1)
    replicas.begin_tiering(other_knows=True)
    await replicas.work(0, Job.COPY)
    await the_other_leads(replicas)


async def tiered_while_a_replica_knows_nothing_of_it(replicas: Replicas) -> None:
    fill(replicas, *FIRST)
    replicas.begin_tiering(other_knows=False)
    replicas.clean(0)
    await replicas.all(0)
    fill(replicas, ("a", None), ("c", "2"))
    await removes_tombstones(replicas, 1)
    await the_other_leads(replicas)


async def a_pass_between_a_write_and_its_copy(replicas: Replicas) -> None:
    fill(replicas, ("a", "1"), ("b", "1"))
    replicas.clean(0)
    await replicas.all(0)
    fill(replicas, ("b", "2"))
    replicas.clean(0)
    await replicas.work(0, Job.COPY)
    replicas.put("a", None)
    await replicas.work(0, Job.RECLEAN)
    for value in "1234":
        fill(replicas, ("d", value))
        replicas.clean(0)
        await replicas.all(0)
        replicas.delete_local(0)
        await trio.sleep(TOMBSTONES_MS / 1000)


LATER = [
    tiered_while_the_leader_is_dirty,
    tiered_while_the_leader_is_clean_up_to_before_a_tombstone,
    tiered_while_a_replica_knows_nothing_of_it,
]


@pytest.mark.parametrize("story", LATER)
def test_no_deleted_key_is_back_when_a_compacted_topic_becomes_tiered(story: Story) -> None:
    running(story, tiered_later=True)


def test_no_deleted_key_is_back_after_a_pass_that_did_not_know_its_tombstone() -> None:
    running(a_pass_between_a_write_and_its_copy)


def keys_of(replicas: Replicas, number: int) -> list[str]:
    return [(record.key or b"").decode() for record in replicas.view(number)[0]]


# -- whatever happens

WEIGHTS = {
    "fill": 8,
    "all": 3,
    "clean": 1,
    "copy": 3,
    "reclean": 3,
    "work": 2,
    "delete": 1,
    "elect": 1,
    "hold": 2,
    "release": 1,
    "wait": 5,
    "fail": 1,
}
STEPS_OF_A_RUN = 70
STEPS_BEFORE = 25
SEEDS = 40


class Anything:
    """Carries out steps; each of them may come at any time."""

    def __init__(self, replicas: Replicas, chance: Random) -> None:
        self.replicas = replicas
        self.chance = chance
        self.held: int | None = None
        """A replica with a job under way that waits for its record."""
        self.values = 0

    async def step(self) -> str:
        weights = WEIGHTS if self.replicas.has_old_configs is None else {**WEIGHTS, "learn": 1}
        [name] = self.chance.choices(list(weights), list(weights.values()))
        await getattr(self, name)()
        return name

    async def fill(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            self.values += 1
            deletes = self.chance.random() < 0.4
            self.replicas.put(self.chance.choice("abcd"), None if deletes else f"{self.values}{BIG}")
        for number in (0, 1):
            self.replicas.close(number)

    async def clean(self) -> None:
        self.replicas.clean(self.chance.randrange(2))

    async def all(self) -> None:
        leader = self.replicas.leader
        if leader != self.held:
            self.replicas.clean(leader)
            await self.replicas.all(leader)
            self.replicas.delete_local(leader)

    async def work(self) -> None:
        number = self.chance.randrange(2)
        if number != self.held:
            await self.replicas.work(number, self.chance.choice(list(Job)))

    async def copy(self) -> None:
        if self.replicas.leader != self.held:
            self.replicas.clean(self.replicas.leader)
            await self.replicas.work(self.replicas.leader, Job.COPY)

    async def reclean(self) -> None:
        if self.replicas.leader != self.held:
            await self.replicas.work(self.replicas.leader, Job.RECLEAN)

    async def learn(self) -> None:
        self.replicas.learn()

    async def before_it_is_tiered(self) -> None:
        """The replicas clean as they like."""
        for _ in range(self.chance.randrange(STEPS_BEFORE)):
            [name] = self.chance.choices(["fill", "clean", "wait"], [4, 4, 2])
            await getattr(self, name)()
        self.replicas.begin_tiering(other_knows=self.chance.random() < 0.5)

    async def delete(self) -> None:
        self.replicas.delete_local(self.chance.randrange(2))

    async def elect(self) -> None:
        await self.release()
        self.replicas.elect(deposed_knows=self.chance.random() < 0.5)

    async def hold(self) -> None:
        """The leader is deposed while a record of its is on its way."""
        await self.release()
        replicas = self.replicas
        leader = self.held = replicas.leader
        own = replicas.own[leader]
        own.gate, own.held = trio.Event(), self.chance.choice((STARTED, FINISHED))
        replicas.nursery.start_soon(replicas.work, leader, self.chance.choice((Job.COPY, Job.RECLEAN)))
        await wait_all_tasks_blocked()
        replicas.elect(deposed_knows=False)

    async def release(self) -> None:
        if self.held is not None:
            own, self.held = self.replicas.own[self.held], None
            assert own.gate is not None
            own.gate.set()
            await wait_all_tasks_blocked()
            own.gate = None
            self.replicas.wake()

    async def wait(self) -> None:
        await trio.sleep(TOMBSTONES_MS / 1000)

    async def fail(self) -> None:
        """The store refuses a put after some others, once."""
        store = self.replicas.store
        left = [self.chance.randint(1, 15)]

        def fails(operation: str, key: str) -> bool:
            left[0] -= operation == "put"
            return operation == "put" and left[0] == 0

        store.failing = fails


@pytest.mark.parametrize("tiered_later", [False, True], ids=["new", "tiered later"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_readers_of_the_whole_log_get_the_last_value_of_each_key(
    seed: int, tiered_later: bool
) -> None:
    async def story(replicas: Replicas) -> None:
        anything = Anything(replicas, Random(seed))
        if tiered_later:
            await anything.before_it_is_tiered()
        for number in range(STEPS_OF_A_RUN):
            name = await anything.step()
            replicas.check()
            assert not replicas.broken, f"step {number}, {name}: {replicas.broken}"
        await anything.release()
        replicas.wake()
        replicas.learn()
        replicas.store.failing = lambda operation, key: False
        for _ in range(3):
            await anything.fill()
            await anything.all()
            await anything.wait()
        assert len(finished(replicas)) > 0

    running(story, tiered_later=tiered_later)


# -- mistakes that these runs must find


def let_tombstones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner removes tombstones from the disk although older records of their keys are remote."""
    original = Compaction.__init__

    def init(self: Compaction, *arguments: Any, keeps_deletions: bool = False, **options: Any) -> None:
        original(self, *arguments, **options)

    monkeypatch.setattr(Compaction, "__init__", init)


def map_the_last_segment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass does not read all keys that were copied since the last one."""
    original = RemotePass._map_keys

    async def map_keys(self: RemotePass) -> None:
        dirty = self._row.dirty_parts
        if len(dirty) > 1:
            self._row = replace(self._row, cleaned_to=dirty[-2].end_offset)
        await original(self)

    monkeypatch.setattr(RemotePass, "_map_keys", map_keys)


def take_all_for_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass says that what it has written is clean up to the end of the log."""
    monkeypatch.setattr(RemotePass, "_cleaned_to", lambda self, group: self._tended.partition.log.log_end_offset)


def copy_what_is_dirty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is closed and stable is copied."""
    monkeypatch.setattr(Copier, "_copyable_to", lambda self, log: log.last_stable_offset)


def copy_what_was_clean_for_an_earlier_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader copies what is clean up to its own end."""
    monkeypatch.setattr(Copier, "_copyable_to", lambda self, log: min(log.last_stable_offset, log.cleaned_to or 0))


def keep_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that does not know yet that the topic is tiered goes on fetching, and removes later tombstones."""
    original = Replicas.replicate

    def replicate(self: Replicas) -> None:
        behind, self.has_old_configs = self.has_old_configs, None
        original(self)
        self.has_old_configs = behind

    monkeypatch.setattr(Replicas, "replicate", replicate)


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize("plant", [let_tombstones_go, map_the_last_segment_alone])
def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(is_broken(seed) for seed in range(SEEDS))


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize(
    ("plant", "story"),
    [
        (copy_what_is_dirty, tiered_while_the_leader_is_dirty),
        (copy_what_was_clean_for_an_earlier_leader, tiered_while_the_leader_is_clean_up_to_before_a_tombstone),
        (keep_the_epoch, tiered_while_a_replica_knows_nothing_of_it),
        (take_all_for_clean, a_pass_between_a_write_and_its_copy),
    ],
)
def test_each_guard_has_a_story_that_goes_wrong_without_it(
    plant: Callable[[pytest.MonkeyPatch], None], story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    broken: list[str] = []

    async def played(replicas: Replicas) -> None:
        await story(replicas)
        broken.append(replicas.broken)
        replicas.broken = ""

    running(played, tiered_later=story in LATER)
    assert "although it was deleted" in broken[0]


def is_broken(seed: int) -> bool:
    """True if readers got something wrong; another failure is one of the test."""
    found: list[str] = []
    try:
        test_whatever_happens_readers_of_the_whole_log_get_the_last_value_of_each_key(seed, False)
    except* AssertionError as errors:
        found += map(str, errors.exceptions)
    return bool(found)
