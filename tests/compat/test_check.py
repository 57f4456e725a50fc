"""`barnabas check` finds the mistakes of applications with other people's clients, and lets correct ones pass.

The first tests are short and leave brokers alone: librdkafka may lock itself up when one goes (`running_programs.py`).
"""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from barnabas.cluster.processes import ProcessId
from tests.compat.check_runs import CheckRun, check, check_example
from tests.compat.running_programs import compile_java, java_command

pytestmark = pytest.mark.compat

SHORT = ("--minutes", "0.2", "--faults", "kill,pause,expire,drop-answers", "--seed", "1")
EXACTLY = ("--promise", "exactly-once")
ORDERED = ("--promise", "ordered")

CORRECT = [
    ("at_least_once", ORDERED, "confluent-kafka"),
    ("exactly_once", EXACTLY + ORDERED, "confluent-kafka"),
    ("aiokafka_at_least_once", ORDERED, "aiokafka"),
    ("barnabas_exactly_once", EXACTLY + ORDERED, "raw sockets"),
    ("to_http", (*ORDERED, "--sink", "http"), "confluent-kafka"),
    ("faust_at_least_once", ORDERED, "faust"),
    ("quixstreams_exactly_once", EXACTLY + ORDERED, "quixstreams"),
    ("KafkaStreamsExactlyOnce", EXACTLY + ORDERED, "java"),
]
WRONG = [
    ("commit_before_work", (), {"lost"}, "confluent-kafka"),
    ("auto_commit_with_pool", (), {"lost"}, "confluent-kafka"),
    ("forgetful_listener", (), {"lost"}, "confluent-kafka"),
    ("read_uncommitted", EXACTLY, {"aborted"}, "confluent-kafka"),
    ("clashing_ids", EXACTLY, {"ended by itself", "stuck"}, "confluent-kafka"),
    ("unsafe_retries", ORDERED, {"reordered"}, "confluent-kafka"),
    ("aiokafka_transactions", EXACTLY, {"doubled"}, "aiokafka"),
    ("faust_background_tasks", (), {"lost"}, "faust"),
    ("quixstreams_defaults", EXACTLY, {"doubled"}, "quixstreams"),
    ("KafkaStreamsDefaults", EXACTLY, {"doubled", "aborted"}, "java"),
    ("KafkaStreamsBuffer", EXACTLY, {"lost"}, "java"),
]


def assert_clean(run: CheckRun) -> None:
    """Whatever the verdict is, nothing runs any more, and the data of the nodes is gone."""
    assert [it for it in run.directory.rglob("*.pid") if (pid := ProcessId.read(it)) is not None and pid.alive] == []
    assert not list(run.directory.glob("cluster/broker-*"))


@pytest.mark.client("confluent-kafka")
def test_a_commit_before_the_work_is_found_with_its_story(tmp_path: Path) -> None:
    run = check_example(tmp_path, "commit_before_work", *SHORT)
    assert run.code == 1, run.printed + run.complaints
    assert run.found["counts"].keys() == {"lost"}
    assert run.printed.startswith("at-least-once is broken: ")
    assert "kill -9 of instance-" in run.printed and ": past " in run.printed
    page = (run.directory / "report.html").read_text()
    assert html.escape(run.printed.splitlines()[0]) in page
    assert_clean(run)


@pytest.mark.client("confluent-kafka")
def test_reading_aborted_records_is_found(tmp_path: Path) -> None:
    run = check_example(tmp_path, "read_uncommitted", "--minutes", "0.1", "--faults", "none", *EXACTLY)
    assert run.code == 1, run.printed + run.complaints
    assert run.found["counts"].keys() == {"aborted"}


@pytest.mark.client("confluent-kafka")
@pytest.mark.parametrize(("name", "promise"), [CORRECT[1][:2]])
def test_a_correct_application_passes(tmp_path: Path, name: str, promise: tuple[str, ...]) -> None:
    run = check_example(tmp_path, name, *SHORT, *promise)
    assert run.code == 0, run.printed + run.complaints
    assert run.found["figures"]["faults"] > 0
    assert run.found["figures"]["outputs"] >= run.found["figures"]["inputs"] > 100
    assert_clean(run)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "promise", "kinds"),
    [
        pytest.param(name, promise, kinds, marks=pytest.mark.client(client), id=name)
        for name, promise, kinds, client in WRONG
    ],
)
def test_each_mistake_is_found_with_the_default_settings(
    tmp_path: Path, name: str, promise: tuple[str, ...], kinds: set[str]
) -> None:
    run = check_example(tmp_path, name, *promise)
    assert run.code == 1, run.printed + run.complaints
    assert kinds & run.found["counts"].keys(), run.printed


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(name, options, marks=pytest.mark.client(client), id=name) for name, options, client in CORRECT],
)
def test_each_correct_application_passes_with_the_default_settings(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    run = check_example(tmp_path, name, *options)
    assert run.code == 0, run.printed + run.complaints


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.client("java")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_application_passes_with_either_group_protocol(tmp_path: Path, libs: Path, protocol: str) -> None:
    """Plain Java learns its place by placeholders in its arguments. It writes `did ` before each value."""
    (tmp_path / "did.py").write_text(
        "import json\ndef identify(key, value):\n    return json.loads(value.removeprefix(b'did '))['id']\n"
    )
    classes = compile_java(tmp_path / "classes", libs)
    words = ("{bootstrap}", "{input}", "{output}", "{group}", "{group}-{instance}", protocol)
    options = ("--promise", "exactly-once,ordered", "--map", str(tmp_path / "did.py"))
    run = check(tmp_path, java_command(classes, libs, "Transform", *words), *options)
    assert run.code == 0, run.printed + run.complaints
