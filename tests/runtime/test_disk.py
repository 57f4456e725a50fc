"""The promises of every disk, real and simulated."""

from __future__ import annotations

import errno

import pytest


def test_files_keep_written_bytes(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        file = world.disk.open(f"{directory}/log", create=True)
        file.pwrite(b"hello world", 0)
        file.pwrite(bytearray(b"W"), 6)
        file.pwrite(memoryview(b"!"), 20)
        assert file.size() == 21
        assert file.pread(100, 0) == b"hello World" + bytes(9) + b"!"
        assert file.pread(3, 6) == b"Wor"
        assert file.pread(10, 21) == b""
        await world.run_blocking(file.sync)
        file.close()
        assert world.disk.read_bytes(f"{directory}/log")[:5] == b"hello"
        assert world.disk.size(f"{directory}/log") == 21
        age_ms = world.wall_clock.now_ms() - world.disk.modified_ms(f"{directory}/log")
        assert 0 <= age_ms + 50 < 60_000

    play_on_disk(story)


def test_truncate_cuts_and_extends(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        file = world.disk.open(f"{directory}/log", create=True)
        file.pwrite(b"0123456789", 0)
        file.truncate(4)
        assert file.pread(10, 0) == b"0123"
        file.truncate(6)
        assert file.pread(10, 0) == b"0123\0\0"

    play_on_disk(story)


def test_a_closed_file_is_a_bad_descriptor(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        file = world.disk.open(f"{directory}/log", create=True)
        file.close()
        file.close()
        for use in (file.size, file.sync, lambda: file.pwrite(b"x", 0), lambda: file.pread(1, 0)):
            with pytest.raises(OSError, match="closed") as failure:
                use()
            assert failure.value.errno == errno.EBADF

    play_on_disk(story)


def test_names_change_at_once(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        disk = world.disk
        disk.make_directories(f"{directory}/a/b")
        disk.make_directories(f"{directory}/a/b")
        for name in ("two", "one", "ten"):
            disk.open(f"{directory}/a/{name}", create=True).pwrite(name.encode(), 0)
        assert disk.list(f"{directory}/a") == ["b", "one", "ten", "two"]
        disk.rename(f"{directory}/a/one", f"{directory}/a/two")
        assert disk.list(f"{directory}/a") == ["b", "ten", "two"]
        assert disk.read_bytes(f"{directory}/a/two") == b"one"
        disk.remove(f"{directory}/a/ten")
        assert not disk.exists(f"{directory}/a/ten")
        assert disk.is_directory(f"{directory}/a/b")
        assert not disk.is_directory(f"{directory}/a/two")
        disk.sync_directory(f"{directory}/a")
        disk.rename(f"{directory}/a", f"{directory}/z")
        assert disk.read_bytes(f"{directory}/z/two") == b"one"
        disk.remove_tree(f"{directory}/z")
        assert disk.list(directory) == []

    play_on_disk(story)


def test_a_removed_file_stays_readable_while_open(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        file = world.disk.open(f"{directory}/log", create=True)
        file.pwrite(b"still here", 0)
        world.disk.remove(f"{directory}/log")
        file.pwrite(b"!", 10)
        assert file.pread(20, 0) == b"still here!"

    play_on_disk(story)


def test_errors_are_those_of_the_operating_system(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        disk = world.disk
        disk.open(f"{directory}/file", create=True)
        for use in (
            lambda: disk.open(f"{directory}/none"),
            lambda: disk.open(f"{directory}/none/file", create=True),
            lambda: disk.size(f"{directory}/none"),
            lambda: disk.list(f"{directory}/none"),
            lambda: disk.rename(f"{directory}/none", f"{directory}/other"),
            lambda: disk.remove(f"{directory}/none"),
            lambda: disk.remove_tree(f"{directory}/none"),
            lambda: disk.sync_directory(f"{directory}/none"),
        ):
            with pytest.raises(FileNotFoundError):
                use()
        with pytest.raises(NotADirectoryError):
            disk.list(f"{directory}/file")
        with pytest.raises(IsADirectoryError):
            disk.open(directory)

    play_on_disk(story)


def test_a_lock_excludes_until_released(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        release = world.disk.lock(f"{directory}/.lock")
        with pytest.raises(BlockingIOError):
            world.disk.lock(f"{directory}/.lock")
        release()
        world.disk.lock(f"{directory}/.lock")()
        assert world.disk.exists(f"{directory}/.lock")

    play_on_disk(story)


def test_the_space_of_a_volume(play_on_disk) -> None:
    async def story(world, directory: str) -> None:
        total, usable = world.disk.space_bytes(directory)
        assert 0 < usable <= total

    play_on_disk(story)
