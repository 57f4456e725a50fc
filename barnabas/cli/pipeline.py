"""`barnabas pipeline`: its commands are imported on first use, so that all other commands start fast."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command


class Commands(TyperGroup):
    """A group that takes its commands from `pipeline_commands` on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        self._import()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._import()
        return super().get_command(ctx, cmd_name)

    def _import(self) -> None:
        if not self.commands:
            from barnabas.cli import pipeline_commands

            # An app of several commands is a group, which typer's types do not say.
            self.commands.update(get_command(pipeline_commands.app).commands)  # type: ignore[attr-defined]


app = typer.Typer(
    cls=Commands,
    help="Move data between topics and Parquet with Spark, exactly once.",
    epilog="Needs PySpark and a JDK 17; in a checkout of Barnabas: pip install '.[pipeline]'.",
    rich_markup_mode=None,
)
