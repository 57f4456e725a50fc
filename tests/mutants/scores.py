"""Results of a run of mutations: a line for each room, and survivors, for a terminal and for docs/mutants.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.trying import EQUIVALENT, KILLED, SEED, SURVIVED, UNSEEN, Trial

BEGIN, END = "<!-- the last run -->", "<!-- its end -->"


@dataclass(frozen=True, slots=True)
class Score:
    """Trials of one room, or of all."""

    room: str
    possible: int
    trials: Sequence[Trial]

    @property
    def counts(self) -> Counter[str]:
        return Counter(trial.outcome for trial in self.trials)

    @property
    def noticeable(self) -> int:
        """Tried, and not equivalent."""
        return len(self.trials) - self.counts[EQUIVALENT]

    @property
    def percent(self) -> float | None:
        """How many of those tests or seeds noticed; None if there was none."""
        killed = self.counts[KILLED] + self.counts[SEED]
        return 100 * killed / self.noticeable if self.noticeable else None

    @property
    def survivors(self) -> list[Trial]:
        found = [trial for trial in self.trials if trial.outcome in (SURVIVED, UNSEEN, SEED)]
        return sorted(found, key=lambda trial: (trial.file, trial.line, trial.change))

    def cells(self) -> list[str]:
        counts, percent = self.counts, self.percent
        shown = "-" if percent is None else f"{percent:.1f} %"
        outcomes = [counts[outcome] for outcome in (EQUIVALENT, KILLED, SEED, SURVIVED, UNSEEN)]
        return [self.room, *map(str, (self.possible, len(self.trials), *outcomes)), shown]


HEADS = ("room", "mutations", "tried", "equivalent", "killed", "by seeds", "survived", "line not run", "score")


def total(scores: Sequence[Score]) -> Score:
    trials = [trial for score in scores for trial in score.trials]
    return Score("all", sum(score.possible for score in scores), trials)


def table(scores: Sequence[Score]) -> Iterator[str]:
    yield f"| {' | '.join(HEADS)} |"
    yield f"| - |{' -: |' * (len(HEADS) - 1)}"
    for score in (*scores, total(scores)):
        yield f"| {' | '.join(score.cells())} |"


def survivors(scores: Sequence[Score]) -> Iterator[str]:
    for score in scores:
        for trial in score.survivors:
            unseen = "" if trial.outcome == SURVIVED else f" ({trial.outcome})"
            yield f"- `{trial.file}:{trial.line}` {trial.change}{unseen}: `{trial.source}`"


def write(path: Path, scores: Sequence[Score], command: str) -> None:
    """Put the last run between the two marks of a page. Raises ValueError, OSError."""
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no {BEGIN} … {END}")
    lines = [BEGIN, "", f"`{command}`", "", *table(scores), "", "Survivors:", "", *survivors(scores), "", END]
    path.write_text(before + "\n".join(lines) + after, encoding="utf-8")
