"""Without Spark or Java, one line says what to install."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.session import SPARK_VERSION, active_session, open_session, require_java

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JAVA_HOME without any files."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def java(home: Path, says: str) -> None:
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)


def pyspark(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", module)


def test_a_missing_and_a_wrong_spark_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark(monkeypatch, None)
    with pytest.raises(PipelineError, match=r"pip install '\.\[pipeline\]'"):
        open_session()
    pyspark(monkeypatch, SimpleNamespace(__version__="3.5.1"))
    with pytest.raises(PipelineError, match=r"PySpark 3.5.1 is installed.*pip install pyspark==4.2.0"):
        open_session()


def test_a_missing_java_is_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match=r"no Java in JAVA_HOME=.*Debian: apt install openjdk-17-jdk-headless"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(PipelineError, match="no Java; Spark needs a JDK 17"):
        require_java()
    pyspark(monkeypatch, SimpleNamespace(__version__=SPARK_VERSION))
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    with pytest.raises(PipelineError, match="no Java"):
        open_session()
    assert active_session() is None


@pytest.mark.parametrize("says", ['openjdk version "11.0.2" 2019', 'java version "1.8.0_292"', "what do you want"])
def test_an_old_java_is_an_error(home: Path, says: str) -> None:
    java(home, says)
    with pytest.raises(PipelineError, match=r"is (Java 11|Java 8|no Java); Spark needs a JDK 17"):
        require_java()


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_a_java_of_today_will_do(home: Path, says: str) -> None:
    java(home, says)
    require_java()
    assert os.environ["JAVA_HOME"] == str(home)


JAVA_THAT_ONLY_STARTS = """#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "17.0.1"' >&2 ;;
  *launcher.Main*) printf '\\000\\n%s\\000gateway\\000' "$0" ;;
  gateway) echo $$ > "$0.pid.new"; mv "$0.pid.new" "$0.pid"; exec sleep 60 ;;
esac
"""


@pytest.mark.feature("PL-06")
def test_an_interrupted_start_leaves_no_jvm(home: Path) -> None:
    pytest.importorskip("pyspark")
    program = home / "bin" / "java"
    program.write_text(JAVA_THAT_ONLY_STARTS)
    program.chmod(0o755)
    opening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    opening += "from barnabas.pipeline.session import open_session; open_session()"
    with subprocess.Popen([sys.executable, "-c", opening], cwd=ROOT, stderr=subprocess.PIPE, text=True) as driver:
        pid_file = home / "bin" / "java.pid"
        while not pid_file.exists():
            assert driver.poll() is None, driver.communicate()[1]
            time.sleep(0.02)
        driver.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in driver.communicate(timeout=60)[1]
    assert not Path(f"/proc/{int(pid_file.read_text())}").exists()


def test_nothing_is_logged_beside_the_one_line(home: Path) -> None:
    pytest.importorskip("pyspark")
    program = "import logging; from barnabas.cli.main import run; run(['pipeline', 'snapshot', 't', '--to', 'x'])"
    program += "; logging.error('Exception while sending command.')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert "JDK 17" in done.stderr and len(done.stderr.splitlines()) == 1
