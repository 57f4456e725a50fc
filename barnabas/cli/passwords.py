"""Passwords that a command reads."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from barnabas.cluster.errors import WrongArgument


def read_password(user: str, file: Path | None = None) -> str:
    """The first line of the file, or from a person at a terminal, or the first line of standard input. Raises
    `WrongArgument`."""
    if file is not None:
        password = file.read_text("utf-8").partition("\n")[0].removesuffix("\r")
    elif sys.stdin.isatty():
        password = typer.prompt(f"password of {user}", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise WrongArgument(f"the password of {user} must not be empty")
    return password
