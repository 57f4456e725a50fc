"""The Python interpreter with which Spark looks for data sources, and whether it finds the formats of this package.

Spark starts the interpreter of PYSPARK_DRIVER_PYTHON, else of PYSPARK_PYTHON, else the first `python3` in PATH. It does
not matter which interpreter runs the job.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.session import SPARK_VERSION

VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""In the order in which Spark looks at them."""
_SECONDS = 60
_PROBE = """
import pkgutil, sys
try:
    import pyspark
    if pyspark.__version__ != sys.argv[1]:
        sys.exit(f"PySpark {pyspark.__version__} is installed there, and Barnabas needs {sys.argv[1]}")
except ImportError:
    pass
found = any(module.name == "pyspark_barnabas" for module in pkgutil.iter_modules())
try:
    import barnabas.pipeline
except ImportError as error:
    sys.exit(f"Barnabas cannot be imported there: {error}" if found else "Barnabas is not installed there")
if not found:
    sys.exit(
        "Barnabas is an editable install there, which Spark does not look into: register the sources in the job, or"
        " open its session with barnabas.pipeline.session.open_session"
    )
try:
    import numpy, pyarrow
except ImportError as error:
    sys.exit(f"{error} there, which the pipeline needs")
"""
"""Looks for the module as Spark does (`pyspark.sql.worker.lookup_data_sources`). PySpark itself may be missing: Spark
brings its own."""


def settings_for_spark() -> dict[str, str]:
    """Environment variables with which every Spark process of this machine starts the interpreter that runs now."""
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def looks_with(environment: Mapping[str, str]) -> tuple[str, str]:
    """The interpreter that Spark starts to look for data sources, and the variable that names it."""
    for name in VARIABLES:
        if environment.get(name):
            return environment[name], name
    return "python3", "PATH"


def check_interpreter(environment: Mapping[str, str]) -> str:
    """The path of that interpreter. PipelineError, with what to do, unless Spark finds the formats with it."""
    program, variable = looks_with(environment)
    path = shutil.which(program, path=environment.get("PATH", os.defpath))
    if path is None:
        raise PipelineError(f"Spark looks for data sources with {program} ({variable}), which is not there; {_hint()}")
    try:
        asked = subprocess.run(
            [path, "-c", _PROBE, SPARK_VERSION],
            env=dict(environment), capture_output=True, text=True, timeout=_SECONDS, check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"Spark looks for data sources with {path} ({variable}): {error}; {_hint()}") from None
    if asked.returncode:
        lines = asked.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"exit code {asked.returncode}"
        hint = "" if "editable install" in reason else f"; {_hint()}"
        raise PipelineError(f"Spark looks for data sources with {path} ({variable}): {reason}{hint}")
    return path


def _hint() -> str:
    exports = " ".join(f"{name}={path}" for name, path in settings_for_spark().items())
    return f"run Spark with {exports}"
