"""Stories that run twice: over this machine's network and disk, and over the simulated twins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from barnabas.runtime.real import real_world
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.world import World

PATIENCE_SECONDS = 20


@dataclass
class Two:
    """Two nodes that can reach each other."""

    server: World
    client: World
    host: str
    """The name of the server's host for the client."""


Story = Callable[[Two], Awaitable[None]]


@pytest.fixture(params=["real", "simulated"])
def play(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Plays a story of two nodes to its end."""

    async def real(story: Story) -> None:
        with trio.fail_after(PATIENCE_SECONDS):
            await story(Two(real_world(), real_world(), "127.0.0.1"))

    def play_story(story: Story) -> None:
        if request.param == "real":
            trio.run(real, story)
            return

        async def simulated(universe: object) -> None:
            with trio.fail_after(3600):
                await story(Two(make_world("server", universe), make_world("client", universe), "server"))

        for seed in range(3):
            run_simulation(seed, simulated)

    return play_story


@pytest.fixture(params=["real", "simulated"])
def play_on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Plays a story of (world, directory)."""

    def play_story(story: Callable[[World, str], Awaitable[None]]) -> None:
        if request.param == "real":
            trio.run(lambda: story(real_world(), str(tmp_path)))
            return

        async def simulated(universe: object) -> None:
            world = make_world("node", universe)
            world.disk.make_directories("/data")
            await story(world, "/data")

        run_simulation(7, simulated)

    return play_story
