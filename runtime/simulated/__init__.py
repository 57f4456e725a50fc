"""Simulated twins of every part of the `World`, with the same promises, replayed exactly from one seed.

`run_simulation(seed, story)` runs a story in a `Universe`; `make_world` gives one node its world in it:

    async def story(universe):
        universe.disk("broker-1").prepare_directories("/data")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(universe.run_node, "broker-1", lambda world: run_broker(settings, world, ...))
            await trio.sleep(30)
            universe.wires.isolate("broker-1")
            universe.power_cut("broker-1")

    run_simulation(4711, story)
"""

from barnabas.runtime.simulated.determinism import run_simulation
from barnabas.runtime.simulated.process import NodeKilled
from barnabas.runtime.simulated.universe import Universe, make_world

__all__ = ["NodeKilled", "Universe", "make_world", "run_simulation"]
