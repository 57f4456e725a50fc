"""One Spark session for all tests of the pipeline, with few resources; the cluster is `barnabas_cluster`.

Tests that need Spark are skipped without PySpark or without a JDK (`install.sh` installs one).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.session import open_session, require_java
from barnabas.pytest_plugin import BarnabasCluster
from tests.pipeline.typed_commands import Pipeline

JARS = Path(__file__).resolve().parents[2] / ".cache" / "spark-connector"
"""Spark's own Kafka connector, if `install.sh` has fetched it."""

MASTER = "local[2,4]"
"""Two cores and four attempts per task: plain local[2] never retries a task."""


LOOPS = ("trio", "typer")
"""Modules that Spark's workers must not import: an event loop and a command line. (Pydantic is allowed: the generator
of data validates its recipe on executors.)"""


@contextmanager
def without_event_loops(folder: Path) -> Iterator[None]:
    """Workers of a session that is opened within the block fail if they import one."""
    folder.mkdir()
    for name in LOOPS:
        (folder / f"{name}.py").write_text(f"raise ImportError('a worker of Spark imports {name}')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    try:
        require_java()
    except PipelineError as error:
        pytest.skip(error.line)
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
        f" -Dderby.system.home={folder}",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.cleaner.referenceTracking": "false",
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.codegen.wholeStage": "false",
    }
    if jars := sorted(JARS.glob("*.jar")):
        settings["spark.jars"] = ",".join(map(str, jars))
    with without_event_loops(folder / "no-loops"):
        session = open_session(MASTER, "tests of the pipeline", settings)
    yield session
    session.stop()


@pytest.fixture
def pipeline(spark: Any, barnabas_cluster: BarnabasCluster, capsys: pytest.CaptureFixture[str]) -> Pipeline:
    return Pipeline(barnabas_cluster, capsys)
