"""The process of a broken node: it applies the plant that the environment names, then runs as a normal node.

`broken(programs, name)` gives the programs that a `LocalCluster` starts in place of `programs`, which may differ from
those that users run (for example nodes that connect through proxies).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from barnabas.cluster.layout import Layout
from barnabas.cluster.plan import Programs
from barnabas.runtime.process import ArgumentError, Program
from plants.catalogue import find

PLANT = "JEPSEN_STYLE_PLANT"
MODULES = "JEPSEN_STYLE_MODULES"
"""The modules that would be started without a plant, by role, as JSON."""
_HOME = Path(__file__).resolve().parent.parent
_planted: list[str] = []
"""The plant in this process. A launcher loads many nodes and forks them afterwards."""


def broken(programs: Programs, name: str | None) -> Programs:
    """The same programs with the plant of that name. Raises NoSuchPlant."""
    if find(name) is None:
        return programs
    assert name is not None
    environment = dict(programs.environment)
    environment[PLANT] = name
    environment[MODULES] = json.dumps(dict(programs.modules))
    path = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    places = [str(_HOME.parent), str(_HOME), *(place for place in path.split(os.pathsep) if place)]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))
    return Programs(dict.fromkeys(programs.modules, __name__), environment)


def load(text: str, name: str, overrides: Mapping[str, str]) -> Program:
    """The broken node that the text of a configuration file describes. Raises `SettingsError`, `ArgumentError`."""
    plant_name = os.environ.get(PLANT)
    plant = find(plant_name)
    if plant is None:
        raise ArgumentError(f"{PLANT} names no plant")
    if plant.name not in _planted:
        plant.apply()
        _planted.append(plant.name)
    path = Path(name)
    role = Layout.open(path.parents[1], shape=path.parent).node(path.stem).role
    module = json.loads(os.environ[MODULES])[role]
    program: Program = import_module(module).load(text, name, overrides)
    return program
