"""`shrink DIR`: the smallest run that fails as this one did."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from running.children import CHILDREN
from running.plan import Plan, WrongPlan
from running.processes import COULD_NOT_RUN, VALID, do, story_of
from running.shrinking import Enough, Trial, plan_of, shrink


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="of a run that failed: store/...")],
    anomaly: Annotated[
        str | None, typer.Option(help="which must stay", show_default="the one that is found most")
    ] = None,
    minutes: Annotated[float, typer.Option(help="that the search may take")] = 15.0,
) -> None:
    """Drops time, faults, processes, keys, nodes and single operations while the run still fails in the same anomaly.

    Exit code 0: the smallest command is the last line; 2: there is nothing to be shrunk.
    """
    try:
        plan, first, anomaly = _read(directory, anomaly)
    except (WrongPlan, OSError, ValueError, KeyError) as error:
        typer.echo(f"{directory}: {error if isinstance(error, WrongPlan) else _no_run(error)}", err=True)
        raise typer.Exit(COULD_NOT_RUN) from error
    deadline = time.monotonic() + minutes * 60

    with tempfile.TemporaryDirectory(prefix="shrink-") as store, CHILDREN.ended_by_signals():

        def attempt(candidate: Plan) -> Trial | None:
            if time.monotonic() > deadline:
                raise Enough
            done = do(plan_words(candidate), Path(store) / "runs")
            if CHILDREN.interrupted:
                raise Enough
            return None if done.exit_code == COULD_NOT_RUN or done.directory is None else _trial(done.directory)

        typer.echo(f"{anomaly}: {_size(plan, first)}")
        shrunk = shrink(plan, first, anomaly, attempt, typer.echo)
    if CHILDREN.interrupted:
        typer.echo("interrupted: this is the smallest so far")
    elif time.monotonic() > deadline:
        typer.echo(f"the search ended after {minutes:g} minutes: --minutes for more")
    typer.echo(f"{anomaly} after {shrunk.runs} runs: {_size(shrunk.plan, shrunk.trial)}")
    typer.echo(shrunk.plan.replay())
    raise typer.Exit(VALID)


def plan_words(plan: Plan) -> list[str]:
    """The words after `python jepsen-style`, without the directory of the run."""
    words = list(plan.words())
    if "--store" in words:
        at = words.index("--store")
        del words[at : at + 2]
    return words


def _read(directory: Path, anomaly: str | None) -> tuple[Plan, Trial, str]:
    """Raises WrongPlan, one line, if it makes no sense."""
    run = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    plan = plan_of(run["replay"])
    if plan.cluster != "sim":
        raise WrongPlan(
            f"a run in {plan.cluster} is not the same again; only those of --cluster sim are: "
            f"try `run {plan.workload} --cluster sim` with these faults"
        )
    found = json.loads((directory / "verdict.json").read_text(encoding="utf-8"))["findings"]
    names = Counter(each["anomaly"] for each in found if not each["legal"])
    if not names:
        raise WrongPlan("this run has not failed: there is nothing to be shrunk")
    if anomaly is not None and anomaly not in names:
        raise WrongPlan(f"--anomaly {anomaly}: this run has only {', '.join(names)}")
    chosen = anomaly or names.most_common(1)[0][0]
    trial = _trial(directory)
    if trial is None:
        raise WrongPlan("it has no verdict and history that can be read: `check` it first")
    return plan, trial, chosen


def _trial(directory: Path) -> Trial | None:
    story = story_of(directory)
    if story is None:
        return None
    return Trial(story.anomalies, story.last_seconds, story.faults, story.operations, story.thought_of)


def _size(plan: Plan, trial: Trial) -> str:
    return f"{plan.time:g} s, {trial.operations} operations, {len(trial.faults)} faults"


def _no_run(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename and Path(error.filename).name}: {error.strerror}: it is no directory of a run"
    return "its run.json or verdict.json cannot be read: `check` it first"
