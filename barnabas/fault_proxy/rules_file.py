"""Reads rules and faults of links from a YAML file.

rules:
  - Produce topic=orders error=NOT_LEADER_OR_FOLLOWER times=2
  - {api: Fetch, client: board-*, response_delay_ms: 500}
links:
  - {broker: 1, direction: responses, bytes_per_second: 10000}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.cluster.errors import WrongArgument
from barnabas.fault_proxy.fault_rule import FaultRule, make_rule, parse_rule
from barnabas.fault_proxy.link_rule import LinkRule, make_link, parse_link

MOST_FILE_BYTES = 1 << 20
MOST_RULES = 1000


@dataclass(frozen=True, slots=True)
class Faults:
    """The content of a file."""

    rules: list[FaultRule] = field(default_factory=list)
    links: list[LinkRule] = field(default_factory=list)


def read_rules_file(path: Path) -> Faults:
    """Raises `WrongArgument` with file and place."""
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise WrongArgument(f"{path}: larger than {MOST_FILE_BYTES} bytes")
        text = path.read_text("utf-8")
    except OSError as error:
        raise WrongArgument(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WrongArgument(f"{path}: {error}") from None
    return parse_rules(text, str(path))


def parse_rules(text: str, name: str) -> Faults:
    """`name` stands for the text in errors. Raises `WrongArgument`."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise WrongArgument(f"{name}: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not found or not set(found) <= {"rules", "links"}:
        got = ", ".join(map(repr, found)) if isinstance(found, dict) else type(found).__name__
        got = got if found else "nothing"
        raise WrongArgument(f"{name}: must have the lists rules and links, or one of them; got {got}")
    return Faults(
        [rule_of(each, f"{name}: rule {number}") for number, each in enumerate(_list(found, "rules", name), start=1)],
        [link_of(each, f"{name}: link {number}") for number, each in enumerate(_list(found, "links", name), start=1)],
    )


def rule_of(value: Any, where: str) -> FaultRule:
    """The rule of an object, or of a line. Raises `WrongArgument`, whose message begins with `where`."""
    if isinstance(value, str):
        return parse_rule(value)
    if isinstance(value, dict):
        return make_rule(value, where)
    raise WrongArgument(f"{where}: must be a line or an object with api; got {value!r}")


def link_of(value: Any, where: str) -> LinkRule:
    """See `rule_of`."""
    if isinstance(value, str):
        return parse_link(value)
    if isinstance(value, dict):
        return make_link(value, where)
    raise WrongArgument(f"{where}: must be a line or an object; got {value!r}")


def _list(found: dict[str, Any], key: str, name: str) -> list[Any]:
    value = found.get(key) or []
    if not isinstance(value, list) or len(value) > MOST_RULES:
        raise WrongArgument(f"{name}: {key} must be a list of at most {MOST_RULES}; got {type(value).__name__}")
    return value
