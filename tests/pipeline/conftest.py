"""One Spark session for all tests of the pipeline, as cheap as Spark can be had; the cluster is `barnabas_cluster`.

Tests that need Spark are skipped where there is none: without PySpark, or without a JDK (`install.sh` brings one).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.session import open_session, require_java
from barnabas_pytest import BarnabasCluster
from tests.pipeline.typed import Pipeline

JARS = Path(__file__).resolve().parents[2] / ".cache" / "spark-connector"
"""Spark's own Kafka connector, if `install.sh` could fetch it."""

MASTER = "local[2,4]"
"""Two cores, and four attempts for a task: plain local[2] never tries one twice."""


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
    session = open_session(MASTER, "tests of the pipeline", settings)
    yield session
    session.stop()


@pytest.fixture
def pipeline(spark: Any, barnabas_cluster: BarnabasCluster, capsys: pytest.CaptureFixture[str]) -> Pipeline:
    return Pipeline(barnabas_cluster, capsys)
