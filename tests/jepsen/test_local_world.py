"""The world `local`, with real processes: what can be broken there, what is seen of it, and that nothing is left."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest
import trio

from barnabas import Admin, NewTopic, Producer
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.guardian import Guardian
from barnabas.cluster.layout import Layout
from barnabas.cluster.processes import ProcessId
from barnabas.fault_proxy.rules import MessageRule
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES
from nemeses.changes import Operator, add_again
from nemeses.nemesis import Fault, Nemesis
from operations import Place
from worlds.breakable import Disks
from worlds.cluster import Damage, LinkFault
from worlds.local import LocalWorld, run_in
from worlds.processes import PORT_TRIES, on_free_ports
from worlds.world_options import WorldOptions

PLACE = Place("t", 0)
Tale = Callable[[LocalWorld, Producer], Awaitable[None]]


def play(directory: Path, tale: Tale, *faults: str) -> None:
    """On a cluster of its own with a topic and a producer; afterwards no process and no mount is left."""

    async def main(cluster: LocalWorld) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.create_topics(NewTopic(PLACE.topic, num_partitions=1, replication_factor=3))
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=3_000) as producer:
            await tale(cluster, producer)

    run_in(WorldOptions("local", 1, directory, faults=faults), main)
    left = [ProcessId.read(path) for path in (directory / "nodes" / "run").glob("*.pid")]
    assert not [process for process in left if process is not None and process.alive]
    assert str(directory) not in Path("/proc/mounts").read_text()


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float = 40.0) -> None:
    with trio.fail_after(seconds):
        while not await is_so():
            await trio.sleep(0.05)


async def send(producer: Producer) -> int:
    return (await producer.send(PLACE.topic, b"value", partition=0)).offset


async def leader(cluster: LocalWorld) -> str:
    name = await cluster.leader_of(PLACE)
    assert name is not None
    return name


@pytest.mark.feature("FI-04")
def test_a_leader_is_seen_held_up_and_killed(tmp_path: Path) -> None:
    async def tale(cluster: LocalWorld, producer: Producer) -> None:
        assert await send(producer) == 0
        assert "power" in cluster.cannot
        await until(lambda: all_have(cluster, 1))
        assert {view.node for view in await cluster.views()} == set(cluster.brokers)
        members = [each for each in await cluster.memberships() if each.place == PLACE]
        assert {each.node for each in members} == set(cluster.brokers)
        assert all(set(each.isr) == set(cluster.brokers) == set(each.replicas) for each in members)
        led_by = await leader(cluster)

        held = await cluster.add_rule(MessageRule(int(ApiKey.PRODUCE), "request", "hold", source="client"))
        with trio.move_on_after(0.3) as sending:
            await send(producer)
        assert sending.cancelled_caught and await all_have(cluster, 1)
        assert await cluster.clear_rule(held) == 1
        produced = {way: count for way, count in (await cluster.asked()).items() if way.api_key == ApiKey.PRODUCE}
        assert produced == {(ApiKey.PRODUCE, "client", led_by): 2}
        await until(lambda: all_have(cluster, 2))

        await cluster.kill(led_by)
        began = time.monotonic()
        await until(lambda: leads(cluster, other_than=led_by))
        # Long before its session would have ended: the proxy refuses for it.
        assert time.monotonic() - began < 6
        assert (await cluster.states())[led_by] == "dead"
        with pytest.raises(ClusterError, match=f"{led_by} does not run"):
            await cluster.kill(led_by)

    play(tmp_path, tale)


async def all_have(cluster: LocalWorld, end: int) -> bool:
    views = await cluster.views()
    return len(views) == 3 and all(view.high_watermark == view.log_end_offset == end for view in views)


async def leads(cluster: LocalWorld, other_than: str) -> bool:
    return await cluster.leader_of(PLACE) not in (None, other_than)


@pytest.mark.slow
@pytest.mark.feature("FI-03", "FI-04")
def test_links_of_real_processes(tmp_path: Path) -> None:
    async def tale(cluster: LocalWorld, producer: Producer) -> None:
        await send(producer)
        led_by = await leader(cluster)
        others = [name for name in (*cluster.brokers, *cluster.controllers) if name != led_by]
        for other in others:
            await cluster.cut(led_by, other)
            await cluster.cut(other, led_by)
        # The controller is not notified, so the session has to end first.
        await until(lambda: leads(cluster, other_than=led_by))
        views = {view.node: view for view in await cluster.views()}
        assert views[led_by].leader_epoch < max(view.leader_epoch for view in views.values())
        for other in others:
            await cluster.mend(led_by, other)
            await cluster.mend(other, led_by)
        await until(lambda: all_in_sync(cluster))
        for broker in cluster.brokers:
            await cluster.set_link("client", broker, LinkFault(latency_ms=300))
        began = time.monotonic()
        await send(producer)
        assert time.monotonic() - began >= 0.3
        await cluster.heal()
        with pytest.raises(ClusterError, match="there is no node broker-9"):
            await cluster.cut("broker-1", "broker-9")

    play(tmp_path, tale)


async def all_in_sync(cluster: LocalWorld) -> bool:
    members = [each for each in await cluster.memberships() if each.place == PLACE]
    return len(members) == 3 and all(len(each.isr) == 3 for each in members)


async def is_dead(cluster: LocalWorld, name: str) -> bool:
    return (await cluster.states())[name] == "dead"


async def is_paused(cluster: LocalWorld, name: str) -> bool:
    return (await cluster.states())[name] == "paused"


@pytest.mark.slow
@pytest.mark.feature("FI-03", "FI-04")
def test_insides_of_real_nodes(tmp_path: Path) -> None:
    async def tale(cluster: LocalWorld, producer: Producer) -> None:
        await send(producer)
        await until(lambda: all_have(cluster, 1))
        led_by = await leader(cluster)
        follower = next(name for name in cluster.brokers if name != led_by)

        async def back(*names: str) -> None:
            await cluster.start(*names)
            await until(lambda: all_in_sync(cluster))

        log = tmp_path / "nodes" / follower / "data" / "t-0" / "00000000000000000000.log"
        with pytest.raises(ClusterError, match="runs: stop or kill it first"):
            await cluster.wipe(follower)
        await cluster.kill(follower)
        size = log.stat().st_size
        assert await cluster.damage(follower, Damage("truncate", "t-0/*.log", bytes_=5)) == [
            f"t-0/{log.name}: {size} bytes, now {size - 5}"
        ]
        [flipped] = await cluster.damage(follower, Damage("flip", "t-0/*.log", probability=1.0))
        assert f"a bit of each of {size - 5} bytes, the first at 0" in flipped
        await back(follower)
        assert log.stat().st_size == size > BATCH_HEADER_BYTES
        await cluster.kill(follower)
        await cluster.wipe(follower)
        assert not log.exists()
        await back(follower)
        assert log.stat().st_size == size

        await cluster.kill_at(follower, "replica.fetched.written")
        await send(producer)
        await until(lambda: is_dead(cluster, follower))
        assert await cluster.disarm(follower) and not await cluster.disarm(follower)
        await back(follower)

        await cluster.pause_at(follower, "replica.fetched.written")
        sent = await send(producer)
        await until(lambda: is_paused(cluster, follower))
        assert await cluster.disarm(follower)
        await cluster.resume(follower)
        await until(lambda: all_have(cluster, sent + 1))

        await cluster.fill_disk(follower, full=True)
        await send(producer)
        await until(lambda: logged(cluster, follower, "No space left"))
        await cluster.fill_disk(follower, full=False)
        # It waits for room, and goes on.
        await until(lambda: all_in_sync(cluster))

        await cluster.set_clock(led_by, 3_600_000)
        sent = await producer.send(PLACE.topic, b"value", partition=0, timestamp_ms=cluster.wall_ms() + 3_500_000)
        assert sent.offset == 4
        await cluster.set_clock(led_by, 0)
        await cluster.stop(follower)
        await cluster.unregister(follower)
        await back(follower)

    play(tmp_path, tale)


async def logged(cluster: LocalWorld, name: str, text: str) -> bool:
    return text in cluster.log_files()[name].read_text()


@pytest.mark.slow
@pytest.mark.feature("FI-03")
def test_a_power_cut_forgets_what_was_not_synced(tmp_path: Path) -> None:
    async def tale(cluster: LocalWorld, producer: Producer) -> None:
        if "power" in cluster.cannot:
            pytest.skip(cluster.cannot["power"])
        await send(producer)
        await until(lambda: all_have(cluster, 1))
        name = await leader(cluster)
        log = tmp_path / "nodes" / name / "data" / "t-0" / "00000000000000000000.log"
        assert log.stat().st_size > 0
        await cluster.power_cut(name)
        assert await is_dead(cluster, name)
        # Looked at before it comes up: the records were in the page cache only.
        assert not await cluster.damage(name, Damage("truncate", "nothing"))
        assert not log.exists() or log.stat().st_size == 0
        await cluster.start(name)
        await until(lambda: all_in_sync(cluster))
        assert log.stat().st_size > 0
        await cluster.kill_at(name, "replica.fetched.written", power_cut=True)
        await send(producer)
        await until(lambda: is_dead(cluster, name))
        assert await cluster.disarm(name)
        await cluster.start(name)
        await until(lambda: all_have(cluster, 2))

    play(tmp_path, tale, "power")


@pytest.mark.feature("FI-03")
def test_where_not_every_node_can_have_a_file_system_none_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Volumes:
        """The third cannot be mounted."""

        mounted: ClassVar[list[str]] = []

        def __init__(self, _image: Path, directory: Path) -> None:
            self.directory = directory
            self.image = directory

        def make(self) -> None:
            if len(self.mounted) == 2:
                raise ClusterError("mount: no free loop device")
            self.mounted.append(self.directory.name)

        def unmount(self) -> None:
            self.mounted.remove(self.directory.name)

    monkeypatch.setattr("worlds.breakable.Volume", Volumes)
    monkeypatch.setattr("worlds.breakable.reason_against", lambda _directory: None)
    guardian = Guardian()
    disks = Disks(Layout.open(tmp_path), guardian, with_power=True)
    guardian.close()
    assert not Volumes.mounted and not disks.volumes
    assert disks.why_no_power == "not every node can have a file system: mount: no free loop device"


@pytest.mark.feature("FI-04")
def test_a_guardian_undoes_the_last_first_also_when_something_fails(tmp_path: Path) -> None:
    guardian = Guardian()
    note = tmp_path / "note"
    for word in ("first", "second"):
        guardian.at_the_end(sys.executable, "-c", f"open({str(note)!r}, 'a').write('{word} ')")
    guardian.at_the_end("/nowhere/at/all")
    guardian.at_the_end("false")
    sleeper = subprocess.Popen(["sleep", "100"], start_new_session=True)
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    process.write(tmp_path / "run" / "node.pid")
    guardian.end_nodes_of(tmp_path / "run")
    assert not note.exists()
    guardian.close()
    assert note.read_text() == "second first "
    assert sleeper.wait() == -9


@pytest.mark.feature("FI-04")
def test_a_port_that_was_taken_meanwhile_is_another_one_next_time() -> None:
    taken = ClusterError("port 20000, which broker-1 needs, is taken by another process; --base-port makes another")
    attempts: list[int] = []

    async def second_time(have_ports: Callable[[], None]) -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise taken
        have_ports()
        return "ready"

    assert on_free_ports(second_time) == "ready" and len(attempts) == 2

    async def never(_have_ports: Callable[[], None]) -> None:
        attempts.append(1)
        raise taken

    attempts.clear()
    with pytest.raises(ClusterError, match="port 20000"):
        on_free_ports(never)
    assert len(attempts) == PORT_TRIES

    async def in_the_middle(have_ports: Callable[[], None]) -> None:
        attempts.append(1)
        have_ports()
        raise taken

    attempts.clear()
    with pytest.raises(ClusterError, match="port 20000"):
        on_free_ports(in_the_middle)
    assert len(attempts) == 1, "what was recorded already must not begin again"


@pytest.mark.feature("FI-04", "KR-14")
def test_voters_of_real_controllers_are_removed_added_and_lose_a_disk_under_load(tmp_path: Path) -> None:
    async def tale(cluster: LocalWorld, producer: Producer) -> None:
        assert "voters" not in cluster.cannot
        acknowledged = 0
        async with trio.open_nursery() as nursery:

            async def load() -> None:
                nonlocal acknowledged
                while True:
                    await send(producer)
                    acknowledged += 1

            nursery.start_soon(load)
            first = await cluster.active_controller()
            assert first is not None
            others = [name for name in cluster.controllers if name not in (first, "controller-104")]
            nemesis = Nemesis(cluster, ["voters"], random.Random(1), 1.0)
            operator = Operator(Fault(nemesis, 1, "voters", random.Random(1), 1.0))
            await until(lambda: seen(operator, voters=3, observers=1))
            quorum = await operator.quorum()
            assert quorum is not None
            assert await operator.add(quorum.observers[0])
            await until(lambda: seen(operator, voters=4, observers=0))
            leading = next(key for key in quorum.voters if f"controller-{key.id}" == first)
            assert await operator.remove(leading), "the leader removes itself, and hands over"
            await until(lambda: seen(operator, voters=3, observers=1))

            await until(cluster.may_lose_a_voter)
            victim = others[0]
            old = next(key for key in quorum.voters if f"controller-{key.id}" == victim)
            await cluster.kill(victim)
            await cluster.wipe(victim)
            await cluster.start(victim)
            await until(lambda: lost(cluster, [old]))
            assert not await cluster.may_lose_a_voter(), "a quorum of three survives no more"
            await until(lambda: operator.remove(old))
            await until(lambda: add_again(operator, victim, old))
            await until(lambda: lost(cluster, []))
            nursery.cancel_scope.cancel()
        await until(lambda: all_have_at_least(cluster, acknowledged))
        assert acknowledged

    play(tmp_path, tale, "voters")


async def seen(operator: Operator, *, voters: int, observers: int) -> bool:
    quorum = await operator.quorum()
    return quorum is not None and (len(quorum.voters), len(quorum.observers)) == (voters, observers)


async def lost(cluster: LocalWorld, keys: list[ReplicaKey]) -> bool:
    return list(await cluster.lost_voters()) == keys


async def all_have_at_least(cluster: LocalWorld, end: int) -> bool:
    views = await cluster.views()
    return len(views) == 3 and all(view.high_watermark >= end for view in views)
