"""Instances: processes that write too much, die, ignore signals, or never start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from barnabas.check.errors import CannotRun
from barnabas.check.instance import KEPT_BYTES, Instance
from barnabas.check.placeholders import filled


def instance(tmp_path: Path, program: str) -> Instance:
    for name in ("logs", "run"):
        (tmp_path / name).mkdir(exist_ok=True)
    return Instance(0, [sys.executable, "-c", program], {"X": "1"}, tmp_path)


def note(_name: str, _text: str) -> None:
    return


async def until(holds: object) -> None:
    assert callable(holds)
    with trio.fail_after(30):
        while not holds():
            await trio.sleep(0.02)


async def test_an_instance_that_dies_is_started_again_and_its_last_line_is_known(tmp_path: Path) -> None:
    mine = instance(tmp_path, "import sys; print('no', file=sys.stderr); sys.exit(3)")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.run, note)
        mine.want()
        await until(lambda: mine.starts >= 2)
        nursery.cancel_scope.cancel()
    assert mine.own_ends[0] == "with exit code 3: no"


async def test_a_killed_instance_stays_down_until_it_is_wanted(tmp_path: Path) -> None:
    mine = instance(tmp_path, "import time; time.sleep(60)")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.run, note)
        mine.want()
        await until(lambda: mine.is_running)
        await mine.kill()
        assert not mine.is_running
        mine.want()
        await until(lambda: mine.starts == 2 and mine.is_running)
        nursery.cancel_scope.cancel()
    assert mine.own_ends == []
    assert not mine.is_running


async def test_an_instance_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    mine = instance(
        tmp_path,
        f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w').close(); time.sleep(60)",
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.run, note)
        mine.want()
        await until(ready.exists)
        assert not await mine.terminate(0.2)
        nursery.cancel_scope.cancel()
    assert (mine.ignored_sigterm, mine.own_ends) == (1, [])


async def test_output_without_end_takes_bounded_space(tmp_path: Path) -> None:
    mine = instance(tmp_path, "import sys\nwhile True: sys.stdout.write('x' * 65536)")
    log, older = tmp_path / "logs" / "instance-0.log", tmp_path / "logs" / "instance-0.log.1"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.run, note)
        mine.want()
        await until(older.exists)
        await trio.sleep(0.2)
        await mine.kill()
        nursery.cancel_scope.cancel()
    assert log.stat().st_size <= KEPT_BYTES and older.stat().st_size <= KEPT_BYTES
    assert {it.name for it in (tmp_path / "logs").iterdir()} == {log.name, older.name}


async def test_the_children_of_an_instance_end_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    mine = instance(
        tmp_path,
        "import subprocess, time\n"
        f"child = subprocess.Popen(['sleep', '60']); open({str(pid)!r}, 'w').write(f'{{child.pid}} ')\n"
        "time.sleep(60)",
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.run, note)
        mine.want()
        await until(lambda: pid.exists() and pid.read_text().endswith(" "))
        await mine.kill()
        await until(lambda: not running(int(pid.read_text())))
        nursery.cancel_scope.cancel()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_a_program_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    for name in ("logs", "run"):
        (tmp_path / name).mkdir()
    mine = Instance(0, ["/nowhere/program"], {}, tmp_path)
    mine.want()
    with pytest.raises(CannotRun, match="/nowhere/program cannot be started: No such file or directory"):
        await mine.run(note)


def test_placeholders_are_filled_and_other_braces_stay() -> None:
    environment = {
        "BOOTSTRAP_SERVERS": "h:1",
        "INPUT_TOPIC": "in",
        "OUTPUT_TOPIC": "out",
        "GROUP_ID": "g",
        "INSTANCE": "2",
        "OUTPUT_URL": "http://x",
    }
    words = ["app", "--b={bootstrap}", "{input}>{output}", "{group}-{instance}", "{output_url}", '{"json": {input}}']
    assert filled(words, environment) == ["app", "--b=h:1", "in>out", "g-2", "http://x", '{"json": in}']
