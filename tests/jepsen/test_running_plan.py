"""Options of a run: the command that replays it, and errors of one line."""

from __future__ import annotations

import errno
import json
import os
import shlex
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from barnabas.protocol.api_keys import ApiKey
from clients import java_program
from clients.library_missing import LibraryMissing
from commands.run import command
from histories.recorder import HistoryError
from histories.whole import write_whole
from nemeses.messages import Wish, wish_of
from running.experiment import COULD_NOT_RUN, VALID, carry_out
from running.plan import Plan, WrongPlan
from worlds.world_options import NEVER

pytestmark = pytest.mark.feature("FI-01")


def ask(*words: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(words))


def test_the_command_that_replays_says_all_that_is_not_as_usual() -> None:
    plan = Plan(
        "queue", seed=7, cluster="sim", nemesis=("kill", "pause"), time=120.0, rate=200.0, assign_only=True,
        settings=("min.insync.replicas=1", "log.segment.bytes=2000000"), budget=("kill=5",),
    )  # fmt: skip
    assert plan.replay() == (
        "python jepsen-style run queue --seed 7 --cluster sim --nemesis kill,pause --time 120 --rate 200 "
        "--settings min.insync.replicas=1 --settings log.segment.bytes=2000000 --assign-only --budget kill=5"
    )
    assert plan.budgets() == {"kill": 5.0}


def test_the_command_that_replays_a_run_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(
        "list-append", seed=3, cluster="sim", nemesis=("power",), interval=5.0, keys=4, no_transactions=True,
        no_idempotence=True, isolation="read_uncommitted", option=("replicas=2",), store=Path("/tmp/elsewhere"),
    )  # fmt: skip
    carried: list[Plan] = []

    def remember(given: Plan, say: Any, **_more: Any) -> Any:
        carried.append(given)
        raise typer.Exit(VALID)

    monkeypatch.setattr("running.experiment.carry_out", remember)
    ask(*shlex.split(plan.replay())[3:])
    assert carried == [plan]


def test_messages_are_chosen_by_words_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` could not be asked to hold only EndTxn, or to drop only answers to AlterPartition."""
    carried: list[Plan] = []

    def remember(given: Plan, say: Any, **_more: Any) -> Any:
        carried.append(given)
        raise typer.Exit(VALID)

    monkeypatch.setattr("running.experiment.carry_out", remember)
    ask("queue", "--seed", "3", "--message", "EndTxn:hold", "--message", "ALTER_PARTITION:drop:response,VOTE:request")
    [plan] = carried
    assert plan.nemesis == ("message",)
    assert plan.message == ("EndTxn:hold", "ALTER_PARTITION:drop:response", "VOTE:request")
    assert [wish_of(text) for text in plan.message] == [
        Wish(ApiKey.END_TXN, "hold"),
        Wish(ApiKey.ALTER_PARTITION, "drop", "response"),
        Wish(ApiKey.VOTE, direction="request"),
    ]
    assert plan.replay().endswith("--nemesis message --message EndTxn:hold,ALTER_PARTITION:drop:response,VOTE:request")
    ask(*shlex.split(plan.replay())[3:])
    assert carried == [plan, plan]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run", "[default: (local)]"),
        ("suite", "[default: (fresh)]"),
        ("suite", "[default: (one for each processor)]"),
        ("scenario", "[default: (1, 2 and 3 in sim, else 1)]"),
        ("shrink", "[default: (the one that is found most)]"),
    ],
)
def test_the_help_shows_defaults(name: str, message: str) -> None:
    """A default in brackets was parsed as a style, and not shown."""
    app = typer.Typer()
    app.command()(import_module(f"commands.{name}").command)
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert message in " ".join(shown.split())


def test_options_by_name_are_those_of_the_command_line() -> None:
    plan = Plan("queue").with_options(
        {"concurrency": "3", "nemesis-interval": "2.5", "nemesis": "kill", "assign-only": ""}
    )
    assert (plan.concurrency, plan.interval, plan.nemesis, plan.assign_only) == (3, 2.5, ("kill",), True)
    with pytest.raises(WrongPlan, match="no such option"):
        plan.with_options({"colour": "red"})
    with pytest.raises(WrongPlan, match="--concurrency many"):
        plan.with_options({"concurrency": "many"})


def test_a_run_prints_its_seed_and_directory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed its seed only at the end, and nobody knew where to look meanwhile."""
    given: list[Path] = []

    def remember(_plan: Plan, say: Any, *, directory: Path) -> Any:
        given.append(directory)
        raise typer.Exit(VALID)

    monkeypatch.setattr("running.experiment.carry_out", remember)
    words = ("queue", "--seed", "7", "--time", "120", "--store", str(tmp_path))
    message = ask(*words, "--nemesis", "kill,pause", "--cluster", "sim").output
    assert message == f"seed 7: queue on sim for 120 s, nemesis kill,pause | {given[0]}\n"
    assert given[0].parent == tmp_path and given[0].name.startswith("queue-sim-7-")
    message = ask(*words, "--bootstrap", "127.0.0.1:1").output
    assert message == f"seed 7: queue on 127.0.0.1:1 for 120 s, nothing is broken | {given[1]}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quee"], "there is no workload quee; queue?"),
        (["queue", "--cluster", "moon"], "--cluster moon: there is only sim, local"),
        (["queue", "--nemesis", "kill,curse"], "--nemesis curse: there is only kill"),
        *(
            (["queue", "--cluster", world, "--nemesis", f"kill,{fault}"], f"{fault} is not to be had in {world}: ")
            for world, faults in NEVER.items()
            for fault in faults
        ),
        (["queue", "--message", "END_TX"], "END_TX: nobody sends END_TX (END_TXN?); there are PRODUCE, FETCH, "),
        (["queue", "--message", ":hold"], "--message :hold: nobody sends that; there are PRODUCE, "),
        (["queue", "--message", "END_TXN:lose"], "END_TXN:lose: behind END_TXN there may be one of hold, drop"),
        (["queue", "--message", "END_TXN:hold:drop"], "one of hold, drop, delay, reset, and one of request, response"),
        (["queue", "--message", "VOTE", "--cluster", "netns"], "--nemesis message is not to be had in netns"),
        (["queue", "--message", "VOTE", "--bootstrap", "a:1"], "is not ours to break"),
        (["queue", "--without-nodes", "broker-3"], "only --cluster sim can have less nodes"),
        (["queue", "--cluster", "sim", "--without-nodes", "broker-9"], "--without-nodes broker-9: there is only"),
        (["queue", "--cluster", "sim", "--without-nodes", "broker-1,broker-2,broker-3"], "has a broker and"),
        (["queue", "--without-processes", "12"], "--without-processes 12: they are 0 to 11"),
        (["queue", "--without-operations", "9-3"], "operations have numbers from 0 on"),
        (["queue", "--client", "telnet"], "--client telnet: there is only barnabas, confluent, java"),
        (["queue", "--cluster", "sim", "--client", "java"], "only our own client lives in a simulation"),
        (["queue", "--time", "0"], "--time 0: it must be more than 0"),
        (["queue", "--time", "nan"], "--time nan: it must be more than 0"),
        (["queue", "--rate", "inf"], "--rate inf: it must be more than 0"),
        (["queue", "--quiet", "nan"], "are seconds, not below 0"),
        (["queue", "--option", "colour=red"], "--option colour: queue has no such option; it has replicas"),
        (["queue", "--option", "registers=3"], "--option registers: queue has no such option"),
        (["offsets", "--option", "registers=0"], "--option registers=0: a whole number, 1 or more"),
        (["queue", "--option", "replicas=many"], "--option replicas=many: a whole number, 1 or more"),
        (["queue", "--concurrency", "0"], "--concurrency 0: it must be at least 1"),
        (["queue", "--abort-probability", "2"], "it must be from 0 to 1"),
        (["queue", "--settings", "min.insync.replicas"], "it is KEY=VALUE"),
        (["queue", "--settings", "min.insync.replica=2"], "nodes have no such setting; min.insync.replicas?"),
        (["queue", "--settings", "min.insync.replicas=two"], "min.insync.replicas=two: not a whole number; allowed: 1"),
        (["queue", "--budget", "kill=soon"], "it is KIND=SECONDS"),
        (["queue", "--plant", "roses"], "there is no plant roses"),
        (["queue", "--no-idempotence"], "transactions need it"),
        (["queue", "--bootstrap", "a:1", "--nemesis", "kill"], "is not ours to break"),
        (["queue", "--bootstrap", "a:1", "--cluster", "sim"], "--bootstrap is a cluster by itself"),
        (["queue", "--cluster", "bootstrap"], "needs --bootstrap HOST:PORT"),
    ],
)
def test_bad_options_are_an_error_of_one_line(words: list[str], message: str) -> None:
    result = ask(*words)
    assert result.exit_code == COULD_NOT_RUN
    [line] = result.output.strip().splitlines()
    assert message in line


def test_a_bad_bootstrap_address_is_an_error_of_one_line(tmp_path: Path) -> None:
    result = ask("queue", "--bootstrap", "127.0.0.1:nine", "--store", str(tmp_path))
    assert result.exit_code == COULD_NOT_RUN
    assert "must be host:port; got '127.0.0.1:nine'" in result.output
    assert "again: python jepsen-style run queue" in result.output.strip().splitlines()[-1]


def test_contradictory_settings_are_an_error_of_one_line(tmp_path: Path) -> None:
    """Each setting alone is valid."""
    for world in ("sim", "local"):
        result = ask("queue", "--cluster", world, "--settings", "broker.id=7", "--store", str(tmp_path))
        assert result.exit_code == COULD_NOT_RUN
        [seed, line] = result.output.strip().splitlines()
        assert seed.startswith("seed ")
        assert "broker.id=7: differs from node.id; allowed: 1 | " in line


def test_without_java_or_its_jars_a_run_of_them_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LIBS", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}")
    with pytest.raises(LibraryMissing, match="there are no Kafka jars in"):
        java_program.check()

    monkeypatch.setattr("shutil.which", lambda tool: None)
    outcome = carry_out(Plan("queue", clients=("java",), store=tmp_path), print)
    assert outcome.exit_code == COULD_NOT_RUN
    assert outcome.summary == "--client java: there is no java (apt install default-jdk-headless)"


def test_a_history_cut_short_by_a_full_disk_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the simulation writes the logs of its nodes."""

    def full(path: Path, text: str, encoding: str = "utf-8") -> None:
        path.write_bytes(text[:10].encode(encoding))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(_recorder: object, **more: object) -> None:
        if "final_done" in more:
            raise HistoryError("run.json: No space left on device: the run ends here")

    plan = Plan("set", cluster="sim", time=3.0, rate=20.0, concurrency=2, quiet=1.0, store=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("worlds.sim.write_whole", lambda path, text: full(path.with_name(f"{path.name}.new"), text))
        outcome = carry_out(plan, print)
    assert outcome.exit_code == COULD_NOT_RUN and outcome.verdict is not None
    assert outcome.summary.startswith("COULD NOT RUN: ") and "No space left on device" in outcome.summary
    assert outcome.verdict.figures, "what clients saw was checked"

    # The end was not read, and run.json cannot say so any more: nothing is called unseen.
    plan = replace(plan, workload="queue", final=0.0, quiet=0.0, store=tmp_path / "queue")
    with monkeypatch.context() as patched:
        patched.setattr("histories.recorder.Recorder.amend", refuse)
        outcome = carry_out(plan, print)
    assert json.loads((outcome.directory / "run.json").read_text())["final_done"] is False
    assert outcome.verdict is not None and outcome.verdict.valid == "unknown"

    path = tmp_path / "whole"
    write_whole(path, "before")
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "after")
    assert path.read_text() == "before" and not path.with_name("whole.new").exists()


def test_a_store_that_cannot_be_written_to_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    outcome = carry_out(Plan("queue", store=tmp_path / "file"), print)
    assert outcome.exit_code == COULD_NOT_RUN
    assert "name another directory with --store" in outcome.summary
