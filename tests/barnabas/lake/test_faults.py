"""Exactly once under faults: whole lives of tables in virtual time, one for each seed."""

from __future__ import annotations

import pytest
import trio

from barnabas.lake.committer import Committer
from barnabas.lake.errors import CatalogUnavailable, CommitConflict
from barnabas.lake.progress import Progress
from barnabas.lake.table import Change
from barnabas.runtime.simulated import Universe, run_simulation
from tests.barnabas.lake.rig import Log, Writers, check_history
from tests.barnabas.lake.simulated_table import Catalogue, Weather

SEEDS = range(1, 41)
POINTS = ("lake.commit.sending", "lake.commit.sent", "lake.files.writing", "lake.files.written", "lake.call")
STORM = Weather(lost_request=0.1, lost_answer=0.1, late_request=0.1, false_conflict=0.05, slow_s=0.5)


async def _life(universe: Universe) -> Catalogue:
    """Processes are killed, replaced, and run twice; the catalogue is unreliable; somebody else writes, too."""
    chance = universe.stream("life")
    log = Log(universe.stream("log"))
    async with trio.open_nursery() as nursery:
        catalogue = Catalogue(nursery, universe.stream("catalogue"), lambda: int(trio.current_time() * 1000))
        writers = Writers(universe, nursery, log, catalogue)
        catalogue.weather = STORM
        living = [writers.start()]
        for _ in range(60):
            log.grow(chance.randrange(0, 60))
            await trio.sleep(chance.uniform(0, 8))
            match chance.randrange(0, 6):
                case 0 if universe.is_alive(living[-1]):
                    universe.kill_at(living[-1], POINTS[chance.randrange(0, len(POINTS))])
                case 1:
                    # A second one by mistake, or a replacement of one that is slow or dead.
                    living.append(writers.start())
                case 2:
                    catalogue.somebody_else_commits()
                case 3:
                    catalogue.weather = Weather(lost_request=1.0)
                    await trio.sleep(chance.uniform(0, 20))
                    catalogue.weather = STORM
            check_history(catalogue, log)
        for name in living:
            universe.disarm(name)
            if universe.is_alive(name):
                universe.kill(name)
        catalogue.weather = Weather()
        await trio.sleep(120)
        await writers.finish()
        nursery.cancel_scope.cancel()
    check_history(catalogue, log)
    [current, *_] = catalogue.chain()
    assert sorted(current.rows()) == sorted(log.rows())
    return catalogue


@pytest.mark.parametrize("seed", SEEDS)
def test_each_committed_record_is_in_the_table_once(seed: int) -> None:
    run_simulation(seed, _life)


def test_the_faults_of_the_stories_happen() -> None:
    met: dict[str, int] = {}
    for seed in SEEDS:
        for fault, count in run_simulation(seed, _life).met.items():
            met[fault] = met.get(fault, 0) + count
    wanted = {
        "lost_request",
        "lost_answer",
        "late_request",
        "late request happened",
        "late request failed",
        "false_conflict",
        "foreign snapshot",
    }
    assert wanted <= set(met), met


async def _repeat_blindly(committer: Committer, _: object, wanted: Progress, change: Change, **_more: object) -> bool:
    """Sends each commit again, on top of whatever is there, until one is answered."""
    while True:
        view = await committer._load()
        try:
            committer._view = await committer.table.commit(view.current, change)
        except (CommitConflict, CatalogUnavailable):
            await trio.sleep(1)
        else:
            committer._progress = wanted
            return True


def test_a_committer_that_repeats_without_looking_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Committer, "_land", _repeat_blindly)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_simulation(1, _life)
