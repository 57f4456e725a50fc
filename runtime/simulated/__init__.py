"""The twins of every part of the `World`, alike in what they promise and replayed exactly from one seed.

`run_simulation(seed, story)` runs a story in a `Universe`; `make_world` gives one node its world in it.
"""

from runtime.simulated.determinism import run_simulation
from runtime.simulated.process import NodeKilled
from runtime.simulated.universe import Universe, make_world

__all__ = ["NodeKilled", "Universe", "make_world", "run_simulation"]
