"""Core: the principal of a client certificate, as Kafka's brokers name it.

The name of a subject is the one of Java's `X500Principal.getName()` (RFC 2253), byte for byte: access control lists
that were written for Apache Kafka hold here, too. `ssl.principal.mapping.rules` may make a shorter one of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2

from barnabas.runtime.tls.der import elements

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 names; all others are written in numbers."""

_TEXT_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString."""

_VERSION_TAG = 0xA0
_SPECIAL = frozenset(',=+<>#;"\\')
_BLANKS = " \r"


class MalformedName(ValueError):
    """Not the DER encoding of a distinguished name."""


class NoMatchingRule(ValueError):
    """No rule of ssl.principal.mapping.rules applies to a name."""


def subject_of(certificate: bytes) -> bytes:
    """The subject of an X.509 certificate; both in DER. Raises MalformedName."""
    try:
        [(_, _, parts)] = elements(certificate)
        [(_, _, signed), *_] = elements(parts)
        fields = [(tag, whole) for tag, whole, _ in elements(signed)]
        # The version, which may be left out, serial number, algorithm, issuer, validity, subject.
        return fields[5 if fields[0][0] == _VERSION_TAG else 4][1]
    except (ValueError, IndexError) as error:
        raise MalformedName(f"not a certificate: {error}") from error


def distinguished_name(der: bytes) -> str:
    """The text of a Name in DER. Raises MalformedName."""
    try:
        [(_, _, relatives)] = elements(der)
        names = ["+".join(_attribute(each) for each in elements(value)) for _, _, value in elements(relatives)]
    except (ValueError, IndexError) as error:
        raise MalformedName(f"not a distinguished name: {error}") from error
    return ",".join(reversed(names))


def _attribute(element: tuple[int, bytes, bytes]) -> str:
    (_, _, kind), (tag, whole, value) = elements(element[2])
    keyword = _KEYWORDS.get(_dotted(kind))
    if keyword is None or tag not in _TEXT_TAGS:
        return f"{keyword or _dotted(kind)}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(errors='replace'))}"


def _dotted(content: bytes) -> str:
    """An object identifier in numbers."""
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escaped(text: str) -> str:
    escaped = "".join("\\" + char if char in _SPECIAL else "\\00" if char == "\0" else char for char in text)
    inner = escaped.strip(_BLANKS)
    lead = len(escaped) - len(escaped.lstrip(_BLANKS))
    if not inner:
        return "".join("\\" + char for char in escaped)
    trail = escaped[lead + len(inner) :]
    return "".join("\\" + char for char in escaped[:lead]) + inner + "".join("\\" + char for char in trail)


_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class _Rule:
    """`RULE:pattern/replacement/[LU]`, or DEFAULT if there is no pattern."""

    pattern: Any = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = str(self.pattern.sub(self._replaced, name))
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped

    def _replaced(self, match: Any) -> str:
        """The replacement, as `Matcher.appendReplacement` makes it: `$12` is group 1 and a 2 if there are fewer groups,
        `$0` the whole."""
        groups = self.pattern.groups
        result: list[str] = []
        position, text = 0, self.replacement
        while position < len(text):
            char = text[position]
            position += 1
            if char == "\\" and position < len(text):
                result.append(text[position])
                position += 1
                continue
            reference = _REFERENCE.match(text, position - 1) if char == "$" else None
            if reference is None:
                result.append(char)
                continue
            digits = reference[1]
            count = max((n for n in range(1, len(digits) + 1) if int(digits[:n]) <= groups), default=0)
            if count:
                result.append(match[int(digits[:count])] or "")
                position += count
            else:
                result.append(char)
        return "".join(result)


class PrincipalRules:
    """The rules of ssl.principal.mapping.rules: the first that applies makes the name of a principal."""

    def __init__(self, text: str = "DEFAULT") -> None:
        """Raises ValueError."""
        self._text = text
        self._rules = list(_parse(text))

    def name_of(self, distinguished: str) -> str:
        """The name of the principal. Raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(distinguished)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules applies to {distinguished!r}")


def _parse(text: str) -> Iterator[_Rule]:
    for found in _SPLITTER.finditer(text.strip()):
        rule = found[1]
        parts = _PARSER.match(rule)
        if parts is None or parts.end() != len(rule):
            raise ValueError(
                f"ssl.principal.mapping.rules: {rule!r} is no rule; allowed: DEFAULT, RULE:pattern/replacement/[LU]"
            )
        if parts[1] is not None:
            yield _Rule()
        elif parts[2] is not None:
            yield _mapping_rule(parts[2], parts[4], parts[6])


def _mapping_rule(pattern: str, replacement: str, case: str) -> _Rule:
    options = re2.Options()
    options.log_errors = False
    try:
        # A subject, which a client chooses in part, cannot make RE2 slow.
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise ValueError(f"ssl.principal.mapping.rules: {pattern!r} is no pattern of RE2: {reason}") from None
    plain = re.sub(r"\\.", "", replacement)
    if re.search(r"\$(?!\d)", plain) or (not compiled.groups and re.search(r"\$[1-9]", plain)):
        raise ValueError(
            f"ssl.principal.mapping.rules: {replacement!r} names no group of {pattern!r}; allowed: $1, \\$"
        )
    return _Rule(compiled, replacement, case)
