"""Performs attacks one after the other, each on a cluster that is well."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from attacks.catalogue import Attack
from attacks.scene import Outcome, Scene
from attacks.target import Target
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.ports import free_base_port

WARM_SECONDS = 3.0
"""Warm-up of the producer of a new cluster."""


def perform(
    attacks: Iterable[Attack], base_port: int, report: Callable[[Outcome], None], *, preferred: bool = False
) -> list[Outcome]:
    """`base_port` 0: each cluster gets ports that are free; `preferred` as for `Target`. Raises ClusterError if a
    cluster does not come up, OSError if it cannot be preferred."""
    outcomes = []
    target: Target | None = None
    with tempfile.TemporaryDirectory(prefix="barnabas-attack-", ignore_cleanup_errors=True) as scratch:
        try:
            for number, attack in enumerate(attacks):
                if target is not None and target.settings != attack.settings:
                    target.close()
                    target = None
                if target is None:
                    directory, port = _directory(Path(scratch), number), base_port or free_base_port()
                    target = Target(directory, port, attack.settings, preferred=preferred)
                    time.sleep(WARM_SECONDS)
                outcome = _perform(attack, target)
                outcomes.append(outcome)
                report(outcome)
                if not _is_well(outcome, target):
                    target.close()
                    target = None
        finally:
            if target is not None:
                target.close()  # before its directory is gone, which has the pids of the nodes
    return outcomes


def _perform(attack: Attack, target: Target) -> Outcome:
    scene = Scene(attack.name, target)
    try:
        return scene.play(attack.play)
    except ClusterError as error:
        scene.report(f"could not be prepared: {error}")
        return scene.outcome


def _is_well(outcome: Outcome, target: Target) -> bool:
    """Whether the cluster recovered, so that the next attack can use it."""
    return not (outcome.over_limit or outcome.dead or outcome.grown_mb > 200 or target.dead())


def _directory(scratch: Path, number: int) -> Path:
    directory = scratch / str(number)
    directory.mkdir()
    return directory
