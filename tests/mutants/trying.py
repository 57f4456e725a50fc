"""Tries the mutations of one room inside one pytest process: it collects the tests once, then forks.

The first child runs all tests and notes for each line which of them pass by. Each further child gives one function
other code and runs the tests that pass by its line, quickest first, until one fails. Nothing on the disk changes.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import pytest
from hypothesis import Phase, settings

from tests.mutants.equivalent import Equivalents
from tests.mutants.mutations import Mutation, mutated, mutations_of
from tests.mutants.passing import SEED_TESTS, Passing
from tests.mutants.remembered import Remembered
from tests.mutants.rooms import Room

PROFILE = "mutants"
MOST_SEEDS = 50
PATIENCE_FACTOR, PATIENCE_SECONDS = 5.0, 5.0
"""A test that needs so many times its CPU time, and so many seconds more, is in an endless loop: it has noticed."""
ATTEMPTS = 3
"""A mutant that gets no CPU so often counts as a survivor."""
MEMORY_BYTES = 6 * 1024**3

KILLED, SURVIVED, UNSEEN, EQUIVALENT = "killed", "survived", "no test runs the line", "equivalent"
SEED = "a seed fails"
"""A seed of the simulation notices the mutation, and no test does."""
TIMEOUT = "it takes too long"
"""Killer of a mutant that did not end."""


@dataclass(slots=True)
class Trial:
    """Outcome of one mutation."""

    file: str
    line: int
    source: str
    change: str
    outcome: str
    by: str = ""
    """The test that noticed, or the reason why nobody can."""
    tests: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Trying:
    """A pytest plugin that takes the place of the test loop."""

    room: Room
    seed: int
    sample: int
    """How many mutations at most."""
    ends_at: float
    """By `time.monotonic`."""
    only: str = ""
    """Lines whose `path:number` contains this."""
    report: Callable[[Trial], None] = lambda trial: None
    seeds: int = 0
    """How many seeds of the simulation a survivor is tried against, at most."""
    trials: list[Trial] = field(default_factory=list)
    possible: int = 0
    """How many mutations the room has."""
    error: str = ""

    def pytest_collection(self) -> None:
        """Every mutant meets the same examples; what one leads to is not kept."""
        parent = settings.get_profile("barnabas") if "barnabas" in settings._profiles else settings.default
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            PROFILE, parent, database=None, derandomize=True, phases=phases, report_multiple_bugs=False
        )
        settings.load_profile(PROFILE)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        mutations = [each for path in self.room.files() for each in mutations_of(path)]
        mutations = [each for each in mutations if self.only in f"{each.path}:{each.line}"]
        self.possible = len(mutations)
        random.Random(f"{self.room.name} {self.seed}").shuffle(mutations)
        functions = loaded_functions({str(path) for path in self.room.files()})
        gc.collect()
        gc.freeze()
        remembered = Remembered(self.room)
        passing = remembered.known(items)
        passing = passing.joined(self._measured({test: item for test, item in items.items() if test not in passing}))
        if not passing.failed:
            remembered.keep(passing)
        else:
            self.error = f"tests fail without any mutation: {', '.join(passing.failed[:5])}"
            return True
        equivalents = Equivalents.read()
        for mutation in mutations[: self.sample]:
            if time.monotonic() >= self.ends_at:
                break
            trial = self._try(mutation, passing, items, functions, equivalents)
            self.trials.append(trial)
            self.report(trial)
        return True

    def _measured(self, items: dict[str, pytest.Item]) -> Passing:
        """Run them all, with a look at their lines."""

        def measure() -> str:
            passing = Passing()
            measured = coverage.Coverage(data_file=None, config_file=False, include=[str(p) for p in self.room.files()])
            measured.start()
            for nodeid, failed in run(list(items.values()), measured.switch_context):
                passing.seconds[nodeid] = failed[1]
                if failed[0]:
                    passing.failed.append(nodeid)
            measured.stop()
            data = measured.get_data()
            for file in data.measured_files():
                lines = data.contexts_by_lineno(file)
                passing.tests[file] = {line: sorted(set(tests) & items.keys()) for line, tests in lines.items()}
            return json.dumps(asdict(passing))

        return Passing.read(json.loads(in_child(measure, None)[1])) if items else Passing()

    def _try(
        self,
        mutation: Mutation,
        passing: Passing,
        items: dict[str, pytest.Item],
        functions: dict[tuple[str, str, int], list[FunctionType]],
        equivalents: Equivalents,
    ) -> Trial:
        trial = Trial(
            str(mutation.path.relative_to(self.room.root)), mutation.line, mutation.source, mutation.change, SURVIVED
        )
        reason = equivalents.reason(mutation, self.room.root)
        if reason is not None:
            trial.outcome, trial.by = EQUIVALENT, reason
            return trial
        tests, seeds = passing.tests_for(mutation), passing.tests_for(mutation, seeds=True)
        trial.tests = len(tests)
        if not tests:
            trial.outcome = UNSEEN
        for outcome, chosen in ((KILLED, tests), (SEED, seeds)):
            by, seconds = self._noticed_by(mutation, chosen, passing, items, functions) if chosen else ("", 0.0)
            trial.seconds = round(trial.seconds + seconds, 2)
            if by:
                trial.outcome, trial.by = outcome, by
                break
        return trial

    def _noticed_by(
        self,
        mutation: Mutation,
        tests: list[str],
        passing: Passing,
        items: dict[str, pytest.Item],
        functions: dict[tuple[str, str, int], list[FunctionType]],
    ) -> tuple[str, float]:
        """The first of these tests that fails with the mutation, or TIMEOUT, or ""; and how long it took."""

        def begins(nodeid: str) -> None:
            end_after(PATIENCE_SECONDS + PATIENCE_FACTOR * passing.seconds[nodeid])

        def work() -> str:
            install(mutation, functions)
            chosen = [items[test] for test in tests]
            return next((nodeid for nodeid, (failed, _) in run(chosen, begins) if failed), "")

        ended, result = True, ""
        for _ in range(ATTEMPTS):
            began = time.monotonic()
            try:
                ended, result = in_child(work, PATIENCE_SECONDS)
                break
            except StarvedError:
                continue
        return result if ended else TIMEOUT, time.monotonic() - began


def run(
    items: list[pytest.Item], begins: Callable[[str], None] = lambda nodeid: None
) -> Iterator[tuple[str, tuple[bool, float]]]:
    """Run tests one by one: each one's name, whether it failed, and its CPU time."""
    reports: list[pytest.TestReport] = []
    plugin = _Reports(reports)
    if items:
        items[0].config.pluginmanager.register(plugin)
    for place, item in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else None
        reports.clear()
        begins(item.nodeid)
        began = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        yield item.nodeid, (any(report.failed for report in reports), time.process_time() - began)


@dataclass(slots=True)
class _Reports:
    reports: list[pytest.TestReport]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    __hash__ = object.__hash__


class StarvedError(Exception):
    """The machine had so much else to do that nobody knows whether the child would have ended."""


def in_child(work: Callable[[], str], cpu_seconds: float | None) -> tuple[bool, str]:
    """Whether a forked child came to the end of `work`, and what that gave. It ends after so much CPU time, or six
    times that much time, unless `work` calls `end_after`. Raises StarvedError if it spent half of that waiting for a
    CPU."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            silence()
            if cpu_seconds is not None:
                for signum in (signal.SIGPROF, signal.SIGALRM):
                    signal.signal(signum, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
                end_after(cpu_seconds)
            result = work()
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                pipe.write(result)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        result = pipe.read()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    waited_seconds = seconds_without_cpu(child)
    _, status = os.waitpid(child, 0)
    by_clock = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    if by_clock and cpu_seconds is not None and waited_seconds > 3 * cpu_seconds:
        raise StarvedError
    return status == 0, result


def end_after(cpu_seconds: float) -> None:
    """End this process after so much CPU time from now on, or six times that much time."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, 6 * cpu_seconds)


def seconds_without_cpu(process: int) -> float:
    """Time in which it was ready to run while others ran; 0 where Linux does not count it."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nothing, descriptor)


def loaded_functions(files: set[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """All functions of these files, by file, qualified name and first line. Links in names of files are resolved."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    resolved = cache(os.path.realpath)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (file := resolved(each.__code__.co_filename)) in files:
            code = each.__code__
            found.setdefault((file, code.co_qualname, code.co_firstlineno), []).append(each)
    return found


def install(mutation: Mutation, functions: dict[tuple[str, str, int], list[FunctionType]]) -> None:
    """Give the function of a mutation its other code, wherever it is known by now."""
    module = compile(mutated(mutation), str(mutation.path), "exec", dont_inherit=True)
    changed = next(
        code
        for code in codes(module)
        if code.co_qualname == mutation.function and code.co_firstlineno == mutation.function_line
    )
    for function in functions[str(mutation.path), mutation.function, mutation.function_line]:
        function.__code__ = changed


def codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def try_room(trying: Trying) -> None:
    """Collect the room's tests and try. Raises RuntimeError."""
    room = trying.room
    os.chdir(room.root)
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", "--capture=no", "-m", "not slow"]
    arguments += ["--no-header", "--no-summary", "--disable-warnings", f"--rootdir={room.root}", *room.tests]
    arguments += [f"{SEED_TESTS}::test_every_promise_is_kept[{seed}]" for seed in range(1, trying.seeds + 1)]
    status = pytest.main(arguments, plugins=[trying])
    if trying.error:
        raise RuntimeError(f"{room.name}: {trying.error}")
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"{room.name}: pytest ended with {status}")
