"""Every configuration key of Apache Kafka 4.3: type, default, allowed values. Knows nothing of the effects of a key.

The table is `keys.tsv` beside this file, read on first use. Its column `allowed` is written in a small
language: `1..` from 1 up, `0..1` from 0 to 1, `a|b` one of these (`~a|b` in any case), `1..9|-1` either,
`filled` a non-empty value, `replicas` partition:broker pairs or `*`. If Kafka sets no bound but only some values make
sense (not a session timeout of 0), the table has a bound of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from barnabas.settings.errors import SettingsError

Scope = Literal["broker", "topic", "dynamic", "group", "client-metrics"]
"""`dynamic`: broker keys that are never in a file, only altered while a broker runs."""
KeyType = Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"]
Update = Literal["read-only", "per-broker", "cluster-wide"]
Value = bool | int | float | str | list[str] | None

_WHOLE_NUMBERS = {"int": 1 << 31, "short": 1 << 15, "long": 1 << 63}
_THROTTLED_REPLICAS = re.compile(r"\d+:\d+")
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(?:(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?")
_PLUGIN_PREFIXES = ("rlmm.config.", "rsm.config.", "config.providers.")


@dataclass(frozen=True)
class KeyDefinition:
    """One key."""

    scope: Scope
    name: str
    type: KeyType
    default: str | None
    """None: no value. See `required` for keys that must be set."""
    required: bool
    allowed: str
    update: Update
    """The scope in which a running broker takes a new value."""
    internal: bool

    @property
    def sensitive(self) -> bool:
        return self.type == "password"

    @cached_property
    def attribute(self) -> str:
        """Its name in Python: dots become underscores."""
        return self.name.replace(".", "_")

    @cached_property
    def default_value(self) -> Value:
        return None if self.default is None else self.parse(self.default)

    def parse(self, text: str) -> Value:
        """The typed value of `text`. Raises `SettingsError` (without a place) when it is not allowed."""
        stripped = text.strip()
        try:
            value = _PARSERS[self.type](self.type, stripped)
        except ValueError as error:
            raise self.refusal(text, str(error)) from None
        if self.allowed and not self._allows(value):
            raise self.refusal(text, "out of range" if isinstance(value, int | float) else "not an allowed value")
        return value

    def refusal(self, text: str, problem: str) -> SettingsError:
        """The error for a value that this key does not take."""
        shown = "[hidden]" if self.sensitive else text
        return SettingsError(problem, self.name, shown, self.allowed_in_words())

    def allowed_in_words(self) -> str:
        """The allowed values in words: `1 or more`, `true or false`, `a list of compact, delete`."""
        if self.allowed:
            words = [_rule_in_words(rule) for rule in self.allowed.removeprefix("~").split("|")]
            if ".." not in self.allowed and self.type == "list":
                return "a list of " + ", ".join(words)
            return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
        if self.type == "boolean":
            return "true or false"
        if self.type in _WHOLE_NUMBERS:
            bound = _WHOLE_NUMBERS[self.type]
            return f"{-bound} to {bound - 1}"
        return "a number" if self.type == "double" else ""

    def _allows(self, value: Value) -> bool:
        rules = self.allowed.removeprefix("~").split("|")
        if isinstance(value, int | float):
            return any(_number_fits(rule, value) for rule in rules)
        if self.allowed == "filled":
            return bool(value)
        if self.allowed == "replicas":
            return value in ([], ["*"]) or all(_THROTTLED_REPLICAS.fullmatch(each) for each in cast(list[str], value))
        fold = str.lower if self.allowed.startswith("~") else str
        taken = [fold(rule) for rule in rules]
        return all(fold(each) in taken for each in (value if isinstance(value, list) else [str(value)]))


def _parse_boolean(_type: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def _parse_whole_number(type_: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        raise ValueError("not a whole number")
    number = int(text)
    bound = _WHOLE_NUMBERS[type_]
    if not -bound <= number < bound:
        raise ValueError(f"too large for {'an' if type_ == 'int' else 'a'} {type_}")
    return number


def _parse_double(_type: str, text: str) -> float:
    if not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", text):
        raise ValueError("not a number")
    return float(text)


def _parse_list(_type: str, text: str) -> list[str]:
    return [each.strip() for each in text.split(",")] if text else []


def _parse_string(_type: str, text: str) -> str:
    return text


_PARSERS: dict[KeyType, Callable[[str, str], Value]] = {
    "boolean": _parse_boolean,
    "int": _parse_whole_number,
    "short": _parse_whole_number,
    "long": _parse_whole_number,
    "double": _parse_double,
    "list": _parse_list,
    "string": _parse_string,
    "class": _parse_string,
    "password": _parse_string,
}


def _number_fits(rule: str, number: float) -> bool:
    least, dots, most = rule.partition("..")
    if not dots:
        return number == float(rule)
    return number >= float(least) and (not most or number <= float(most))


def _rule_in_words(rule: str) -> str:
    if rule == "filled":
        return "a non-empty value"
    if rule == "replicas":
        return "pairs partition:broker, or *"
    least, dots, most = rule.partition("..")
    if not dots:
        return rule
    return f"{least} to {most}" if most else f"{least} or more"


@cache
def definitions(scope: Scope) -> MappingProxyType[str, KeyDefinition]:
    """All keys of a scope by name."""
    found = {}
    for line in Path(__file__).with_name("keys.tsv").read_text("utf-8").splitlines():
        if line.startswith(scope + "\t"):
            definition = _read_row(line)
            found[definition.name] = definition
    return MappingProxyType(found)


def _read_row(line: str) -> KeyDefinition:
    scope, name, type_, default, allowed, update, mark = (line.split("\t") + [""] * 4)[:7]
    return KeyDefinition(
        cast(Scope, scope),
        name,
        cast(KeyType, type_),
        None if default in ("NULL", "REQUIRED") else default,
        default == "REQUIRED",
        allowed,
        cast(Update, update or "read-only"),
        mark == "internal",
    )


def find_broker_key(name: str) -> KeyDefinition | None:
    """The definition of a key of a node's file, also of one for a single listener (`listener.name.x.ssl.…`)."""
    return definitions("broker").get(without_listener(name))


def without_listener(name: str) -> str:
    """The key of `listener.name.x.<key>` and of `listener.name.x.<mechanism>.<key>`; other keys as they are."""
    listener = _LISTENER_PREFIX.match(name)
    return name[listener.end() :] if listener else name


def is_beyond_kafka(key: str) -> bool:
    """True for a key of groups or brokers that Apache Kafka 4.3 does not have."""
    return key.startswith(("barnabas.", "errors.deadletterqueue."))


def is_plugin_key(name: str) -> bool:
    """True for keys that are passed to a plug-in under a prefix: every name is valid there."""
    return name.startswith(_PLUGIN_PREFIXES)


def closest_key(name: str, scope: Scope = "broker") -> str | None:
    """The known key closest to `name`; None if none is close."""
    from difflib import get_close_matches  # few programs make mistakes

    near = get_close_matches(name.replace("_", "."), definitions(scope), n=1, cutoff=0.75)
    return near[0] if near else None
