"""The checks of the fault injection suite on histories that no single process holds: split by key over executors.

Reads `history.parquet` and `mops.parquet` of runs. The checkers are not ours: their folders travel to the executors as
a zip. What each says of its keys is put together; what is no matter of single keys (cycles, commits, lag, what replicas
did) is checked here, on the driver, over columns without values. A run of another workload is checked whole, by one
executor.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import barnabas
from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.jobs.history_parts import MICRO, OPERATIONS, Checked, Known, check_parts

RUN, VIEWS = "run.json", "views.jsonl"
SHIPPED = ("checkers", "histories", "operations.py")


@dataclass(frozen=True, slots=True)
class Judged:
    """A run."""

    run_id: str
    verdicts: Mapping[str, Any]
    """By checker: `checkers.verdict.Verdict`."""
    by_key: tuple[str, ...]
    """Those of them that were checked in parts."""
    concluded: tuple[str, str]
    """(`true`, `unknown` or `false`, of all together; why nobody knows)."""
    parts: int
    lines: int

    @property
    def valid(self) -> str:
        return self.concluded[0]

    @property
    def unknown_because(self) -> str:
        return self.concluded[1]

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run_id,
            "valid": self.valid,
            **({"unknown_because": self.unknown_because} if self.unknown_because else {}),
            "lines": self.lines,
            "parts": self.parts,
            "by_key": list(self.by_key),
            "checkers": {
                name: json.loads(json.dumps(asdict(verdict), default=_plain)) for name, verdict in self.verdicts.items()
            },
        }


def checkers_folder(given: str | None = None) -> Path:
    """Where the checkers are. PipelineError."""
    folder = Path(given) if given else Path(barnabas.__file__).resolve().parents[1] / "jepsen-style"
    if not (folder / "checkers" / "split.py").exists():
        raise PipelineError(f"{folder} has no checkers; name the folder jepsen-style of a checkout with --checkers")
    return folder


@dataclass(frozen=True, slots=True)
class Runs:
    """Of different names, and what their run.json tells, both by name."""

    stores: dict[str, Path]
    told: dict[str, dict[str, Any]]


def find_runs(stores: Sequence[str]) -> Runs:
    """PipelineError; WrongUse if something is no run. Needs no Spark."""
    runs = {Path(store).resolve().name: Path(store) for store in stores}
    if len(runs) < len(stores):
        raise WrongUse("two runs of the same name: check them one after the other")
    return Runs(runs, {run_id: _told(store) for run_id, store in runs.items()})


def check(session: Any, found: Runs, folder: Path, parts: int | None = None) -> list[Judged]:
    """Of each run, in the order given. PipelineError; WrongUse if a workload is not known."""
    runs, told = found.stores, found.told
    with _importable(folder), _errors_of_the_suite():
        of_workload = importlib.import_module("checkers.all_checkers").of_workload
        views_of = importlib.import_module("histories.views").Views.load
        for run_id, run in told.items():
            try:
                of_workload(run)
            except ValueError as error:
                raise WrongUse(f"{runs[run_id] / RUN}: {error}") from None
        known = Known(told, {run_id: views_of(store / VIEWS) for run_id, store in runs.items()})
        with zipped(folder) as archive, _without_broadcast_joins(session):
            session.sparkContext.addPyFile(archive)
            checked = check_parts(session, runs, known, parts)
        return [_judged(run_id, store, known, checked) for run_id, store in runs.items()]


def _judged(run_id: str, store: Path, known: Known, checked: Checked) -> Judged:
    """All that was said of a run."""
    split = importlib.import_module("checkers.split")
    conclusion = importlib.import_module("checkers.conclusion")
    run, found = known.told[run_id], checked.verdicts[run_id]
    by_key: tuple[str, ...] = ()
    if run["workload"] in split.WORKLOADS:
        by_key = tuple(found)
        verdicts = {name: split.together(list(map(split.from_json, each))) for name, each in found.items()}
        columns = importlib.import_module("histories.columns")
        verdicts |= split.check_whole(columns.read_whole(store, run, known.views[run_id]))
    else:
        verdicts = {name: split.from_json(each) for name, [each] in found.items()}
    verdicts = split.in_usual_order(run, verdicts)
    promises = importlib.import_module("histories.promises").load(store)
    if promises is not None:
        verdicts["promises"] = conclusion.of_promises(run, promises)
    whole = conclusion.conclude(run, verdicts)
    parts = checked.parts if by_key else 1
    return Judged(run_id, verdicts, by_key, (whole.valid, whole.unknown_because), parts, checked.lines[run_id])


def _told(store: Path) -> dict[str, Any]:
    try:
        run = json.loads((store / RUN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WrongUse(f"{store} is no run: it has no {RUN} (runs are directories below store/)") from None
    except ValueError as error:
        raise PipelineError(f"{store / RUN} is no JSON: {error}") from None
    for name in (OPERATIONS, MICRO):
        if not (store / name).exists():
            raise WrongUse(f"{store} has no {name}: `python jepsen-style check {store}` writes it")
    if not isinstance(run, dict):
        raise PipelineError(f"{store / RUN} is no JSON object")
    return run


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Its modules have plain names, as those of a program do."""
    path = str(folder)
    if path in sys.path:
        yield
        return
    sys.path.insert(0, path)
    try:
        yield
    finally:
        sys.path.remove(path)


@contextmanager
def _errors_of_the_suite() -> Iterator[None]:
    """A history that cannot be read is a failure of the job."""
    error_type = importlib.import_module("histories.recorder").HistoryError
    try:
        yield
    except error_type as error:
        raise PipelineError(str(error)) from None


@contextmanager
def _without_broadcast_joins(session: Any) -> Iterator[None]:
    """A history in Parquet is a hundredth of what it is in memory: by the size of its files Spark would take what has
    ten million lines for small enough to be in the memory of everybody.
    """
    key = "spark.sql.autoBroadcastJoinThreshold"
    before = session.conf.get(key)
    session.conf.set(key, "-1")
    try:
        yield
    finally:
        session.conf.set(key, before)


@contextmanager
def zipped(folder: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="barnabas-checkers-") as directory:
        path = Path(directory) / "barnabas_checkers.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in SHIPPED:
                for source in sorted([folder / name] if name.endswith(".py") else (folder / name).glob("*.py")):
                    archive.write(source, source.relative_to(folder))
        yield str(path)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else list(value)
