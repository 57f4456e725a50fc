"""Privileges that this machine lacks for a command of a suite, mostly root. Checked once for each world."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from barnabas.cluster import power
from barnabas.cluster.guardian import Guardian
from worlds import compose, netns


def why_off(words: Sequence[str]) -> str | None:
    """Reason why `python jepsen-style WORDS` cannot run here at all; None if it can, as far as is known before. A run
    that can do without one of its faults reports itself that the fault is off."""
    world = _after(words, "--cluster")
    if world == "netns":
        return why_no_namespaces()
    if world == "compose":
        return why_no_containers()
    if world == "local" and words[0] == "scenario" and _needs_power(words[1]):
        return why_no_power()
    return None


def _after(words: Sequence[str], option: str) -> str:
    return next((value for name, value in itertools.pairwise(words) if name == option), "")


def _needs_power(name: str) -> bool:
    from scenarios.catalogue import find
    from scenarios.processes import NEED_POWER

    scenario = find(name)
    return scenario is not None and scenario.number in NEED_POWER


@cache
def why_no_namespaces() -> str | None:
    return netns.reason_against()


@cache
def why_no_containers() -> str | None:
    return compose.reason_against()


@cache
def why_no_power() -> str | None:
    """Tries it on a file system of its own, which is gone afterwards, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="power-") as temporary:
        directory, guardian = Path(temporary), Guardian()
        try:
            guardian.at_the_end("umount", "-l", str(directory / "try"))
            return power.reason_against(directory)
        finally:
            guardian.close()
