"""Shell: waits until the voters of the metadata quorum are gone."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.node_address import NodeAddress
from barnabas.runtime.liveness import process_is_gone
from barnabas.runtime.world import World

LOOK_MS = 300
LOOKS = 3
"""In so many looks in a row all voters were gone: controllers that are restarted in turn are not taken for that."""
PATIENCE_MS = 200


async def without_controllers(world: World, replica: MetadataReplica) -> None:
    """Returns when hosts refused connections to all other voters, `LOOKS` times in a row; never if there are none.

    A voter that is only silent may come back at any time, and is not gone.
    """
    seen = 0
    while seen < LOOKS:
        await trio.sleep(LOOK_MS / 1000)
        voters = _other_voters(replica)
        seen = seen + 1 if voters and await _all_are_gone(world, voters) else 0


def _other_voters(replica: MetadataReplica) -> Sequence[NodeAddress]:
    """Those with an address; without any, the bootstrap servers, which are to be some of them."""
    config = replica.config
    voters = replica.quorum_endpoints().voters
    if not voters:
        return config.bootstrap_servers
    return [address for voter_id, address in voters.items() if voter_id != config.node_id]


async def _all_are_gone(world: World, voters: Sequence[NodeAddress]) -> bool:
    gone: list[NodeAddress] = []

    async def look(address: NodeAddress) -> None:
        if await process_is_gone(world, address.host, address.port, PATIENCE_MS):
            gone.append(address)

    async with trio.open_nursery() as nursery:
        for address in voters:
            nursery.start_soon(look, address)
    return len(gone) == len(voters)
