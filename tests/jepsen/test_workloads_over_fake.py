"""Each workload over an honest Kafka in memory, and over one that lies: the real runner, the real checkers."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkers.all_checkers import check_all, of_workload
from checkers.verdict import Verdict
from clients.client import ClientSettings
from tests.jepsen.fake_client import run_over
from tests.jepsen.fake_kafka import FakeKafka
from workloads.catalogue import make_workload
from workloads.lives import Drain
from workloads.workload import WorkloadOptions

pytestmark = pytest.mark.feature("FI-01", "FI-02", "FI-11")

PROCESSES = 6
WORKLOADS = ("txn-eos", "bank", "set", "group", "offsets", "metadata", "fences", "delayed")

LIES = (
    ("txn-eos", "tear", {"torn-transaction", "lost-write", "G1a"}),
    ("txn-eos", "forget-offsets-of-transactions", {"duplicate-output", "lost-offsets"}),
    ("txn-eos", "other-end", {"lost-write", "G1a", "lost-output", "duplicate-output"}),
    ("bank", "tear", {"torn-transaction"}),
    ("bank", "dirty-reads", {"G1a"}),
    ("bank", "lose", {"torn-transaction", "lost-write"}),
    ("set", "lose", {"unseen"}),
    ("set", "duplicate", {"duplicate"}),
    ("set", "skip", {"skipped-record"}),
    ("group", "two-owners", {"two-owners"}),
    ("group", "skip", {"gap", "skipped-record"}),
    ("group", "forget-offsets", {"lost-commit"}),
    ("offsets", "forget-offsets", {"lost-commit"}),
    ("metadata", "forget-config", {"nonlinearizable"}),
    ("delayed", "early", {"early"}),
    ("delayed", "lose", {"undelivered"}),
    ("fences", "zombies-append", {"zombie-append"}),
    ("fences", "zombies-commit", {"zombie-commit"}),
)
OFTEN = {"tear": 0.1, "other-end": 0.1, "lose": 0.1, "duplicate": 0.1, "skip": 0.1, "dirty-reads": 0.5}


def judged(name: str, tmp_path: Path, kafka: FakeKafka, *, seconds: float) -> Verdict:
    # A crashed client is no zombie: clients of `fences` end when the broker fences them.
    every_seconds = 0.0 if name == "fences" else 1.0
    options = WorkloadOptions(processes=PROCESSES, keys=6, crash_every_seconds=every_seconds)
    workload = make_workload(name, options)
    history = run_over(kafka, workload, tmp_path / "run", processes=PROCESSES, seconds=seconds)
    return check_all(history, of_workload(history.run))


@pytest.mark.parametrize("name", WORKLOADS)
def test_an_honest_cluster_is_valid(name: str, tmp_path: Path) -> None:
    verdict = judged(name, tmp_path, FakeKafka(7, timeouts=0.05), seconds=1.5)
    assert verdict.valid == "true", [finding for finding in verdict.findings if not finding.legal][:3]
    assert verdict.figures[name]


@pytest.mark.parametrize(("name", "lie", "anomalies"), LIES)
def test_a_lie_is_found(name: str, lie: str, anomalies: set[str], tmp_path: Path) -> None:
    kafka = FakeKafka(7, timeouts=0.05, lies={lie: OFTEN.get(lie, 0.7)})
    verdict = judged(name, tmp_path, kafka, seconds={"fences": 4.0, "metadata": 2.0}.get(name, 1.5))
    assert kafka.lies_so_far
    assert verdict.valid == "false"
    assert anomalies & {finding.anomaly for finding in verdict.findings if not finding.legal}


def test_a_seed_gives_the_same_history(tmp_path: Path) -> None:
    for number in ("one", "two"):
        judged("group", tmp_path / number, FakeKafka(3, timeouts=0.05), seconds=0.5)
    one, two = ((tmp_path / number / "run" / "history.jsonl").read_bytes() for number in ("one", "two"))
    assert one == two and one


@pytest.mark.parametrize("name", ["queue", "list-append", *WORKLOADS])
def test_names_in_a_foreign_cluster_begin_with_the_name_of_the_run(name: str, tmp_path: Path) -> None:
    """Its topics stay there; the prefix shows an administrator which ones to delete."""
    kafka, prefix = FakeKafka(7), "queue-bootstrap-7-20261123T120000-"
    options = WorkloadOptions(processes=PROCESSES, keys=6, more={"prefix": prefix})
    run_over(kafka, make_workload(name, options), tmp_path / "run", processes=PROCESSES, seconds=0.5)
    assert kafka.topics or name == "metadata"
    assert all(each.startswith(prefix) for each in (*kafka.topics, *kafka.groups))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_group_protocol_is_an_option(protocol: str) -> None:
    workload = make_workload("group", WorkloadOptions(processes=6, group_protocol=protocol))
    settings = [workload.client_settings(ClientSettings("x:1", "c"), process) for process in range(12)]
    assert {each.group_protocol for each in settings} == {protocol}
    assert [each.group_instance_id for each in settings[:6]] == [each.group_instance_id for each in settings[6:]]
    assert {each.group_instance_id is None for each in settings} == {True, False}


def test_last_reads_wait_for_partitions_of_a_dead_member() -> None:
    """Under Kafka's defaults a KIP-848 session lasts 45 s; records of unassigned partitions were reported as lost."""
    second = 1_000_000_000
    short, long = Drain(6.0), Drain(55.0)
    assert not short.is_over(0) and not long.is_over(0)
    assert short.is_over(9 * second) and not long.is_over(9 * second)
    long.see()
    assert not long.is_over(50 * second) and not long.is_over(107 * second)
    assert long.is_over(108 * second)


@pytest.mark.parametrize(("name", "processes"), [("fences", 3), ("group", 2), ("txn-eos", 1)])
def test_too_few_processes_are_an_error_of_one_line(name: str, processes: int) -> None:
    with pytest.raises(ValueError, match=rf"^{name} takes .*--concurrency \d( or more)?$"):
        make_workload(name, WorkloadOptions(processes=processes))
