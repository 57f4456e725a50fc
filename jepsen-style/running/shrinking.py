"""Makes a failing run small: less time, fewer faults, processes, keys, nodes, operations, while it still fails alike.

Works only where a seed gives the same run again: in the simulation. What ends the main phase earlier leaves everything
before as it was, bit for bit; whatever else is changed gives another story, which may happen to fail in the same way.
So every candidate is run. Knows how to make candidates, and no process.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from running.plan import NODES, PAIRS, Plan, WrongPlan, ranges_of

NO_CRASHES_SECONDS = 1e6
LEAST_SECONDS = 2.0
BROKERS_LAST_FIRST = tuple(name for name in reversed(NODES) if "broker" in name)[:-1]
CONTROLLERS_LAST_FIRST = tuple(name for name in reversed(NODES) if "controller" in name)[:-1]


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one run."""

    anomalies: tuple[str, ...]
    """By name, without those that are legal."""
    last_seconds: float | None
    """Since the run began: when the last operation that shows one of them was done."""
    faults: tuple[int, ...]
    """The numbers of those that came about."""
    operations: int
    thought_of: int = 0
    """Operations of the main phase, with those that were left out."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest run that was found."""

    plan: Plan
    trial: Trial
    runs: int


Best = Callable[[], Shrunk]
Tries = Iterator[tuple[str, Plan | None]]
Without = Callable[[Sequence[int], Sequence[int]], tuple[str, dict[str, Any]]]

Attempt = Callable[[Plan], Trial | None]
"""Runs a plan; None if there is no verdict. Raises Enough if there must be no further runs."""


class Enough(Exception):
    """The search ends with what it has."""


def plan_of(command: str) -> Plan:
    """The plan of a command line as `Plan.replay` gives it. Raises WrongPlan."""
    words = shlex.split(command)
    if len(words) < 4 or words[2] != "run":
        raise WrongPlan(f"{command!r} is no command of a run")
    by_option = {each.metadata["option"]: each for each in fields(Plan) if each.metadata}
    given: dict[str, Any] = {}
    left = iter(words[4:])
    for word in left:
        if word not in by_option:
            raise WrongPlan(f"{word}: `run` no longer has this option")
        name = by_option[word].name
        default: Any = by_option[word].default
        if isinstance(default, bool):
            given[name] = True
        elif word in PAIRS:
            given[name] = (*given.get(name, ()), next(left, ""))
        elif isinstance(default, tuple):
            given[name] = tuple(next(left, "").split(","))
        else:
            text = next(left, "")
            try:
                given[name] = text if default is None else type(default)(text)
            except ValueError as error:
                raise WrongPlan(f"{word} {text}: that is no {type(default).__name__}") from error
    return Plan(words[3], **given)


def shrink(plan: Plan, first: Trial, anomaly: str, attempt: Attempt, log: Callable[[str], None]) -> Shrunk:
    """Tries smaller and smaller runs, until none is left that fails in the same anomaly."""
    best = Shrunk(plan, first, 0)

    def better(change: str, candidate: Plan | None) -> None:
        nonlocal best
        if candidate is None or candidate == best.plan:
            return
        trial = attempt(candidate)
        best = replace(best, runs=best.runs + 1)
        fails = trial is not None and anomaly in trial.anomalies
        log(f"{change}: {'fails still' if fails else 'does not fail so'}")
        if fails:
            assert trial is not None
            best = Shrunk(candidate, trial, best.runs)

    progress = True
    while progress:
        progress = False
        for pass_ in PASSES:
            before = best.plan
            tries = pass_(lambda: best)
            try:
                for change, candidate in tries:
                    better(change, candidate)
            except Enough:
                return best
            progress = progress or best.plan != before
    return best


def _shorter(best: Best) -> Tries:
    """The main phase ends sooner: first right after what shows it, then in ever smaller steps."""
    last = best().trial.last_seconds
    if last is not None and last + 1.0 < best().plan.time:
        yield f"{math.ceil(last + 1)} s", _with(best().plan, time=float(math.ceil(last + 1)))
    for part in (0.5, 0.75, 0.9):
        while best().plan.time * part >= LEAST_SECONDS:
            before = best().plan
            seconds = math.floor(before.time * part * 10) / 10
            yield f"{seconds:g} s", _with(before, time=seconds)
            if best().plan == before:
                break


def _fewer_faults(best: Best) -> Tries:
    """None at all; then by halves, quarters and so on."""
    if not best().plan.nemesis:
        return
    yield "no faults", _with(best().plan, nemesis=(), message=(), only_faults=())
    if not best().plan.nemesis:
        return
    yield from _fewer(
        best,
        lambda: list(best().trial.faults),
        lambda left, _gone: (f"faults {_list(left)}", {"only_faults": tuple(map(str, left))}),
    )
    faults = list(best().trial.faults)
    if faults and not best().plan.only_faults:
        yield f"faults {_list(faults)}", _with(best().plan, only_faults=tuple(map(str, faults)))


def _fewer_processes(best: Best) -> Tries:
    """The others have what they are, and more of the rate."""

    def working() -> list[int]:
        plan = best().plan
        return [number for number in range(plan.concurrency) if str(number) not in plan.without_processes]

    def without(_left: Sequence[int], gone: Sequence[int]) -> tuple[str, dict[str, Any]]:
        resting = sorted({*map(int, best().plan.without_processes), *gone})
        return f"without processes {_list(resting)}", {"without_processes": tuple(map(str, resting))}

    yield from _fewer(best, working, without)


def _fewer_nodes(best: Best) -> Tries:
    """One after the other, the last first: the first broker and controller stay."""
    for name in (*BROKERS_LAST_FIRST, *CONTROLLERS_LAST_FIRST):
        before = best().plan
        if name not in before.without_nodes:
            yield f"without {name}", _with(before, without_nodes=(*before.without_nodes, name))


def _fewer_operations(best: Best) -> Tries:
    """By halves, quarters and so on down to single ones."""

    def done() -> list[int]:
        gone = ranges_of(best().plan.without_operations)
        return [number for number in range(best().trial.thought_of) if not any(number in each for each in gone)]

    def without(_left: Sequence[int], gone: Sequence[int]) -> tuple[str, dict[str, Any]]:
        numbers = {*gone, *(number for each in ranges_of(best().plan.without_operations) for number in each)}
        texts = tuple(shown_ranges(sorted(numbers)))
        return f"without {len(numbers)} operations", {"without_operations": texts}

    yield from _fewer(best, done, without)


def _fewer(best: Best, there: Callable[[], list[int]], without: Without) -> Tries:
    """Leaves out a part after the other, as ddmin has it: halves first, and finer where none can go. `there` is what is
    in the best run; `without` gives a name and the changes for (what is left, what goes)."""
    parts = 2
    while True:
        all_ = there()
        if len(all_) < 2:
            return
        size = max(1, len(all_) // parts)
        found = False
        for start in range(0, len(all_), size):
            gone = all_[start : start + size]
            left = [number for number in all_ if not gone[0] <= number <= gone[-1]]
            if not left:
                continue
            before = best().plan
            change, changes = without(left, gone)
            yield change, _with(before, **changes)
            if best().plan != before:
                found = True
                break
        if not found and size == 1:
            return
        parts = 2 if found else parts * 2


def _simpler(best: Best) -> Tries:
    """Fewer processes, operations, keys, and less of what they do."""
    for change, changes in (
        ("no transactions", {"no_transactions": True}),
        ("nobody subscribes", {"assign_only": True}),
        ("nobody crashes", {"crash_every": NO_CRASHES_SECONDS}),
        ("nobody aborts", {"abort_probability": 0.0}),
    ):
        yield change, _with(best().plan, **changes)
    for name in ("concurrency", "keys", "rate"):
        while True:
            before = best().plan
            value = getattr(before, name)
            smaller = value // 2 if isinstance(value, int) else math.floor(value / 2)
            if smaller < 1:
                break
            resting = before.without_processes
            if name == "concurrency":
                resting = tuple(number for number in resting if int(number) < smaller)
            halved = _with(before, **{name: type(value)(smaller)}, without_processes=resting)
            yield f"{name} {smaller:g}", halved
            if best().plan == before:
                break


def _with(plan: Plan, **changes: Any) -> Plan | None:
    """None if a run cannot be so."""
    try:
        return replace(plan, **changes)
    except WrongPlan:
        return None


PASSES = (_shorter, _fewer_faults, _simpler, _fewer_processes, _fewer_nodes, _fewer_operations)
"""In this order: what makes each later run cheaper comes first."""


def shown_ranges(numbers: Sequence[int]) -> Iterator[str]:
    """`7`, `10-19`: of numbers in their order."""
    first = last = -1
    for number in (*numbers, -1):
        if first >= 0 and number == last + 1:
            last = number
            continue
        if first >= 0:
            yield str(first) if first == last else f"{first}-{last}"
        first = last = number


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
