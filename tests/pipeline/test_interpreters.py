"""A user runs a job with an environment that is not activated: a command says why Spark finds nothing, and sets it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.interpreters import check_interpreter, looks_with, settings_for_spark
from barnabas.pipeline.session import SPARK_VERSION

pytestmark = pytest.mark.feature("PL-01")

ROOT = Path(__file__).resolve().parents[2]
JOB = """
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    frame = spark.read.format("barnabas").option("bootstrap", "127.0.0.1:1").option("subscribe", "orders").load()
    print("found", sorted(frame.columns))
except Py4JJavaError as error:
    print(error.java_exception.getCondition())
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with what an installation that is not editable puts beside the package."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "pyspark_barnabas.py").write_bytes((ROOT / "pyspark_barnabas.py").read_bytes())
    return folder


def an_interpreter(folder: Path, says: str, code: int) -> str:
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return str(program)


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return {**kept, **variables}


def test_spark_takes_the_drivers_interpreter_before_all_others() -> None:
    both = {"PYSPARK_PYTHON": "a", "PYSPARK_DRIVER_PYTHON": "b"}
    assert looks_with(both) == ("b", "PYSPARK_DRIVER_PYTHON")
    assert looks_with({"PYSPARK_PYTHON": "a"}) == ("a", "PYSPARK_PYTHON")
    assert looks_with({"PYSPARK_PYTHON": ""}) == ("python3", "PATH")


def test_an_interpreter_without_barnabas_is_one_line_that_says_what_to_set(tmp_path: Path) -> None:
    program = an_interpreter(tmp_path, "Traceback\nBarnabas is not installed there", 1)
    with pytest.raises(PipelineError) as refused:
        check_interpreter(environment(PATH=str(tmp_path)))
    assert refused.value.line == (
        f"Spark looks for data sources with {program} (PATH): Barnabas is not installed there; run Spark with"
        f" PYSPARK_PYTHON={sys.executable} PYSPARK_DRIVER_PYTHON={sys.executable}"
    )
    with pytest.raises(PipelineError, match=r"nowhere \(PYSPARK_PYTHON\), which is not there; run Spark with"):
        check_interpreter(environment(PYSPARK_PYTHON="nowhere"))


def test_the_interpreter_of_an_installation_finds_the_formats(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    here = environment(**settings_for_spark())
    assert check_interpreter({**here, "PYTHONPATH": str(installed)}) == sys.executable
    other = tmp_path / "pyspark"
    other.mkdir()
    (other / "__init__.py").write_text("__version__ = '3.5.1'\n")
    with pytest.raises(PipelineError, match=f"PySpark 3.5.1 is installed there, and Barnabas needs {SPARK_VERSION}"):
        check_interpreter({**here, "PYTHONPATH": str(tmp_path)})


def test_the_command_prints_what_a_shell_can_evaluate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "env"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert dict(words[1].split("=", 1) for words in lines if words[0] == "export") == settings_for_spark()
    assert run(["pipeline", "env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == settings_for_spark()


def test_the_check_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", an_interpreter(tmp_path, "", 0))
    assert run(["pipeline", "env", "--check"]) == 0
    assert "and finds barnabas" in capsys.readouterr().out
    an_interpreter(tmp_path, "Barnabas is not installed there", 1)
    assert run(["pipeline", "env", "--check"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


@pytest.mark.spark
def test_a_job_of_an_environment_that_is_not_activated_finds_the_format_by_the_printed_settings(
    spark: Any, installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    another = elsewhere / "python3"
    another.write_text(f"#!/bin/sh\nexec {os.path.realpath(sys.executable)} \"$@\"\n")
    another.chmod(0o755)
    plain = environment(PATH=f"{elsewhere}{os.pathsep}{os.environ['PATH']}")

    def job(variables: dict[str, str]) -> str:
        words = [sys.executable, str(tmp_path / "job.py")]
        ran = subprocess.run(words, env=variables, cwd=tmp_path, stdout=-1, stderr=-1, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
        return ran.stdout.decode().strip()

    assert job(plain) == "DATA_SOURCE_NOT_FOUND"
    with pytest.raises(PipelineError, match="Barnabas is not installed there; run Spark with PYSPARK_PYTHON="):
        check_interpreter(plain)
    run(["pipeline", "env", "--json"])
    settings = json.loads(capsys.readouterr().out)
    assert job({**plain, **settings, "PYTHONPATH": str(installed)}).startswith("found ['key'")
