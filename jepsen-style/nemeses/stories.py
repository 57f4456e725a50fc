"""The function of each kind of fault."""

from __future__ import annotations

from nemeses.changes import CHANGES
from nemeses.faults import EVERYWHERE
from nemeses.kinds import FAULTS
from nemeses.nemesis import Story
from nemeses.simulated_faults import SIMULATED

_FOUND = {**EVERYWHERE, **CHANGES, **SIMULATED}
STORIES: dict[str, Story] = {name: _FOUND[name] for name in FAULTS}
