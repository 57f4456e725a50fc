"""The pipeline on a Spark cluster: a standalone master, two workers whose executors get a packed environment as
docs/pipeline.md says, and an executor that is killed meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.session import require_java
from barnabas.pytest_plugin import BarnabasCluster

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 200_000
DEPLOY = "org.apache.spark.deploy"
PATIENCE = 300.0


class SparkCluster:
    """A master and workers, as processes on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self, workers: int) -> None:
        log = self._run("master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.master = self._wait_for(log, r"(spark://127\.0\.0\.1:\d+)")
        for number in range(workers):
            words = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "700m")
            place = ("--work-dir", str(self._folder / f"work-{number}"), self.master)
            log = self._run(f"worker-{number}", f"{DEPLOY}.worker.Worker", *words, *place)
            self._wait_for(log, "(Successfully registered)")

    def executors(self) -> list[int]:
        """Process ids of the executors that run now."""
        found = []
        for process in self._processes[1:]:
            listed = subprocess.run(
                ["ps", "ww", "-o", "pid=,args=", "--ppid", str(process.pid)],
                capture_output=True,
                text=True,
                check=False,
            )
            found += [int(line.split()[0]) for line in listed.stdout.splitlines() if "CoarseGrainedExecutor" in line]
        return found

    def stop(self) -> None:
        executors = self.executors()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=60)
        for pid in executors:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _run(self, name: str, *words: str) -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        with log.open("wb") as stream:
            command = [str(home / "bin" / "spark-class"), *words]
            self._processes.append(subprocess.Popen(command, stdout=stream, stderr=stream, env=environment))
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline and self._processes[-1].poll() is None, log.read_text()
            time.sleep(0.1)
        return found[1]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    cluster = SparkCluster(folder)
    try:
        cluster.start(workers=2)
        yield cluster
    finally:
        cluster.stop()


def packed_environment(folder: Path) -> Path:
    """The archive of docs/pipeline.md, by its commands."""
    python = Path(os.path.realpath(sys.executable))
    pip = [str(folder / "env/bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
    archive = folder / "env.tar.gz"
    for command in (
        [str(python), "-m", "venv", str(folder / "env")],
        [*pip, "--constraint", str(ROOT / "constraints.txt"), str(ROOT), "pyarrow>=15", "numpy>=1.26", "venv-pack"],
        [
            str(folder / "env/bin/venv-pack"),
            *("-p", str(folder / "env"), "-o", str(archive), "--compress-level", "1"),
        ],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=PATIENCE, capture_output=True)
    return archive


@pytest.fixture
def spark_on_processes(tmp_path: Path) -> Iterator[SparkCluster]:
    pytest.importorskip("pyspark")
    try:
        require_java()
    except PipelineError as error:
        pytest.skip(error.line)
    (tmp_path / "spark").mkdir()
    with spark_cluster(tmp_path / "spark") as cluster:
        yield cluster


@pytest.mark.spark
@pytest.mark.slow
def test_an_export_survives_a_killed_executor(
    spark_on_processes: SparkCluster, barnabas_cluster: BarnabasCluster, tmp_path: Path
) -> None:
    archive = packed_environment(tmp_path)
    barnabas = [sys.executable, "-m", "barnabas.cli.main"]
    environment = os.environ | {
        "BARNABAS_BOOTSTRAP_SERVER": barnabas_cluster.bootstrap_servers,
        "PYSPARK_PYTHON": "./env/bin/python",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    barnabas_cluster.create_topic("orders", partitions=3)
    subprocess.run(
        [*barnabas, "perf", "produce", "orders", "--records", str(RECORDS), "--size", "100"],
        env=environment, check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    command = [*barnabas, "pipeline", "export", "orders", "--to", str(tmp_path / "lake"), "--records-per-file", "5000"]
    cluster = ["--master", spark_on_processes.master, "--conf", f"spark.archives={archive}#env"]
    local = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=500m"]
    with subprocess.Popen(
        [*command, *cluster, *local, "--json"], env=environment, cwd=tmp_path, stdout=-1, stderr=-1
    ) as job:
        killed = _kill_an_executor(spark_on_processes, job)
        _, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, errors.decode()
    assert killed
    assert places(tmp_path / "lake") == RECORDS


def _kill_an_executor(cluster: SparkCluster, job: subprocess.Popen[Any]) -> bool:
    """Once its first Python worker runs, so in the middle of a task."""
    deadline = time.monotonic() + PATIENCE
    while job.poll() is None and time.monotonic() < deadline:
        for pid in cluster.executors():
            if "pyspark" in _children(pid):
                os.kill(pid, signal.SIGKILL)
                return True
        time.sleep(0.05)
    return False


def _children(pid: int) -> str:
    """Commands of the processes that a process has started."""
    words = ["ps", "ww", "-o", "args=", "--ppid", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def places(lake: Path) -> int:
    """Number of rows, all of different partition and offset."""
    import duckdb

    rows = "read_parquet($files, hive_partitioning = true)"
    query = f'select count(*), count(distinct (partition, "offset")) from {rows}'
    count, different = duckdb.execute(query, {"files": f"{lake}/topic=*/**/*.parquet"}).fetchall()[0]
    assert count == different
    return int(count)
