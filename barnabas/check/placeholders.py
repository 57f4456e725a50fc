"""Core: how an instance learns its place: environment variables, and placeholders in its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.check.options import Names

SESSION_TIMEOUT_MS = 6000
"""A session timeout that an application may use; the checker does not rely on it."""
_SHORT = {"bootstrap": "BOOTSTRAP_SERVERS", "input": "INPUT_TOPIC", "output": "OUTPUT_TOPIC", "group": "GROUP_ID"}


def environment_of(names: Names, bootstrap_servers: str, instance: int) -> dict[str, str]:
    """The variables of an instance."""
    return {
        "BOOTSTRAP_SERVERS": bootstrap_servers,
        "INPUT_TOPIC": names.input,
        "OUTPUT_TOPIC": names.output,
        "GROUP_ID": names.group,
        "INSTANCE": str(instance),
        "SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
    }


def filled(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command with its placeholders filled: `{bootstrap}`, `{input}`, `{output}`, `{group}`, and the lower-case
    name of each variable. Other braces stay."""
    values = {name.lower(): value for name, value in environment.items()}
    values |= {short: environment[name] for short, name in _SHORT.items()}
    words = []
    for word in command:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)
        words.append(word)
    return words
