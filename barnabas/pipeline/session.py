"""Opens a Spark session with the settings of the pipeline, or reports in one line why there is none.

The session runs on this machine (`local[*]`) or on any Spark cluster whose workers can import this package; see
docs/pipeline.md for how they get it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.pipeline.errors import INSTALL_HINT, PipelineError
from barnabas.pipeline.spark_errors import refusal

__all__ = ["SPARK_VERSION", "PipelineError", "active_session", "open_session", "refusal", "require_java"]

SPARK_VERSION = "4.2.0"
"""The newest version with a JVM Kafka connector, and the first in which a Python source can limit a micro-batch."""
JAVA_VERSION = 17
_JAVA_SECONDS = 30
WORKER_START_TIMEOUT = "spark.python.authenticate.socketTimeout"
"""Setting: how long Spark waits for a Python worker to start. The default of 15 s is too short on a busy machine."""

DEFAULTS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}


def open_session(
    master: str = "local[*]",
    name: str = "barnabas",
    settings: Mapping[str, str] | None = None,
    *,
    log_level: str = "OFF",
) -> Any:
    """A SparkSession; `settings` override `DEFAULTS`. An active session is returned as it is.

    PipelineError unless PySpark has the version `SPARK_VERSION` and a JDK is found.
    """
    require_spark()
    if (present := active_session()) is not None:
        return present
    require_java()
    # Python workers must run the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    if master.startswith("local"):
        # The executors run inside the driver, so the driver needs no address that others can reach.
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        with _no_jvm_left_behind():
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise PipelineError(f"Spark does not start: {refusal(error).line}") from None
    session.sparkContext.setLogLevel(log_level)
    from barnabas.pipeline.segment_source import SegmentDataSource
    from barnabas.pipeline.source import BarnabasDataSource

    # Spark discovers them only where this package is installed, not where an editable install links to it.
    for source in (BarnabasDataSource, SegmentDataSource):
        session.dataSource.register(source)
    return session


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Discard the standard error of this process and of the processes it starts in the block: a starting JVM prints its
    logging setup and stack traces there. Failures arrive as exceptions.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def _no_jvm_left_behind() -> Iterator[None]:
    """Kill the JVM if its start is interrupted. PySpark would remove the directory in which the JVM is about to write
    its port, and the JVM would run for ever.
    """
    from pyspark import java_gateway

    started: list[subprocess.Popen[Any]] = []

    class Noted(subprocess.Popen[Any]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            started.append(self)

    before, java_gateway.Popen = java_gateway.Popen, Noted
    try:
        yield
    except Exception:
        # The next session of this process uses the JVM, which ends with the process.
        raise
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        java_gateway.Popen = before


def active_session() -> Any | None:
    """The active session of this process, or None."""
    module = sys.modules.get("pyspark.sql")
    return None if module is None else module.SparkSession.getActiveSession()


def require_spark() -> None:
    """PipelineError unless PySpark is installed in `SPARK_VERSION`."""
    try:
        import pyspark
    except ImportError:
        raise PipelineError(
            f"PySpark is not installed, and the pipeline needs it; {INSTALL_HINT}"
        ) from None
    if pyspark.__version__ != SPARK_VERSION:
        raise PipelineError(
            f"PySpark {pyspark.__version__} is installed, and the pipeline needs {SPARK_VERSION}:"
            f" pip install pyspark=={SPARK_VERSION}"
        )


def require_java() -> None:
    """PipelineError unless a JDK of `JAVA_VERSION` or newer is found."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = "Spark needs a JDK 17 (Debian: apt install openjdk-17-jdk-headless), or JAVA_HOME that names one"
    if program is None or not os.access(program, os.X_OK):
        raise PipelineError(f"no Java{f' in JAVA_HOME={home}' if home else ''}; {hint}")
    try:
        asked = [program, "-version"]
        output = subprocess.run(asked, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"{program} does not run: {error}; {hint}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    if found is None or int(found[1]) < JAVA_VERSION:
        version = f"Java {found[1]}" if found else "no Java"
        raise PipelineError(f"{program} is {version}; {hint}")
