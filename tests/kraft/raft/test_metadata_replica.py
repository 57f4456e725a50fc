"""Three metadata replicas in one simulated world: electing, appending, losing their leader, going on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kraft.replica_config import ReplicaConfig
from runtime.simulated import Universe, run_simulation
from tests.kraft.raft.replica_cluster import ReplicaCluster

Story = Callable[[ReplicaCluster], Awaitable[None]]


def play(
    seed: int,
    story: Story,
    *,
    voters: int = 3,
    config: Callable[[ReplicaConfig], ReplicaConfig] = lambda config: config,
) -> Universe:
    """Start the voters, tell the story, stop everything."""
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
