"""`make mutants`: change the sources in small ways, and see whether the tests notice.

A run is a sample, drawn by its seed; more time or a larger sample continues the same order. It prints each survivor
and a score for each room. Exit code 1 if the score of all is below `--at-least`, 2 if it cannot run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.rooms import ROOMS, ROOT, Room
from tests.mutants.scores import Score, survivors, table, total, write
from tests.mutants.trying import MOST_SEEDS, SEED, SURVIVED, UNSEEN, Trial, Trying, in_child, try_room

PAGE = ROOT / "docs" / "mutants.md"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description="Change the sources, and see whether tests notice.")
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--minutes", type=float, default=20.0, help="for all rooms together (default: 20)")
    parser.add_argument("--sample", type=int, default=100, help="mutations of each room, at most (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample (default: 1)")
    parser.add_argument("--only", default="", help="mutate only what is in FILE, or at FILE:LINE")
    parser.add_argument("--seeds", type=int, default=0, help="try survivors against so many seeds of the simulation")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="fail below this score")
    parser.add_argument("--write", action="store_true", help=f"put the result into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.rooms if name not in ROOMS]
    if unknown:
        parser.error(f"--rooms: {', '.join(unknown)}: no such room; there are {', '.join(ROOMS)}")
    if arguments.minutes <= 0 or arguments.sample <= 0:
        parser.error("--minutes and --sample must be greater than 0")
    if not 0 <= arguments.seeds <= MOST_SEEDS:
        parser.error(f"--seeds must be from 0 to {MOST_SEEDS}; got {arguments.seeds}")
    scores = []
    began = time.monotonic()
    for place, name in enumerate(arguments.rooms):
        rest = arguments.minutes * 60 - (time.monotonic() - began)
        seconds = rest / (len(arguments.rooms) - place)
        try:
            scores.append(score_of(ROOMS[name], arguments, time.monotonic() + seconds))
        except RuntimeError as error:
            print(f"mutants: {error}", file=sys.stderr)
            return 2
    print(*table(scores), sep="\n")
    if arguments.write:
        words = f"MINUTES={arguments.minutes:g} SEED={arguments.seed} SAMPLE={arguments.sample}"
        if arguments.seeds:
            words += f" ARGS='--seeds {arguments.seeds}'"
        write(PAGE, scores, f"make mutants ROOMS='{' '.join(arguments.rooms)}' {words}")
    percent = total(scores).percent
    return 1 if percent is not None and percent < arguments.at_least else 0


def score_of(room: Room, arguments: argparse.Namespace, ends_at: float) -> Score:
    """In a process of its own: what one room's tests import is nothing to those of another. Raises RuntimeError."""
    log = os.dup(1)

    def report(trial: Trial) -> None:
        if trial.outcome in (SURVIVED, UNSEEN, SEED):
            line = "\n".join(survivors([Score(room.name, 0, [trial])]))
            os.write(log, f"{line}\n".encode())

    def work() -> str:
        trying = Trying(
            room, arguments.seed, arguments.sample, ends_at, arguments.only, report=report, seeds=arguments.seeds
        )
        try:
            try_room(trying)
        except RuntimeError as error:
            return json.dumps({"error": str(error)})
        found = [{name: getattr(trial, name) for name in Trial.__slots__} for trial in trying.trials]
        return json.dumps({"possible": trying.possible, "trials": found})

    ended, answer_text = in_child(work, None)
    os.close(log)
    if not ended:
        raise RuntimeError(f"{room.name}: the process that tries its mutations died")
    answer = json.loads(answer_text)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    if not answer["trials"]:
        print(f"mutants: {room.name}: running its tests once took all of its time: more --minutes", file=sys.stderr)
    return Score(room.name, answer["possible"], [Trial(**trial) for trial in answer["trials"]])


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(main())
