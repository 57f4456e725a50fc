"""The three kinds of stores, opened as a node opens them, for stories that must end the same on each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from barnabas.runtime.object_store import ObjectStore
from barnabas.runtime.real import real_world
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.world import World
from barnabas.settings.object_store import StoreSettings

URL = "s3://simulated"


def opened(world: World, settings: StoreSettings) -> ObjectStore:
    assert world.object_store is not None
    return world.object_store(settings)


def in_directory(path: Path, **others: object) -> ObjectStore:
    """A store in a directory that is there."""
    return opened(real_world(), StoreSettings(f"file://{path}", **others))  # type: ignore[arg-type]


def in_simulation(story: Callable[[ObjectStore, Universe], Awaitable[None]], seed: int = 1) -> Universe:
    """Run a story with the store of one node."""
    universes: list[Universe] = []

    async def run(universe: Universe) -> None:
        universes.append(universe)

        async def node(world: World) -> None:
            await story(opened(world, StoreSettings(URL, timeout_ms=10_000)), universe)

        await universe.run_node("broker-1", node)

    run_simulation(seed, run)
    return universes[0]


__all__ = ["URL", "in_directory", "in_simulation", "make_world", "opened"]
