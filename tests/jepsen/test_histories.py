"""A history on its way: written while it happens, loaded as columns, judged by `check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from commands import check
from histories.history import INFO, OK, POLL, SEND, UNKNOWN, History
from histories.recorder import HistoryError, Recorder
from histories.synthetic import LegalOptions, Story, legal_history, polled, sent
from histories.views import Views
from operations import NEMESIS, Completion, Moment, Place
from tests.examples import examples
from worlds.cluster import ReplicaView

pytestmark = pytest.mark.feature("FI-01")

RUN = {"name": "a run", "workload": "queue", "options": {"subscribe": True}, "replay": "python jepsen-style run queue"}


def record(directory: Path, story: Story, **more: Any) -> Path:
    with Recorder(directory, {**RUN, **more}) as recorder:
        for each in story.operations:
            content = Completion("info", each.value, each.error, each.node, each.note)
            at = Moment(each.t_ns, each.wall_ms)
            i = recorder.write(at, each.process, each.type, each.f, content, each.client)
            assert i == each.i
        views = [ReplicaView("broker-1", Place("t0", 1), 1, 2, 3, 1, (1, 2))]
        recorder.view(7_000_000, views, {"broker-1": "running"}, "controller-1")
    return directory


def a_story() -> Story:
    story = Story()
    story.send(0, 1, 5, 0)
    story.fault("kill", 3, "broker-1", kind="kill")
    story.invoke(1, "txn", [["send", 1, 6], ["poll"]])
    story.poll(2, {1: [(0, 5)]})
    story.line(1, "info", "txn", [sent(1, 6, None), polled({1: [(0, 5)]})])
    story.fault("start", 3, "broker-1", kind="kill")
    story.invoke(4, "send", [["send", 1, 7]])
    return story


def test_a_recorded_history_is_loaded(tmp_path: Path) -> None:
    story = a_story()
    history = History.load(record(tmp_path / "run", story))
    assert list(history) == story.operations
    operations, micro = history.operations, history.micro
    assert operations.invoked.tolist() == [0, 4, 5, 10]
    assert operations.completed.tolist() == [1, 7, 6, UNKNOWN]
    assert operations.outcome.tolist() == [OK, INFO, OK, INFO]
    assert operations.shown_by.tolist() == [1, 7, 6, 10]
    assert [history.fs[f] for f in operations.f] == ["send", "txn", "poll", "send"]
    assert micro.operation.tolist() == [0, 1, 1, 2, 3]
    assert micro.kind.tolist() == [SEND, SEND, POLL, POLL, SEND]
    assert micro.step.tolist() == [0, 0, 1, 0, 0]
    assert micro.offset.tolist() == [0, UNKNOWN, 0, 0, UNKNOWN]
    assert micro.value.tolist() == [5, 6, 5, 5, 7]
    assert history.process_names == {-1: NEMESIS}
    [fault] = history.faults
    assert (fault.kind, fault.number, fault.targets) == ("kill", 3, ("broker-1",))
    lines = story.operations
    assert (fault.began_ns, fault.acted_ns, fault.ended_ns) == (lines[2].t_ns, lines[3].t_ns, lines[9].t_ns)
    assert history.views.places == [Place("t0", 1)] and history.views.isrs == [(1, 2)]
    assert history.views.t_ns.tolist() == [7_000_000] and history.views.controllers == ["controller-1"]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    directory = record(tmp_path / "run", a_story())
    path = directory / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(History.load(directory)) == 10
    (directory / "views.jsonl").write_bytes(b'{"t_ns": 1, "vie')
    assert len(History.load(directory).views) == 0


def test_an_empty_history_is_one(tmp_path: Path) -> None:
    history = History.load(record(tmp_path / "run", Story()))
    assert len(history) == len(history.operations) == len(history.micro) == 0


def test_a_directory_that_holds_a_run_is_not_written_over(tmp_path: Path) -> None:
    record(tmp_path / "run", a_story())
    with pytest.raises(HistoryError, match="already holds a history"):
        Recorder(tmp_path / "run", RUN)
    with pytest.raises(HistoryError, match="Not a directory"):
        Recorder(tmp_path / "run" / "run.json" / "below", RUN)


def test_a_full_disk_ends_the_run_and_keeps_what_was_written() -> None:
    # A disk that is always full.
    recorder = Recorder.__new__(Recorder)
    recorder.directory, recorder.operations = Path("/dev"), 0
    with open("/dev/full", "wb", buffering=0) as full:
        recorder._history = full
        with pytest.raises(HistoryError, match="No space left on device: the run ends here"):
            recorder.write(Moment(1, 1), 0, "invoke", "send", Completion("info", []))
    assert recorder.operations == 0


def test_facts_known_late_are_amended(tmp_path: Path) -> None:
    directory = record(tmp_path / "run", a_story())
    recorder = Recorder(tmp_path / "other", RUN)
    recorder.amend(cannot={"power": "no root"})
    recorder.close()
    recorder.close()
    assert json.loads((tmp_path / "other" / "run.json").read_text())["cannot"] == {"power": "no root"}
    assert "cannot" not in History.load(directory).run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense\n", "line 12 is no JSON"),
        (b"[]\n", "line 12 is no operation"),
        (b'{"i":11}\n', "line 12 is no operation: KeyError: 'process'"),
        (b'{"i":12,"process":0,"type":"ok","f":"x","t_ns":1,"wall_ms":1}\n', "i is 12 where 11 should be"),
        (b'{"i":11,"process":0,"type":"ok","f":"x","t_ns":99000000,"wall_ms":1}\n', "completes what it did not invoke"),
        (b'{"i":11,"process":4,"type":"invoke","f":"x","t_ns":99000000,"wall_ms":1}\n', "while an operation of it is"),
        (b'{"i":11,"process":9,"type":"invoke","f":"x","t_ns":1,"wall_ms":1}\n', "t_ns goes back from 11000000 to 1"),
        (b'{"i":11,"process":-9,"type":"invoke","f":"x","t_ns":99000000,"wall_ms":1}\n', "process -9 is below zero"),
        (b'{"i":11,"process":9,\n"type":"invoke","f":"x","t_ns":1,"wall_ms":1}\n', "line 12 is no JSON"),
        (b'{"i":11,"value":[1\n2],"process":9,"type":"invoke","f":"x","t_ns":1,"wall_ms":1}\n', "line 12 is no JSON"),
        (b'{"i":11,"process":9},{"i":12,"process":9}\n', "line 12 is no JSON"),
    ],
)
def test_an_error_names_the_number_of_a_bad_line(tmp_path: Path, line: bytes, message: str) -> None:
    directory = record(tmp_path / "run", a_story())
    with open(directory / "history.jsonl", "ab") as file:
        file.write(line)
    with pytest.raises(HistoryError) as error:
        History.load(directory)
    assert message in str(error.value) and "\n" not in str(error.value)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(5), deadline=None)
def test_columns_hold_what_the_lines_hold(seed: int) -> None:
    operations = legal_history(LegalOptions(operations=40), seed)
    history = History.of(operations)
    found = [
        (int(history.operations.shown_by[row]), kind == SEND, key, offset, value)
        for row, kind, key, offset, value in zip(
            *(getattr(history.micro, name).tolist() for name in ("operation", "kind", "key", "offset", "value")),
            strict=True,
        )
    ]
    lines = []
    for each in operations:
        if each.type == "invoke" or each.f not in ("send", "poll", "txn"):
            continue
        for micro in each.value or ():
            if micro[0] == "send":
                offset, value = micro[2]
                lines.append((each.i, True, micro[1], -1 if offset is None else offset, value))
            else:
                lines += [(each.i, False, int(k), o, v) for k, records in micro[1].items() for o, v in records]
    assert sorted(found) == sorted(lines)


# ---- the command


def checked(directory: Path) -> tuple[int, list[str]]:
    import typer

    app = typer.Typer()
    app.command("check")(check.command)
    result = CliRunner().invoke(app, [str(directory)])
    return result.exit_code, result.output.splitlines()


def test_check_says_valid_and_how_to_run_it_again(tmp_path: Path) -> None:
    story = Story()
    story.send(0, 1, 5, 0)
    story.poll(1, {1: [(0, 5)]})
    directory = record(tmp_path / "run", story)
    code, lines = checked(directory)
    assert code == 0, lines
    assert lines[-1] == f"VALID | {directory} | again: python jepsen-style run queue"
    assert json.loads((directory / "verdict.json").read_text())["valid"] == "true"
    assert (directory / "report.html").exists()


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    story = Story()
    story.send(0, 1, 5, 0)
    story.poll(1, {})
    code, lines = checked(record(tmp_path / "run", story))
    assert code == 1
    assert lines[-1].startswith("INVALID: unseen |")
    assert any("Value 5 of t0-1 was acknowledged" in line for line in lines)


def test_check_of_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    code, lines = checked(tmp_path)
    assert code == 2 and len(lines) == 1 and "is no run: it has no run.json" in lines[0]
    code, lines = checked(record(tmp_path / "run", a_story(), workload="knitting"))
    assert code == 2 and len(lines) == 1 and "has no valid workload" in lines[0]


@pytest.mark.parametrize(
    ("workload", "f", "value"),
    [
        ("txn-eos", "transform", {"parts": [[]], "end": True}),
        ("group", "consume", {"parts": [["t", 0, 0, 1, [[0]]]]}),
        ("set", "read", {"parts": [["t", 0, 0, 1, [[0, 1], None]]]}),
    ],
)
def test_a_malformed_operation_is_an_error_of_one_line(tmp_path: Path, workload: str, f: str, value: object) -> None:
    story = Story(workload=workload)
    story.invoke(0, f, {"isolation": "read_committed", "final": True})
    story.line(0, "ok", f, value)
    code, lines = checked(record(tmp_path / "run", story, workload=workload))
    assert code == 2 and len(lines) == 1 and "cannot read this history: " in lines[0]


def test_views_leave_out_topics_of_hostile_clients() -> None:
    """Such a topic is deleted and created again, and a view has no topic id that would show it."""
    view = ("broker-1", "orders", 0, 5, 5, 1, 1, [1])
    hostile = ("broker-1", "hostile-t0", 0, 1, 2, 0, 1, [1])
    views = Views.of([{"t_ns": 0, "views": [view, hostile]}])
    assert [place.topic for place in views.places] == ["orders"]
