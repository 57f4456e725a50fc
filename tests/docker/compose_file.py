"""docker-compose.yml as text: its services, their commands and profiles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_MERGED = re.compile(r"^ *<<: \*([\w-]+)$", re.MULTILINE)


def section(name: str) -> str:
    """The lines of a service, or of what services share."""
    found = re.search(rf"^((?:  )?){name}:.*\n((?:\1 .*\n|\n| *#.*\n)*)", TEXT, re.MULTILINE)
    assert found is not None, name
    return found.group(2)


def services() -> list[str]:
    part = TEXT[TEXT.index("\nservices:\n") : TEXT.index("\nvolumes:\n")]
    return re.findall(r"^  ([\w-]+):$", part, re.MULTILINE)


def command(service: str, variables: Mapping[str, str]) -> list[str]:
    """The words of a service's command, with values for the variables in it."""
    found = re.search(r"^ +command:(?: \[(.*)\]$|\n((?: +- .*\n)+))", section(service), re.MULTILINE)
    assert found is not None, service
    words = found[1].split(", ") if found[1] else re.findall(r"^ +- (.*)$", found[2], re.MULTILINE)
    return [_VARIABLE.sub(lambda each: variables.get(each[1], each[2]), word) for word in words]


def profiles(service: str) -> list[str]:
    """Its own, or those of what it is made of."""
    lines = section(service)
    own = re.search(r"^ +profiles: \[(.*)\]$", lines, re.MULTILINE)
    if own is not None:
        return own[1].split(", ")
    merged = _MERGED.search(lines)
    return [] if merged is None else profiles(f"x-{merged[1]}")


def dependencies(service: str) -> list[str]:
    """Its own, or those of what it is made of."""
    lines = section(service)
    own = re.search(r"^( +)depends_on:(?: \[(.*)\]$| ?(?:&\w+)?\n((?:\1 .*\n)+))", lines, re.MULTILINE)
    if own is not None:
        return own[2].split(", ") if own[2] else re.findall(r"^ +([\w-]+): \{condition", own[3], re.MULTILINE)
    merged = _MERGED.search(lines)
    return [] if merged is None else dependencies(f"x-{merged[1]}")
