"""Voters of real controllers that come and go (KIP-853): how the quorum begins, and what is known of it from outside.

Three controllers vote from the first start on, and one more observes, so that a voter can be replaced. No file names
voters. A controller whose disk is emptied comes back as another replica with the same id.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import trio

from barnabas.cluster.layout import Layout
from barnabas.cluster.membership import Members
from barnabas.kraft.format import FormatRequest, format_directories
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.uuids import random_uuid
from barnabas.security.addresses import port_for_nodes
from barnabas.storage.log_directory import LogDirectoryError, read_meta_properties
from worlds.node_views import Onlooker

LISTENER = "CONTROLLER"
FIRST_VOTERS = 3
FURTHER_ID = 104
"""The controller that only observes at first."""
LOOK_SECONDS = 0.02
VERSIONS = (0, 1)
"""Levels of `kraft.version` that our nodes support."""


def let_voters_change(data: Path) -> None:
    """Before the layout of a new cluster is made."""
    Members(added_controllers=(FURTHER_ID,), has_living_voters=True).write(data)


def format_first_voters(layout: Layout, hosts: Mapping[str, str]) -> None:
    """Give the first controllers directories that name all of them as voters, at these hosts."""
    chance, now_ms = random.SystemRandom(), int(time.time() * 1000)
    nodes = layout.controllers[:FIRST_VOTERS]
    voters = VoterSet.of(
        Voter(
            ReplicaKey(node.id, random_uuid(chance)),
            (Endpoint(LISTENER, hosts[node.name], port_for_nodes(layout, node)),),
            VERSIONS,
        )
        for node in nodes
    )
    for node in nodes:
        directory = str(layout.log_directory(node))
        request = FormatRequest(
            layout.cluster_id,
            node.id,
            [directory],
            bootstrap_records(),
            metadata_directory=directory,
            voters=voters,
        )
        format_directories(RealDisk(), request, chance, now_ms)


class _Seen(NamedTuple):
    """The quorum, as its leader describes it."""

    voters: dict[ReplicaKey, int]
    """With the ends of their logs."""
    controllers: dict[ReplicaKey, int]
    """Controllers that observe, with the ends of theirs."""
    high_watermark: int


class LivingVoters:
    """The `LivingQuorum` of a world of real processes."""

    def __init__(self, layout: Layout, looker: Onlooker, hosts: Mapping[str, str]) -> None:
        """`hosts`: where each node listens."""
        self._layout = layout
        self._hosts = hosts
        self._looker = looker
        self._lost: dict[ReplicaKey, None] = {}

    def voter_address(self, name: str) -> tuple[str, int]:
        return self._hosts[name], port_for_nodes(self._layout, self._layout.node(name))

    def disk_goes(self, name: str) -> None:
        """The disk of a controller that does not run is about to be emptied."""
        node = self._layout.node(name)
        if node.is_broker:
            return
        try:
            identity = read_meta_properties(RealDisk(), str(self._layout.log_directory(node)))
        except (LogDirectoryError, OSError):
            return
        if identity is not None and identity.directory_id is not None:
            self._lost[ReplicaKey(node.id, identity.directory_id)] = None

    async def lost_voters(self) -> Sequence[ReplicaKey]:
        """If nobody leads, all that ever lost a disk."""
        seen = await self._look()
        return [key for key in self._lost if seen is None or key in seen.voters]

    async def may_lose_a_voter(self) -> bool:
        """The leader knows three voters with their disks, and all controllers have its committed log: none of them
        counts other voters."""
        seen = await self._look()
        if seen is None or len(seen.voters) < FIRST_VOTERS or any(key in seen.voters for key in self._lost):
            return False
        return all(end >= seen.high_watermark for end in (*seen.voters.values(), *seen.controllers.values()))

    async def next_active_controller(self, name: str, timeout_seconds: float) -> str | None:
        before = max((epoch for epoch, _leader in (await self._looker.quorum_claims()).values()), default=0)
        with trio.move_on_after(timeout_seconds):
            while True:
                for claimant, (epoch, leader) in (await self._looker.quorum_claims()).items():
                    if epoch > before and leader == claimant != name:
                        return claimant
                await trio.sleep(LOOK_SECONDS)
        return None

    async def _look(self) -> _Seen | None:
        """None if nobody leads, or the leader does not answer."""
        leader = await self._looker.active_controller()
        described = None if leader is None else await self._looker.describe_quorum(leader)
        if described is None:
            return None
        ids = {node.id for node in self._layout.controllers}
        return _Seen(
            {ReplicaKey(it.replica_id, it.replica_directory_id): it.log_end_offset for it in described.current_voters},
            {
                ReplicaKey(it.replica_id, it.replica_directory_id): it.log_end_offset
                for it in described.observers
                if it.replica_id in ids
            },
            described.high_watermark,
        )
