"""Three metadata replicas in one simulated world: electing, appending, losing their leader, going on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from barnabas.kraft.metadata_replica import NotLeader
from barnabas.kraft.replica_config import ReplicaConfig
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.simulated import NodeKilled, Universe, run_simulation
from barnabas.runtime.simulated.store import DiskFault
from barnabas.storage.names import SYNC_FAILED_FILE
from tests.kraft.raft.replica_cluster import ReplicaCluster, committed, setting, small_snapshots

Story = Callable[[ReplicaCluster], Awaitable[None]]


def play(
    seed: int,
    story: Story,
    *,
    voters: int = 3,
    config: Callable[[ReplicaConfig], ReplicaConfig] = lambda config: config,
) -> Universe:
    """Start the voters, run the story, stop everything."""
    universes: list[Universe] = []

    async def main(universe: Universe) -> None:
        universes.append(universe)
        async with trio.open_nursery() as nursery:
            cluster = ReplicaCluster(universe, nursery, voters, config)
            for node_id in cluster.voters:
                await cluster.start(node_id)
            await story(cluster)
            nursery.cancel_scope.cancel()

    run_simulation(seed, main)
    return universes[0]


@pytest.mark.feature("KR-01", "KR-03")
@pytest.mark.parametrize("seed", range(5))
def test_a_fresh_quorum_elects_within_a_fraction_of_a_second(seed: int) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        began = trio.current_time()
        await cluster.wait_for_leader()
        assert trio.current_time() - began < 0.2
        assert await cluster.write("a", "1") < 0.05
        await cluster.wait_until_all_have("a", "1")

    play(seed, story)


@pytest.mark.feature("KR-03", "KR-16", "KR-09")
@pytest.mark.parametrize("seed", range(10))
def test_a_killed_leader_is_replaced_without_waiting_for_timeouts(seed: int) -> None:
    """SIGKILL of the active controller: the others dial it, are refused, and elect at once."""

    async def story(cluster: ReplicaCluster) -> None:
        old = await cluster.wait_for_leader()
        await cluster.write("a", "1")
        await cluster.wait_until_all_have("a", "1")
        cluster.kill(old.core.local_id)
        began = trio.current_time()
        await cluster.wait_for_leader()
        assert trio.current_time() - began < 0.2
        await cluster.write("b", "2")
        await cluster.start(old.core.local_id)
        await cluster.wait_until_all_have("b", "2")

    play(seed, story)


@pytest.mark.feature("KR-16", "KR-07")
def test_a_new_leader_is_reported_only_after_all_earlier_records_were_applied() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        old = await cluster.wait_for_leader()
        for number in range(50):
            await cluster.write("counter", str(number))
        applied_before: list[str | None] = []
        for node_id, listener in cluster.listeners.items():
            handle = listener.handle_leader_change

            def handle_and_check(
                leader_id: int | None,
                epoch: int,
                node_id: int = node_id,
                handle: Callable[[int | None, int], None] = handle,
            ) -> None:
                if leader_id == node_id:
                    applied_before.append(cluster.listeners[node_id].values.get("counter"))
                handle(leader_id, epoch)

            listener.handle_leader_change = handle_and_check  # type: ignore[method-assign]
        cluster.kill(old.core.local_id)
        await cluster.wait_for_leader()
        assert applied_before == ["49"]

    play(3, story)


@pytest.mark.feature("KR-09")
@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_resigns_hands_over_at_once(seed: int) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        old = await cluster.wait_for_leader()
        await cluster.write("a", "1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(old.resign, 1000)
            began = trio.current_time()
            await cluster.wait_for_leader(other_than=old.core.local_id)
            assert trio.current_time() - began < 0.2
        with pytest.raises(NotLeader):
            old.append(old.core.epoch, [setting("a", "2")])
        await cluster.write("a", "3")
        await cluster.wait_until_all_have("a", "3")

    play(seed, story)


@pytest.mark.feature("KR-09", "KR-16")
def test_a_leader_cut_off_gives_up_and_its_unconfirmed_records_vanish() -> None:
    """Check-quorum: 1.5 fetch timeouts without a majority. The appended record is truncated after the
    heal."""

    async def story(cluster: ReplicaCluster) -> None:
        old = await cluster.wait_for_leader()
        old_id = old.core.local_id
        await cluster.write("a", "committed")
        await cluster.wait_until_all_have("a", "committed")
        cluster.universe.wires.isolate(f"node-{old_id}")
        began = trio.current_time()
        offset = old.append(old.core.epoch, [setting("a", "lost")])
        with pytest.raises(NotLeader):
            await committed(old, offset)
        assert 2.5 < trio.current_time() - began < 3.5
        new = await cluster.wait_for_leader(other_than=old_id)
        await committed(new, new.append(new.core.epoch, [setting("a", "kept")]))
        cluster.universe.wires.heal()
        await cluster.wait_until_all_have("a", "kept")
        assert new.is_leader, "a replica that comes back must not disturb the leader"

    play(5, story)


@pytest.mark.feature("KR-13", "KR-17")
def test_a_deposed_leader_truncates_nothing_before_its_sync_has_ended() -> None:
    """Its disk is slow to answer. Had other records taken the place of those that were synced, the answer would count
    for them; so it does not fetch meanwhile.
    """

    async def story(cluster: ReplicaCluster) -> None:
        old = await cluster.wait_for_leader()
        old_id = old.core.local_id
        name = f"node-{old_id}"
        await cluster.write("a", "committed")
        await cluster.wait_until_all_have("a", "committed")
        await cluster.wait_for(lambda: old.core.synced_end_offset == old.log.end_offset)
        has_run = trio.Event()
        flush_work = old.log.flush_work

        def slow_flush_work() -> tuple[int, Callable[[], None] | None]:
            end_offset, work = flush_work()

            def sync() -> None:
                assert work is not None
                work()
                # The answer comes in ten seconds; whatever begins from now on is quick.
                cluster.universe.slow_disk(name, (20_000.0, 0.0))
                has_run.set()

            return end_offset, sync

        old.log.flush_work = slow_flush_work  # type: ignore[method-assign]
        cluster.universe.wires.isolate(name)
        for number in range(20):
            old.append(old.core.epoch, [setting("a", f"lost {number}")])
        await has_run.wait()
        began = trio.current_time()
        cluster.universe.slow_disk(name, (0.1, 0.0))
        old.log.flush_work = flush_work  # type: ignore[method-assign]
        lost_end = old.log.end_offset
        new = await cluster.wait_for_leader(other_than=old_id)
        while new.log.end_offset < lost_end + 3:
            await committed(new, new.append(new.core.epoch, [setting("a", "kept")]))
        cluster.universe.wires.heal()
        await cluster.wait_for(lambda: old.core.leader_id == new.core.local_id)
        while trio.current_time() < began + 9.9:
            await trio.sleep(0.01)
            cluster.check_synced()
            assert old.log.end_offset == lost_end, "it was cut while its sync was under way"
        await cluster.wait_for(lambda: old.core.log.last_epoch == new.core.epoch)
        # A slow next sync cannot hide what the first one has made of the new records.
        cluster.universe.slow_disk(name, (2_000.0, 0.0))
        await cluster.wait_for(lambda: old.core.synced_end_offset == old.log.end_offset)
        await cluster.wait_until_all_have("a", "kept")

    play(5, story)


@pytest.mark.feature("KR-05", "KR-13", "KR-17")
@pytest.mark.parametrize("seed", range(10))
def test_committed_records_survive_a_power_cut_of_every_node(seed: int) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        for number in range(20):
            await cluster.write(f"key-{number}", str(number))
        epochs = [replica.core.epoch for replica in cluster.replicas.values()]
        for node_id in cluster.voters:
            cluster.power_cut(node_id)
        for node_id in cluster.voters:
            await cluster.start(node_id)
        leader = await cluster.wait_for_leader()
        assert leader.core.epoch > max(epochs), "an epoch led twice"
        values = cluster.listeners[leader.core.local_id].values
        assert values == {f"key-{number}": str(number) for number in range(20)}

    play(seed, story)


@pytest.mark.feature("KR-10", "KR-11")
def test_snapshots_let_the_log_be_cut_and_a_replica_that_lags_downloads_one() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        leader = await cluster.wait_for_leader()
        sleeper = next(n for n in cluster.voters if n != leader.core.local_id)
        cluster.kill(sleeper)
        for number in range(30):
            await cluster.write(f"key-{number % 7}", "x" * 100 + str(number))
        assert leader.snapshots.is_due
        for _ in range(2):
            await cluster.write("more", "y")
            await snapshot(cluster, leader.core.local_id)
        assert not leader.snapshots.is_due
        assert leader.log.start_offset > 0
        await cluster.start(sleeper)
        await cluster.write("last", "z")
        await cluster.wait_until_all_have("last", "z")
        caught_up = cluster.listeners[sleeper]
        assert any(event.startswith("snapshot") for event in caught_up.events)
        assert caught_up.values == cluster.listeners[leader.core.local_id].values
        cluster.kill(sleeper)
        await cluster.start(sleeper)
        await cluster.wait_until_all_have("last", "z")
        assert cluster.listeners[sleeper].values == caught_up.values

    play(11, story, config=small_snapshots)


@pytest.mark.feature("KR-10", "KR-13")
@pytest.mark.parametrize("damage", ["a failed sync that was not noted", "a flipped bit", "a file that was cut", "none"])
def test_damaged_records_before_a_snapshot_are_never_served(damage: str) -> None:
    """A replica that had got as far would ask for them for ever, and never catch up."""
    first_segment = "/data/__cluster_metadata-0/00000000000000000000.log"

    async def story(cluster: ReplicaCluster) -> None:
        await cluster.start(2)
        await cluster.write("a", "1")
        await cluster.wait_until_all_have("a", "1")
        cluster.kill(2)
        store = cluster.universe.disk("node-1")
        known_to_both = len(store.file(first_segment).cached)
        if damage == "a failed sync that was not noted":
            # The bytes of the failed sync are in the cache alone from now on, and the next sync does not report that.
            cluster.disks_lie = True
            fault = store.fail("sync", prefix="/data")
            leader = cluster.replicas[1]
            leader.append(leader.core.epoch, [setting("b", "x" * 5000)])
            await cluster.wait_for(lambda: 1 in cluster.errors)
            store.faults.remove(fault)
            cluster.kill(1)
            store.remove(f"{first_segment.rpartition('/')[0]}/{SYNC_FAILED_FILE}")
            await cluster.start(1)
        await cluster.write("b", "2")
        await snapshot(cluster, 1)
        await cluster.write("c", "3")
        cluster.power_cut(1)
        if damage == "a flipped bit":
            store.flip_bits(first_segment, known_to_both + 70, 1)
        elif damage == "a file that was cut":
            store.file(first_segment).truncate(known_to_both + 70)
        await cluster.start(1)
        await cluster.write("d", "4")
        opened = cluster.replicas[1].log
        assert opened.snapshots.latest is not None
        assert opened.start_offset == (0 if damage == "none" else opened.snapshots.latest.offset)
        await cluster.start(2)
        await cluster.wait_until_all_have("d", "4")
        assert cluster.listeners[2].values == {"a": "1", "b": "2", "c": "3", "d": "4"}
        assert store.find(first_segment) is None or damage == "none"

    play(3, story, voters=1)


async def snapshot(cluster: ReplicaCluster, node_id: int) -> None:
    """The reaction of a node to `snapshots.is_due`."""
    replica, listener = cluster.replicas[node_id], cluster.listeners[node_id]
    offset = listener.next_offset - 1
    latest = replica.core.latest_snapshot
    if offset < 0 or (latest is not None and latest.offset > offset):
        return  # it started a moment ago
    records = [setting(name, value or "") for name, value in sorted(listener.values.items())]
    assert await replica.snapshots.create(records, offset, replica.core.log.epoch_of(offset), 1_000)


@pytest.mark.feature("KR-10")
def test_the_same_image_gives_the_same_snapshot_bytes_on_every_node() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        for number in range(10):
            await cluster.write(f"key-{number}", str(number))
        await cluster.wait_for(lambda: len({n.next_offset for n in cluster.listeners.values()}) == 1)
        contents = set()
        for node_id, replica in cluster.replicas.items():
            await snapshot(cluster, node_id)
            latest = replica.log.snapshots.latest
            assert latest is not None
            size = replica.log.snapshots.size_bytes(latest)
            assert size is not None
            contents.add(replica.log.snapshots.read(latest, 0, size))
        assert len(contents) == 1

    play(12, story)


@pytest.mark.feature("KR-06")
@pytest.mark.parametrize("seed", range(5))
def test_observers_follow_and_never_count(seed: int) -> None:
    """Brokers fetch the log, find the new leader by themselves, and cannot commit anything."""

    async def story(cluster: ReplicaCluster) -> None:
        for broker_id in (101, 102):
            await cluster.start(broker_id)
        await cluster.write("a", "1")
        await cluster.wait_until_all_have("a", "1")
        leader = await cluster.wait_for_leader()
        cluster.kill(leader.core.local_id)
        leader = await cluster.wait_for_leader()
        began = trio.current_time()
        await cluster.write("b", "2")
        await cluster.wait_until_all_have("b", "2")
        assert trio.current_time() - began < 0.3
        cluster.kill(next(n for n in cluster.replicas if n < 100 and n != leader.core.local_id))
        offset = leader.append(leader.core.epoch, [setting("c", "3")])
        with pytest.raises(NotLeader):
            await committed(leader, offset)

    play(seed, story)


@pytest.mark.feature("KR-06")
def test_an_observer_needs_only_bootstrap_servers() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await cluster.write("a", "1")
        servers = tuple(cluster.voters.values())
        await cluster.start(101, lambda config: replace(config, voters={}, bootstrap_servers=servers))
        await cluster.wait_until_all_have("a", "1")
        leader = await cluster.wait_for_leader()
        known = cluster.replicas[101].quorum_endpoints()
        assert (known.leader_id, known.epoch) == (leader.core.local_id, leader.core.epoch)
        assert known.leader == cluster.voters[leader.core.local_id]

    play(2, story)


@pytest.mark.feature("KR-06")
def test_an_observer_learns_the_address_of_the_next_leader() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        old_id = (await cluster.wait_for_leader()).core.local_id
        servers = tuple(cluster.voters.values())
        await cluster.start(101, lambda config: replace(config, voters={}, bootstrap_servers=servers))
        observer = cluster.replicas[101]
        await cluster.wait_for(lambda: observer.quorum_endpoints().leader == cluster.voters[old_id])
        cluster.kill(old_id)
        new_id = (await cluster.wait_for_leader(other_than=old_id)).core.local_id
        await cluster.wait_for(lambda: observer.quorum_endpoints().leader == cluster.voters[new_id])
        assert observer.quorum_endpoints().leader_id == new_id

    play(2, story)


@pytest.mark.feature("KR-13")
def test_a_leader_whose_disk_fails_resigns_and_stops_and_another_takes_over() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await cluster.write("a", "1")
        old = await cluster.wait_for_leader()
        old_id = old.core.local_id
        store = cluster.universe.disk(f"node-{old_id}")
        store.faults.append(DiskFault(frozenset({"sync"}), prefix="/data"))
        old.append(old.core.epoch, [setting("a", "2")])
        await cluster.wait_for(lambda: old_id in cluster.errors)
        cluster.replicas.pop(old_id)
        new = await cluster.wait_for_leader(other_than=old_id)
        await committed(new, new.append(new.core.epoch, [setting("a", "3")]))
        assert cluster.listeners[new.core.local_id].values["a"] == "3"

    play(4, story)


@pytest.mark.feature("KR-02")
def test_one_voter_alone_is_a_quorum() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        began = trio.current_time()
        await cluster.write("a", "1")
        assert trio.current_time() - began < 0.1
        cluster.power_cut(1)
        await cluster.start(1)
        await cluster.write("b", "2")
        assert cluster.listeners[1].values == {"a": "1", "b": "2"}

    play(1, story, voters=1)


@pytest.mark.feature("KR-17", "KR-05", "KR-13")
@pytest.mark.parametrize("seed", range(6))
def test_no_acknowledged_record_is_lost_while_nodes_die_and_links_break(seed: int) -> None:
    """Kills, power cuts at any disk change, cuts; a record is acknowledged once it was committed."""

    async def story(cluster: ReplicaCluster) -> None:
        chance = cluster.universe.stream("story")
        acknowledged: list[str] = []

        async def write() -> None:
            number = 0
            while True:
                await trio.sleep(0.02)
                cluster.check_synced()
                leader = cluster.leader
                if leader is None:
                    continue
                number += 1
                try:
                    offset = leader.append(leader.core.epoch, [setting(f"key-{number}", "x")])
                    with trio.move_on_after(5):
                        await committed(leader, offset)
                        acknowledged.append(f"key-{number}")
                except (KafkaError, NodeKilled):  # the node died in this very call
                    continue

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for _ in range(12):
                await trio.sleep(chance.uniform(0.05, 1.5))
                victim = chance.choice(sorted(cluster.voters))
                name = f"node-{victim}"
                fault = chance.choice(["kill", "power", "power-at-change", "cut", "heal", "snapshot"])
                if fault == "cut":
                    cluster.universe.wires.isolate(name, outgoing=chance.random() < 0.7)
                elif fault == "heal":
                    cluster.universe.wires.heal()
                elif fault == "snapshot":
                    if victim in cluster.replicas and cluster.replicas[victim].snapshots.is_due:
                        await snapshot(cluster, victim)
                else:
                    if fault == "power-at-change":
                        cluster.universe.kill_at_change(name, chance.randrange(1, 20), power_cut=True)
                        await trio.sleep(chance.uniform(0, 0.3))
                    if fault == "kill":
                        cluster.kill(victim)
                    else:
                        cluster.power_cut(victim)
                    await trio.sleep(chance.uniform(0, 1.0))
                    await cluster.start(victim)
            cluster.universe.wires.heal()
            nursery.cancel_scope.cancel()
        await cluster.write("the", "end")
        await cluster.wait_until_all_have("the", "end")
        assert not cluster.errors, cluster.errors
        assert acknowledged
        for listener in (cluster.listeners[n] for n in cluster.replicas):
            missing = [key for key in acknowledged if key not in listener.values]
            assert not missing, f"lost {missing}"

    play(seed, story, config=small_snapshots)
