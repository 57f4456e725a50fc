"""Spark's executors and Python workers import no event loop, and little else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.test_arrows import ROOT, imports, sources

SPARK_SIDE = [
    "barnabas.pipeline.blocking_cluster",
    "barnabas.pipeline.columns",
    "barnabas.pipeline.range_reader",
    "barnabas.pipeline.group_offsets",
    "barnabas.pipeline.filters",
    "barnabas.pipeline.producing",
    "barnabas.pipeline.sink",
    "barnabas.pipeline.segment_plan",
    "barnabas.pipeline.jobs.audit",
    "barnabas.pipeline.jobs.segments",
]
NEVER = {"trio", "pydantic", "typer", "rich", "structlog"}


def loaded_by(module: str) -> set[str]:
    """Modules of a fresh process after the import."""
    program = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_modules_of_executors_import_no_event_loop() -> None:
    pytest.importorskip("pyarrow")
    assert loaded_by(", ".join(SPARK_SIDE)) & NEVER == set()


def test_the_source_imports_no_event_loop() -> None:
    pytest.importorskip("pyspark")
    ours = ["source", "segment_source", "writer"]
    modules = [f"barnabas.pipeline.{name}" for name in ours] + ["pyspark_barnabas", "pyspark_barnabas_segments"]
    assert loaded_by(", ".join(modules)) & NEVER == set()


def test_the_pipeline_sees_of_the_house_what_it_needs() -> None:
    """Not the broker, nor consensus; and of the client its cores and errors, but where the driver asks for topics."""
    for path in sources("barnabas/pipeline"):
        for name in imports(path):
            assert name.split(".")[0] not in {"broker", "kraft"}, f"{path.relative_to(ROOT)} imports {name}"
