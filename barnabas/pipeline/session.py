"""Opens Spark as the pipeline needs it, or says in one line why it cannot be had.

Wherever the session runs: on this machine (`local[*]`), or on any cluster of Spark whose workers have this package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.refusals import refusal

__all__ = ["SPARK_VERSION", "PipelineError", "active_session", "open_session", "refusal", "require_java"]

SPARK_VERSION = "4.2.0"
"""The newest that has a connector of the JVM's side, too, and the first where a Python source may limit a batch."""
JAVA_VERSION = 17
_JAVA_SECONDS = 30

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
    """A SparkSession with these settings of Spark above our own. PipelineError if there is no Spark of our version, or
    no Java. One that is open already is given back as it is.
    """
    require_spark()
    if (present := active_session()) is not None:
        return present
    require_java()
    # Workers are to be the Python that has this package, not the system's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    if master.startswith("local"):
        # Nobody from outside has to reach a driver that has its executors in itself.
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        with _no_jvm_left_behind():
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise PipelineError(f"Spark does not start: {refusal(error).line}") from None
    session.sparkContext.setLogLevel(log_level)
    from barnabas.pipeline.segments import SegmentDataSource
    from barnabas.pipeline.source import BarnabasDataSource

    # Spark finds them by itself where this package is installed, but not where it is only linked to.
    for source in (BarnabasDataSource, SegmentDataSource):
        session.dataSource.register(source)
    return session


@contextmanager
def _no_jvm_left_behind() -> Iterator[None]:
    """Who interrupts a start has no JVM afterwards. PySpark then removes the folder in which its JVM is about to say
    where it listens; that JVM ends no more, and nobody knows of it.
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
        # It is there for the next session of this process, and ends with it.
        raise
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        java_gateway.Popen = before


def active_session() -> Any | None:
    """The session that is open in this process; None if there is none, or no Spark."""
    module = sys.modules.get("pyspark.sql")
    return None if module is None else module.SparkSession.getActiveSession()


def require_spark() -> None:
    """PipelineError unless PySpark is here in our version."""
    try:
        import pyspark
    except ImportError:
        raise PipelineError(
            "PySpark is not installed; the pipeline needs it: pip install 'barnabas[pipeline]'"
        ) from None
    if pyspark.__version__ != SPARK_VERSION:
        raise PipelineError(
            f"PySpark {pyspark.__version__} is installed, and the pipeline needs {SPARK_VERSION}:"
            f" pip install pyspark=={SPARK_VERSION}"
        )


def require_java() -> None:
    """PipelineError unless there is a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = "Spark needs a JDK 17 (Debian: apt install openjdk-17-jdk-headless), or JAVA_HOME that names one"
    if program is None or not os.access(program, os.X_OK):
        raise PipelineError(f"no Java{f' in JAVA_HOME={home}' if home else ''}; {hint}")
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"{program} does not run: {error}; {hint}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA_VERSION:
        version = f"Java {found[1]}" if found else "no Java"
        raise PipelineError(f"{program} is {version}; {hint}")
