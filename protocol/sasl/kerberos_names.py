"""Core: principals of Kerberos, and the rules by which they become Kafka's (`sasl.kerberos.principal.to.local.rules`).

Patterns are RE2's, whose time grows with the length of the name only; names come from clients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import re2

DEFAULT = "DEFAULT"
"""The rule that takes the first part of a name in the default realm."""
LONGEST_NAME = 1024

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(r"DEFAULT|RULE:\[(\d+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?")
_PARAMETER = re.compile(r"\$(\d*)")
_REFERENCE = re.compile(r"\\(.)|\$(\d)", re.DOTALL)


class NoShortName(Exception):
    """A principal has no name in Kafka."""


@dataclass(frozen=True, slots=True)
class KerberosName:
    """`service/host@REALM`; host and realm may be missing."""

    service: str
    host: str | None = None
    realm: str | None = None

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """Raises ValueError."""
        match = _NAME.fullmatch(text)
        if match is None and "@" in text:
            raise ValueError(f"not a name of Kerberos: {text!r}")
        return cls(text) if match is None else cls(match[1], match[2], match[3])

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        return f"{self.service}{host}" + ("" if self.realm is None else f"@{self.realm}")


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    components: int
    """The number of parts of the names it is for, without the realm."""
    form: str
    """The text to match, with `$0` for the realm and `$1` and `$2` for the parts."""
    matches: Any | None
    replaced: Any | None
    replacement: str
    everywhere: bool
    case: str
    """`L`, `U` or empty."""

    def short_name(self, parts: Sequence[str]) -> str | None:
        """None if the rule is not for the name. Raises NoShortName."""
        if len(parts) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda match: parts[int(match[1])], self.form)
        if self.matches is not None and not self.matches.fullmatch(base):
            return None
        if self.replaced is not None:
            base = _replaced(self.replaced, self.replacement, base, everywhere=self.everywhere)
        return _simple(base, self.text, self.case)


class ShortNames:
    """The names of principals by the rules: the first that fits decides."""

    def __init__(self, rules: Sequence[str] = (DEFAULT,), default_realm: str = "") -> None:
        """Raises ValueError for a rule that cannot be used."""
        self._default_realm = default_realm
        self._rules = [None if rule == DEFAULT else _parsed(rule) for rule in rules]
        """None: the default."""

    def of(self, name: KerberosName) -> str:
        """The name of a principal. Raises NoShortName."""
        if len(str(name)) > LONGEST_NAME:
            raise NoShortName(f"a name of more than {LONGEST_NAME} characters")
        if not str(name).isprintable():
            raise NoShortName("a name with characters that cannot be printed")
        if name.realm is None:
            if name.host is None:
                return name.service
            raise NoShortName(f"{name} has no realm")
        parts = [name.realm, name.service] + ([] if name.host is None else [name.host])
        for rule in self._rules:
            if rule is not None:
                found = rule.short_name(parts)
            else:
                found = _simple(name.service, DEFAULT, "") if name.realm == self._default_realm else None
            if found is not None:
                return found
        raise NoShortName(f"no rule of sasl.kerberos.principal.to.local.rules is for {name}")


def _parsed(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a rule: {text!r}; allowed: DEFAULT, or RULE:[n:form](pattern)s/pattern/replacement/g/L")
    components = int(match[1])
    for number in _PARAMETER.findall(match[2]):
        if not number or int(number) > components:
            raise ValueError(f"${number} in {text!r}; allowed: $0 to ${components}")
    matches = None if match[3] is None else _compiled(match[3], text)
    replaced = None if match[4] is None else _compiled(match[4], text)
    replacement = match[5] or ""
    groups = 0 if replaced is None else replaced.groups
    if any(group and int(group) > groups for _, group in _REFERENCE.findall(replacement)):
        raise ValueError(f"the replacement of {text!r} names a group that its pattern does not have")
    return _Rule(text, components, match[2], matches, replaced, replacement, bool(match[6]), match[7] or "")


def _compiled(pattern: str, rule: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"a pattern of {rule!r}: {error.args[0].decode(errors='replace')}") from None


def _replaced(pattern: Any, replacement: str, text: str, *, everywhere: bool) -> str:
    def expanded(match: Any) -> str:
        return _REFERENCE.sub(lambda each: each[1] or match[int(each[2])] or "", replacement)

    return str(pattern.sub(expanded, text, 0 if everywhere else 1))


def _simple(name: str, rule: str, case: str) -> str:
    if "/" in name or "@" in name:
        raise NoShortName(f"{name!r} is not a simple name, after the rule {rule}")
    if case:
        return name.lower() if case == "L" else name.upper()
    return name
