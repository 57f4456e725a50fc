"""Faults inside a node (its clock, disk and life), set through a shared page that the test writes."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from barnabas.cluster.breakable_node import faulty_world
from barnabas.cluster.fault_page import (
    DEATH,
    DISK_FAILS,
    DISK_FULL,
    DISK_WELL,
    FREEZE,
    POWER_CUT,
    FaultPage,
    page_of,
)
from barnabas.cluster.layout import Layout
from barnabas.cluster.proxied_network import ProxiedNetwork
from barnabas.cluster.proxied_node import load, save_ways
from barnabas.fault_proxy.rules import CLIENT
from barnabas.runtime.network import RealNetwork
from barnabas.runtime.world import World


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.open(tmp_path)
    layout.save()
    for node in layout.nodes:
        layout.render_config(node, {})
    return layout


@pytest.fixture
def world(layout: Layout) -> World:
    return faulty_world(layout, layout.node("broker-1"), ProxiedNetwork(RealNetwork(), {}))


@pytest.fixture
def page(layout: Layout) -> FaultPage:
    """The page as opened by the process that injects faults."""
    return page_of(layout, "broker-1")


@pytest.mark.feature("FI-03")
def test_the_wall_clock_follows_the_page(world: World, page: FaultPage) -> None:
    before, steady = world.wall_clock.now_ms(), world.monotonic.now_ms()
    page.clock_offset_ms = -3_600_000
    assert before - 3_600_000 <= world.wall_clock.now_ms() < before - 3_500_000
    page.clock_offset_ms = 0
    assert before <= world.wall_clock.now_ms() < before + 60_000
    assert steady <= world.monotonic.now_ms() < steady + 60_000


@pytest.mark.feature("FI-03")
def test_a_full_disk_takes_nothing_more(world: World, page: FaultPage, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = world.disk.open(path, create=True)
    file.pwrite(b"0123456789", 0)
    page.disk = DISK_FULL
    for refused in (
        lambda: file.pwrite(b"x", 10),
        lambda: world.disk.open(path + "2", create=True),
        lambda: world.disk.make_directories(path + "3"),
    ):
        with pytest.raises(OSError) as failed:
            refused()
        assert failed.value.errno == errno.ENOSPC
    # Overwriting inside the file needs no space; written bytes can be synced and read.
    file.pwrite(b"x", 9)
    file.sync()
    assert file.pread(10, 0) == b"012345678x" and world.disk.space_bytes(str(tmp_path))[1] == 0
    page.disk = DISK_FAILS
    with pytest.raises(OSError) as failed:
        file.sync()
    assert failed.value.errno == errno.EIO
    page.disk = DISK_WELL
    file.pwrite(b"x", 10)
    assert world.disk.space_bytes(str(tmp_path))[1] > 0
    file.close()


@pytest.mark.feature("FI-03")
def test_the_process_ends_at_the_armed_point(world: World, page: FaultPage) -> None:
    page.arm("log.append.written", DEATH)
    pid = os.fork()
    if not pid:
        world.fault_point("log.append")
        world.fault_point("log.append.written")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    # It is armed for one death.
    assert not page.is_armed
    world.fault_point("log.append.written")
    assert page.disarm() and not page.disarm()
    page.arm("log.append.written", POWER_CUT)
    assert not page.disarm()
    world.fault_point("log.append.written")
    with pytest.raises(ValueError, match="is too long"):
        page.arm("x" * 200, DEATH)


@pytest.mark.feature("FI-04")
def test_a_power_cut_is_a_boot_to_the_node(world: World, page: FaultPage) -> None:
    booted = world.disk.boot_id()
    assert world.disk.boot_id() == booted
    page.power_is_cut()
    assert world.disk.boot_id() != booted


@pytest.mark.feature("FI-03")
def test_the_process_freezes_at_the_armed_point_and_goes_on_when_it_is_let(
    world: World, page: FaultPage, tmp_path: Path
) -> None:
    new, path = str(tmp_path / "0001.checkpoint.new"), str(tmp_path / "0001.checkpoint")
    page.arm("disk.renamed.*.checkpoint", FREEZE)
    pid = os.fork()
    if not pid:
        world.disk.open(new, create=True).close()
        world.disk.rename(new, path)
        os._exit(7)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    assert os.path.exists(path), "the file has got its name already"
    assert page.disarm() and not page.is_armed
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.feature("FI-04")
def test_clients_get_the_port_of_the_proxy(layout: Layout) -> None:
    nodes = [node.name for node in layout.nodes]
    pairs = [(a, b) for a in nodes for b in nodes if a != b] + [(CLIENT, node.name) for node in layout.brokers]
    save_ways(layout, {pair: 10_000 + number for number, pair in enumerate(pairs)})
    node = layout.node("broker-1")
    path = layout.config_file(node)
    program = load(path.read_text(), str(path), {})
    [listener] = program.run._settings.advertised_listeners  # type: ignore[attr-defined]
    assert listener.port == 10_000 + pairs.index((CLIENT, "broker-1"))
    [listener] = program.run._settings.listeners  # type: ignore[attr-defined]
    assert listener.port == node.port
    network = program.run._make_world().network  # type: ignore[attr-defined]
    # It is known to others by two ports, and so are they to it.
    other = layout.node("broker-2")
    way = 10_000 + pairs.index(("broker-1", "broker-2"))
    assert network._ways[other.port] == network._ways[10_000 + pairs.index((CLIENT, "broker-2"))] == way
    assert network._own == {10_000 + pairs.index((CLIENT, "broker-1")): node.port}
