"""`barnabas pipeline env`: with which settings Spark finds the formats of this installation."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from barnabas.cli.output import show_json, show_text
from barnabas.cli.pipeline_session import errors_in_one_line


def command(
    check: Annotated[
        bool,
        typer.Option("--check", help="Look whether Spark would find the formats as the environment is now."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the settings with which Spark finds this installation: eval "$(barnabas pipeline env)".

    Without them, a job of spark-submit, pyspark or an environment that is not activated may end with
    DATA_SOURCE_NOT_FOUND. Exit code 1 if --check finds that it would.
    """
    with errors_in_one_line():
        from barnabas.pipeline.interpreters import check_interpreter, settings_for_spark

        if check:
            path = check_interpreter(os.environ)
            if as_json:
                show_json({"interpreter": path})
            else:
                show_text(f"Spark looks for data sources with {path}, and finds barnabas and barnabas-segments")
            return
        settings = settings_for_spark()
    if as_json:
        show_json(settings)
        return
    for name, value in settings.items():
        show_text(f"export {name}={shlex.quote(value)}")
