"""Connections never take the descriptors that files and the links between nodes need."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from barnabas.runtime.descriptors import IDLE_MS, count_descriptors
from barnabas.runtime.server import ServerLimits
from barnabas.runtime.simulated import make_world, run_simulation
from tests.runtime.conftest import Two
from tests.runtime.test_server import Desk, Peer, Scene, request_frame

ALLOWED, FILES, FOR_CONNECTIONS = 40, 10, 20
"""A quarter of what is allowed is the reserve."""


def stage(act: Callable[[Scene], Awaitable[None]]) -> None:
    """Play `act` on a node of which each connection takes one descriptor, beside those of its files."""

    async def story(universe: object) -> None:
        server, client = make_world("server", universe), make_world("client", universe)
        server = replace(server, count_descriptors=lambda: (FILES + scene.server.connections, ALLOWED))
        scene = Scene(Two(server, client, "server"), Desk(echo=True), ServerLimits())
        async with trio.open_nursery() as nursery:
            await scene.start(nursery)
            await act(scene)
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


async def is_served(peer: Peer) -> bool:
    await peer.ask(request_frame(1, b"here"))
    return await peer.answer() == b"\0\0\0\1here"


def test_the_reserve_is_refused_to_busy_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def act(scene: Scene) -> None:
        peers = [await scene.peer() for _ in range(FOR_CONNECTIONS)]
        for peer in peers:
            assert await is_served(peer)
        for _ in range(3):
            await (await scene.peer()).closed()
        assert scene.server.connections == FOR_CONNECTIONS
        for peer in peers:
            assert await is_served(peer), "those that were there stay"
        peers[0].connection.close()
        await trio.sleep(1)
        assert await is_served(await scene.peer()), "the place of one that went is free"

    with caplog.at_level(logging.WARNING):
        stage(act)
    lines = [record.getMessage() for record in caplog.records if "descriptors run short" in record.getMessage()]
    assert len(lines) == 1, "a flood of connections is no flood of lines"


def test_idle_connections_make_room_for_new_ones() -> None:
    """A node that dials again gets in, and the busy links between nodes stay."""

    async def act(scene: Scene) -> None:
        link = await scene.peer()
        idle = [await scene.peer() for _ in range(FOR_CONNECTIONS - 1)]
        for _ in range(2 * IDLE_MS // 1000):
            assert await is_served(link)
            await trio.sleep(1)
        assert await is_served(await scene.peer())
        assert await is_served(link)
        await idle[0].closed()

    stage(act)


def test_the_descriptors_of_this_process_are_counted() -> None:
    used, allowed = count_descriptors()
    assert allowed == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    try:
        assert count_descriptors()[0] == used + 5
    finally:
        for descriptor in held:
            os.close(descriptor)
