"""Tries plants: run after run with a mistake in every node, each with the next seed, until the checkers find it.

Each run is a process of its own, the very command that a user would give, so that nothing of a mistake is left behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from barnabas.cluster.errors import ClusterError, WrongArgument
from plants.plant import Plant, Trial
from running.children import CHILDREN, Interrupted
from running.judging import VERDICT

HOME = Path(__file__).resolve().parent.parent
VALID, ANOMALY, COULD_NOT_RUN = 0, 1, 2
PATIENCE_SECONDS = 900.0
"""Time limit of one run beyond its own time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one run."""

    seed: int
    valid: bool
    """The command reported a valid run."""
    anomalies: tuple[str, ...]
    """By name, without those that are legal."""
    seconds: float
    directory: Path


@dataclass(frozen=True, slots=True)
class Tried:
    """Outcome of one plant in one world."""

    plant: Plant | None
    """None: the same runs without one."""
    world: str
    outcomes: tuple[Outcome, ...]

    @property
    def found(self) -> bool:
        """By what should find it, and not by chance; without a plant: anything at all."""
        last = self.outcomes[-1]
        return not last.valid if self.plant is None else is_found(self.plant, last)

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.outcomes)


def arguments(trial: Trial, world: str, seed: int, plant: Plant | None, store: Path) -> list[str]:
    """Arguments of `python jepsen-style`."""
    if trial.story:
        words = ["plants", "--story", trial.story, "--cluster", world, "--seed", str(seed), "--store", str(store)]
        return words if plant is None else [*words, "--plant", plant.name]
    words = ["run", trial.workload, "--cluster", world, "--seed", str(seed), "--store", str(store)]
    words += ["--time", f"{trial.time_seconds:g}", "--rate", f"{trial.rate:g}"]
    words += ["--concurrency", str(trial.concurrency), "--quiet", f"{trial.quiet_seconds:g}"]
    if trial.nemesis:
        words += ["--nemesis", ",".join(trial.nemesis), "--interval", f"{trial.interval_seconds:g}"]
    for key, value in trial.settings.items():
        words += ["--settings", f"{key}={value}"]
    return words if plant is None else [*words, "--plant", plant.name]


def run_once(trial: Trial, world: str, seed: int, plant: Plant | None, store: Path) -> Outcome:
    """One run. Raises ClusterError, one line, if it could not be run."""
    store.mkdir(parents=True, exist_ok=True)
    before = set(store.iterdir())
    command = [sys.executable, str(HOME), *arguments(trial, world, seed, plant, store)]
    began = time.monotonic()
    try:
        done = CHILDREN.run(command, PATIENCE_SECONDS)
    except Interrupted:
        raise ClusterError("interrupted") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"a run did not end within {PATIENCE_SECONDS:.0f} s: {' '.join(command)}") from None
    if CHILDREN.interrupted:
        raise ClusterError("interrupted")
    seconds = time.monotonic() - began
    if done.returncode not in (VALID, ANOMALY):
        output = [*done.stdout.splitlines(), *done.stderr.splitlines()] or ["nothing"]
        raise ClusterError(f"{' '.join(command)} could not run: {output[-1]}")
    made = sorted(set(store.iterdir()) - before)
    directory = made[-1] if made else store
    if not (directory / VERDICT).exists():
        # Python ends with 1, too, where it is the suite that has a mistake.
        output = done.stderr.splitlines() or ["nothing"]
        raise ClusterError(f"{' '.join(command)} ended without a verdict: {output[-1]}")
    return Outcome(seed, done.returncode == VALID, _anomalies(directory), seconds, directory)


def _anomalies(directory: Path) -> tuple[str, ...]:
    try:
        verdict: dict[str, Any] = json.loads((directory / VERDICT).read_text())
    except (OSError, ValueError):
        return ()
    found = [each["anomaly"] for each in verdict.get("findings", ()) if not each.get("legal")]
    return tuple(dict.fromkeys(found)) or ("unknown",) * (verdict.get("valid") == "unknown")


def is_found(plant: Plant, outcome: Outcome) -> bool:
    return not outcome.valid and not set(plant.found_by).isdisjoint(outcome.anomalies)


def seeds_of(trial: Trial, first_seed: int) -> range:
    return range(first_seed, first_seed + trial.runs)


def try_plant(
    plant: Plant, world: str, store: Path, *, first_seed: int = 1, report: Callable[[Outcome], None] = lambda _: None
) -> Tried:
    """Until it is found, or as often as it may take. Raises ClusterError, WrongArgument for a plant that clients do not
    see in that world.
    """
    trial = trial_of(plant, world)
    outcomes = []
    for seed in seeds_of(trial, first_seed):
        outcomes.append(run_once(trial, world, seed, plant, store / plant.name))
        report(outcomes[-1])
        if is_found(plant, outcomes[-1]):
            break
    return Tried(plant, world, tuple(outcomes))


def try_nothing(trial: Trial, world: str, store: Path, seed: int) -> Tried:
    """The same run without the plant, which must be valid; otherwise the finding proves nothing."""
    return Tried(None, world, (run_once(replace(trial, runs=1), world, seed, None, store / "nothing"),))


def trial_of(plant: Plant, world: str) -> Trial:
    """Raises WrongArgument."""
    trial = plant.trial(world)
    if trial is None:
        raise WrongArgument(f"clients do not see {plant.name} in {world}: tests/simulation finds it by its promises")
    return trial


def triable(plants: Iterator[Plant], world: str) -> list[Plant]:
    return [plant for plant in plants if plant.trial(world) is not None]
