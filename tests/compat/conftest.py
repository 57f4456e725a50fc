"""A real cluster for other people's clients, and a final table of the results of each.

Tests name the clients they use: `@pytest.mark.client("kcat")`. `install.sh` lists clients that
are missing on this machine in `.cache/compat/missing`; their tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.available import kafka_libs, lacking, missing, package_of
from tests.compat.java import Java
from tests.compat.running import QUICK_GROUPS, RunningCluster

NO_CLIENT = "raw sockets"
TEST_SECONDS = 400
"""No test takes half of it on a busy machine."""
_OUTCOMES = ("passed", "skipped", "failed")

_counts: dict[str, dict[str, int]] = {}
_seconds: dict[str, float] = {}
_excused: list[str] = []
_unexcused: list[str] = []
_notes: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-client",
        action="store_true",
        help="A test that is skipped, though its client could be had, fails the run.",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A client that hangs, in C maybe, ends the run with the stacks of all threads; it would hang all night."""
    for item in items:
        if item.get_closest_marker("compat") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS, method="thread"))


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python reads its schemas the old way.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    config.addinivalue_line("markers", "client(*names): other people's clients that this test uses")


def clients_of(item: pytest.Item) -> list[str]:
    names = [name for mark in item.iter_markers("client") for name in mark.args]
    return names or [NO_CLIENT]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for client in clients_of(item):
        if why := lacking(client):
            pytest.skip(f"{client}: {why}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if item.get_closest_marker("compat"):
        report.user_properties.append(("compat_clients", clients_of(item)))
    if report.failed:
        fixtures = getattr(item, "funcargs", {}).values()
        for number, cluster in enumerate(each for each in fixtures if isinstance(each, RunningCluster)):
            report.sections.append((f"nodes of cluster {number}", "\n".join(cluster.last_words())))
        report.sections.append(("the machine", "".join(_lines_of_machine())))


def _lines_of_machine() -> Iterator[str]:
    """Whether it was too busy, or waited for its disk, or its host gave the time to others (`steal`, 8th of `cpu`)."""
    for name in ("loadavg", "pressure/cpu", "pressure/io", "pressure/memory", "stat"):
        path = Path("/proc") / name
        if path.exists():
            yield f"{name}: {path.read_text().splitlines()[0]}\n"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    clients = [name for key, value in report.user_properties if key == "compat_clients" for name in value]
    if report.when == "call":
        _notes.extend(str(value) for key, value in report.user_properties if key == "compat_note")
    for client in clients:
        _seconds[client] = _seconds.get(client, 0.0) + report.duration
        if report.when == "call" or report.outcome != "passed":
            counts = _counts.setdefault(client, dict.fromkeys(_OUTCOMES, 0))
            counts[report.outcome] += 1
    if clients and report.outcome == "skipped":
        impossible = any(missing().get(package_of(client), ("", ""))[0] == "impossible" for client in clients)
        (_excused if impossible else _unexcused).append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("every_client", False) and _unexcused and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _counts:
        return
    terminalreporter.section("other people's clients")
    for note in _notes:
        terminalreporter.write_line(note)
    terminalreporter.write_line(f"{'client':<18}{'passed':>8}{'skipped':>9}{'failed':>8}{'seconds':>9}")
    for client in sorted(_counts):
        passed, skipped, failed = (_counts[client][outcome] for outcome in _OUTCOMES)
        terminalreporter.write_line(f"{client:<18}{passed:>8}{skipped:>9}{failed:>8}{_seconds[client]:>9.1f}")
    for thing, (kind, why) in missing().items():
        terminalreporter.write_line(f"not here ({kind}): {thing}: {why}")
    if _unexcused:
        terminalreporter.write_line(f"skipped though it could be had: {', '.join(_unexcused)}")


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Lines for the summary at the end; they travel with the test's report, from other processes, too."""
    return lambda line: request.node.user_properties.append(("compat_note", line))


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One for all tests that leave its nodes alone."""
    cluster = RunningCluster.start_new(tmp_path_factory.mktemp("cluster"), QUICK_GROUPS)
    yield cluster
    killed = cluster.down()
    assert killed == [], "nodes that did not leave in good order"


@pytest.fixture
def cluster(shared_cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The shared one; after the test its nodes are the same processes, and have logged no mistake of theirs."""
    pids, sizes = shared_cluster.pids(), shared_cluster.log_sizes()
    yield shared_cluster
    assert shared_cluster.pids() == pids
    assert shared_cluster.trouble(sizes) == []


@pytest.fixture(scope="session")
def libs() -> Path:
    """The directory with Kafka's jars; only for tests of the client `java`."""
    libs = kafka_libs()
    assert libs is not None
    return libs


@pytest.fixture(scope="session")
def shared_java(shared_cluster: RunningCluster, libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Java:
    java = Java(libs, shared_cluster.bootstrap_servers)
    return java.with_archive(tmp_path_factory.mktemp("java") / "classes.jsa")


@pytest.fixture
def java(cluster: RunningCluster, shared_java: Java) -> Java:
    """Kafka's tools against the shared cluster."""
    return shared_java
