"""The commands of `barnabas pipeline`, each in a file of its own (`pipeline_NAME.py`)."""

from __future__ import annotations

import typer

from barnabas.cli import (
    pipeline_audit,
    pipeline_env,
    pipeline_export,
    pipeline_generate,
    pipeline_lag,
    pipeline_load,
    pipeline_replay,
    pipeline_segments,
    pipeline_snapshot,
    pipeline_table,
)

app = typer.Typer(rich_markup_mode=None)

for _name, _module in (
    ("load", pipeline_load),
    ("export", pipeline_export),
    ("replay", pipeline_replay),
    ("snapshot", pipeline_snapshot),
    ("table", pipeline_table),
    ("lag", pipeline_lag),
    ("generate", pipeline_generate),
    ("segments", pipeline_segments),
    ("audit", pipeline_audit),
    ("env", pipeline_env),
):
    app.command(_name)(_module.command)
