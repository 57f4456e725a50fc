"""A node that only waits for its end: stands for a broker where processes are the subject."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import trio

from barnabas.runtime.process import Program
from barnabas.settings.errors import SettingsError
from barnabas.settings.properties import parse_properties


def load(text: str, name: str, overrides: Mapping[str, str]) -> Program:
    values = {key: value for key, (value, _line) in parse_properties(text, name).items()}
    if values.get("num.partitions") == "none":
        raise SettingsError("not a whole number", "num.partitions", "none", "1 or more", name, 7)

    async def run(stop: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        if values.get("broker.rack") == "falls-over":
            raise OSError("the port is taken")
        if values.get("broker.rack") == "complains":
            logging.getLogger("fake").error("something is wrong")
        task_status.started()
        if (breaks := Path(name).with_suffix(".breaks")).exists():
            breaks.unlink()
            raise ZeroDivisionError("a mistake of ours")
        if values.get("broker.rack") != "never-leaves":
            await stop.wait()
        else:
            await trio.sleep_forever()

    return Program("node-" + values["node.id"], run, ["a warning"])
