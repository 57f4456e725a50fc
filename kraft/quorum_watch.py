"""Shell: waits until most voters of the metadata quorum are gone."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.node_address import NodeAddress
from barnabas.runtime.liveness import process_is_gone
from barnabas.runtime.world import World

LOOK_MS = 300
LOOKS = 3
"""In so many looks in a row most voters were gone: controllers that are restarted in turn are not taken for that."""
PATIENCE_MS = 200


async def without_quorum(world: World, replica: MetadataReplica) -> None:
    """Returns when hosts refused connections to most voters, `LOOKS` times in a row. Waits for ever if none is known.

    A voter that is only silent may come back at any time, and is not counted.
    """
    seen = 0
    while seen < LOOKS:
        await trio.sleep(LOOK_MS / 1000)
        seen = seen + 1 if await _most_are_gone(world, _voters(replica)) else 0


def _voters(replica: MetadataReplica) -> Mapping[int, NodeAddress]:
    """All voters with an address; without any, the bootstrap servers, which are to be some of them."""
    return replica.quorum_endpoints().voters or dict(enumerate(replica.config.bootstrap_servers))


async def _most_are_gone(world: World, voters: Mapping[int, NodeAddress]) -> bool:
    gone: list[int] = []

    async def look(voter_id: int, address: NodeAddress) -> None:
        if await process_is_gone(world, address.host, address.port, PATIENCE_MS):
            gone.append(voter_id)

    async with trio.open_nursery() as nursery:
        for voter_id, address in voters.items():
            nursery.start_soon(look, voter_id, address)
    return len(gone) > len(voters) // 2
