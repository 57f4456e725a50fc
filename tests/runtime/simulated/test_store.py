"""A simulated disk: durable and lost bytes, and its faults."""

from __future__ import annotations

import errno
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.runtime.simulated import NodeKilled, Universe, make_world, run_simulation
from tests.examples import examples

pytestmark = pytest.mark.feature("FI-05")

OLD, NEW = b"o" * 16384, b"n" * 16384


def simulate(story, seeds: int = 1) -> list:
    return [run_simulation(seed, story) for seed in range(seeds)]


def prepared(universe: Universe):
    """The disk of a new node with a durable /data."""
    universe.disk("node").prepare_directories("/data")
    return make_world("node", universe).disk


def after_power_cut(universe: Universe):
    universe.power_cut("node")
    return make_world("node", universe).disk


def test_synced_bytes_survive_a_power_cut() -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        file.sync()
        disk.sync_directory("/data")
        assert after_power_cut(universe).read_bytes("/data/log") == OLD

    simulate(story, seeds=20)


def test_unsynced_bytes_come_back_old_new_or_torn() -> None:
    async def story(universe: Universe) -> list[str]:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        file.sync()
        disk.sync_directory("/data")
        file.pwrite(NEW, 0)
        content = after_power_cut(universe).read_bytes("/data/log")
        assert len(content) == len(OLD)
        fates = []
        for start in range(0, len(content), 4096):
            page = content[start : start + 4096]
            letters = set(page)
            assert letters <= set(b"on")
            fates.append("torn" if len(letters) == 2 else chr(page[0]))
        return fates

    seen = Counter(fate for fates in simulate(story, seeds=60) for fate in fates)
    assert min(seen["o"], seen["n"], seen["torn"]) > 240 / 6


def test_an_unsynced_tail_comes_back_at_any_length() -> None:
    async def story(universe: Universe) -> int:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        file.sync()
        disk.sync_directory("/data")
        file.pwrite(NEW, len(OLD))
        content = after_power_cut(universe).read_bytes("/data/log")
        assert content[: len(OLD)] == OLD
        assert set(content[len(OLD) :]) <= set(b"n\0")
        return len(content)

    sizes = set(simulate(story, seeds=40))
    assert {len(OLD), len(OLD) + len(NEW)} < sizes


def test_an_unsynced_truncation_may_be_undone_as_a_whole() -> None:
    async def story(universe: Universe) -> str:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        file.sync()
        disk.sync_directory("/data")
        file.truncate(5000)
        file.pwrite(NEW, 5000)
        content = after_power_cut(universe).read_bytes("/data/log")
        if content == OLD:
            return "undone"
        assert content[:4096] == OLD[:4096]
        assert b"o" not in content[5000:]
        return "done"

    assert set(simulate(story, seeds=30)) == {"undone", "done"}


def test_a_kill_keeps_written_bytes() -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        disk.lock("/data/.lock")
        universe.kill("node")
        for use in (
            lambda: file.pwrite(NEW, 0),
            lambda: file.pread(1, 0),
            file.sync,
            file.size,
            lambda: disk.open("/data/log"),
            lambda: disk.exists("/data"),
            lambda: disk.rename("/data/log", "/data/other"),
        ):
            with pytest.raises(OSError, match="killed") as failure:
                use()
            assert failure.value.errno == errno.EBADF
        file.close()
        reborn = make_world("node", universe).disk
        assert reborn.read_bytes("/data/log") == OLD
        reborn.lock("/data/.lock")

    simulate(story)


def test_names_are_durable_only_with_their_directory() -> None:
    async def story(universe: Universe) -> tuple[str, ...]:
        disk = prepared(universe)
        for name in ("kept", "target.tmp"):
            file = disk.open(f"/data/{name}", create=True)
            file.pwrite(name.encode(), 0)
            file.sync()
        disk.sync_directory("/data")
        disk.open("/data/created", create=True).sync()
        disk.rename("/data/target.tmp", "/data/target")
        disk.remove("/data/kept")
        return tuple(after_power_cut(universe).list("/data"))

    seen = set(simulate(story, seeds=60))
    names = {name for outcome in seen for name in outcome}
    assert names == {"kept", "created", "target", "target.tmp"}
    assert all(("target" in outcome) != ("target.tmp" in outcome) for outcome in seen)
    assert len(seen) == 8


def test_a_synced_rename_stays() -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        disk.make_directories("/data/topic-0")
        disk.open("/data/topic-0/log", create=True).sync()
        disk.sync_directory("/data/topic-0")
        disk.sync_directory("/data")
        disk.rename("/data/topic-0", "/data/topic-0.deleted")
        disk.sync_directory("/data")
        reborn = after_power_cut(universe)
        assert reborn.list("/data") == ["topic-0.deleted"]
        assert reborn.list("/data/topic-0.deleted") == ["log"]
        reborn.remove_tree("/data/topic-0.deleted")
        reborn.sync_directory("/data")
        assert after_power_cut(universe).list("/data") == []

    simulate(story, seeds=10)


def test_after_a_failed_sync_the_pages_are_clean_but_lost() -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        file.sync()
        disk.sync_directory("/data")
        file.pwrite(NEW, 0)
        universe.disk("node").fail("sync", prefix="/data/log", remaining=1)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()  # succeeds, and that means nothing
        assert file.pread(1, 0) == b"n"
        assert after_power_cut(universe).read_bytes("/data/log") == OLD

    simulate(story, seeds=10)


def test_reads_and_writes_fail_on_request() -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        store = universe.disk("node")
        fault = store.fail("read", "write", prefix="/data/log")
        with pytest.raises(OSError, match="Input/output"):
            file.pread(1, 0)
        with pytest.raises(OSError, match="Input/output"):
            file.pwrite(NEW, 0)
        with pytest.raises(OSError, match="Input/output"):
            disk.rename("/data/other", "/data/log")
        store.faults.remove(fault)
        content = file.pread(len(OLD), 0)
        written = content.count(b"n")
        assert content == NEW[:written] + OLD[written:]

    simulate(story, seeds=5)


def test_a_full_disk_takes_the_bytes_that_fit() -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        store = universe.disk("node")
        store.capacity_bytes = 20_000
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        assert disk.space_bytes("/data") == (20_000, 20_000 - len(OLD))
        with pytest.raises(OSError, match="No space") as failure:
            file.pwrite(NEW, len(OLD))
        assert failure.value.errno == errno.ENOSPC
        assert file.size() == 20_000
        file.pwrite(NEW, 0)
        with pytest.raises(OSError, match="No space"):
            disk.open("/data/other", create=True).pwrite(b"x", 0)
        file.truncate(10_000)
        disk.open("/data/other").pwrite(OLD[:10_000], 0)
        disk.remove("/data/log")
        assert disk.space_bytes("/data")[1] == 10_000

    simulate(story)


def test_a_node_dies_in_the_middle_of_any_change() -> None:
    async def story(universe: Universe) -> int:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        universe.kill_at_change("node", 2)
        file.pwrite(b"first", 0)
        with pytest.raises(NodeKilled):
            file.pwrite(b"second", 5)
        with pytest.raises(OSError, match="killed"):
            file.pwrite(b"third", 11)
        content = make_world("node", universe).disk.read_bytes("/data/log")
        assert b"firstsecond".startswith(content)
        return len(content)

    sizes = set(simulate(story, seeds=40))
    assert {5, 11} <= sizes <= set(range(5, 12))


def test_a_power_cut_may_leave_garbage_where_was_written_and_nowhere_else() -> None:
    async def story(universe: Universe) -> str:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(b"o" * 600, 0)
        file.sync()
        disk.sync_directory("/data")
        for number, letter in enumerate((b"a", b"b", b"c")):
            file.pwrite(letter * 100, 600 + 100 * number)
        universe.disk("node").garbage = True
        universe.power_cut("node")
        content = make_world("node", universe).disk.read_bytes("/data/log")
        assert content[:600] == b"o" * 600
        assert not universe.disk("node").garbage, "once"
        return content[600:].strip(b"\0").decode("latin-1")

    left = set(simulate(story, seeds=60))
    assert any("a" * 200 in each for each in left), "a write that went where another belongs"
    assert any(each and set(each) - set("abc\0") for each in left), "changed bits"


def test_bit_rot_and_a_new_disk() -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        file.pwrite(OLD, 0)
        universe.kill("node")
        universe.disk("node").flip_bits("/data/log", 100, 2)
        disk = make_world("node", universe).disk
        content = disk.read_bytes("/data/log")
        assert [n for n, letter in enumerate(content) if letter != ord("o")] == [100, 101]
        universe.kill("node")
        universe.disk("node").wipe()
        assert make_world("node", universe).disk.list("/") == []

    simulate(story)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(
        st.tuples(st.sampled_from(["write", "sync", "truncate", "cut"]), st.integers(0, 20_000), st.integers(1, 9000)),
        max_size=25,
    ),
)
def test_a_byte_synced_and_not_touched_since_is_never_lost(seed: int, steps: list[tuple[str, int, int]]) -> None:
    async def story(universe: Universe) -> None:
        disk = prepared(universe)
        file = disk.open("/data/log", create=True)
        disk.sync_directory("/data")
        model = bytearray()
        safe = bytearray()  # 1 for each byte that is durable and unchanged since
        for number, (step, offset, count) in enumerate(steps):
            if step == "write":
                data = bytes([number + 1]) * count
                file.pwrite(data, offset)
                model.extend(bytes(max(0, offset - len(model))))
                safe.extend(bytes(max(0, offset - len(safe))))
                model[offset : offset + count] = data
                # A page is written as a whole: its neighbours' bytes are the same in every version of it.
                safe[offset : offset + count] = bytes(count)
            elif step == "truncate":
                file.truncate(min(offset, len(model)))
                del model[offset:], safe[offset:]
            elif step == "sync":
                file.sync()
                safe = bytearray(b"\1" * len(model))
            else:
                disk = after_power_cut(universe)
                content = disk.read_bytes("/data/log")
                for position, is_safe in enumerate(safe):
                    assert not is_safe or content[position] == model[position], position
                model, safe = bytearray(content), bytearray(b"\1" * len(content))
                file = disk.open("/data/log")
            assert file.pread(1 << 20, 0) == model

    run_simulation(seed, story)
