"""A dataclass of options is as many options of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from barnabas.cli.option_group import grouped


@dataclass(frozen=True)
class Place:
    host: Annotated[str, typer.Option("--host", "-h")] = "here"
    ports: Annotated[list[int] | None, typer.Option("--port")] = None


@dataclass(frozen=True)
class Needed:
    name: Annotated[str, typer.Option("--name")]


def outcome(*words: str) -> tuple[int, str]:
    app = typer.Typer()

    @app.command()
    @grouped
    def show(what: Annotated[str, typer.Argument()], loud: bool = False, *, needed: Needed, place: Place) -> None:
        """Shows."""
        typer.echo(f"{what} {loud} {needed} {place}")

    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


def test_fields_are_options_with_their_defaults() -> None:
    assert outcome("it", "--name", "n") == (0, "it False Needed(name='n') Place(host='here', ports=None)\n")
    assert outcome("it", "--name", "n", "-h", "there", "--port", "1", "--port", "2", "--loud") == (
        0,
        "it True Needed(name='n') Place(host='there', ports=[1, 2])\n",
    )


def test_a_field_without_a_default_has_to_be_given() -> None:
    code, message = outcome("it")
    assert code == 2
    assert "--name" in message


def test_two_groups_cannot_have_the_same_option() -> None:
    @dataclass(frozen=True)
    class Again:
        host: str = ""

    def show(*, place: Place, again: Again) -> None: ...

    show.__annotations__ = {"place": Place, "again": Again}
    with pytest.raises(AssertionError, match="host"):
        grouped(show)
