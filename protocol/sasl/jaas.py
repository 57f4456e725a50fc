"""Core: the texts of sasl.jaas.config: `org.example.LoginModule required username="alice" password="…";`.

The grammar is that of Kafka, whose parser cuts the text with Java's StreamTokenizer. One thing differs: a quote that is
not closed on its line is an error. No error contains a value, because values are passwords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")

_WORD_STARTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
_WORD_PARTS = _WORD_STARTS | frozenset("0123456789.-")
_NUMBER_STARTS = frozenset("0123456789.-")
_FIRST_LETTER_BEYOND_ASCII = "\xa0"
_OCTAL = frozenset("01234567")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """The text is not a JAAS configuration."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry of a JAAS configuration."""

    name: str
    """The class: `org.apache.kafka.common.security.plain.PlainLoginModule`."""
    control_flag: str
    """In lower case."""
    options: Mapping[str, str] = field(repr=False)
    """Passwords are among them."""


def parse_jaas(text: str) -> LoginModule:
    """Parse the text of one login module. Raises JaasError."""
    entries = parse_entries(text)
    if len(entries) != 1:
        raise JaasError(f"a JAAS configuration must have one login module; got {len(entries)}")
    return entries[0]


def parse_entries(text: str) -> list[LoginModule]:
    """Parse the text of any number of login modules. Raises JaasError."""
    tokens = _Tokens(text)
    entries = []
    while (token := tokens.next()).kind is not _Kind.END:
        entries.append(_parse_entry(token, tokens))
    if not entries:
        raise JaasError("a JAAS configuration must begin with the class of a login module; it is empty")
    return entries


class _Kind(Enum):
    TEXT = auto()
    """A word, or a text in quotes."""
    SIGN = auto()
    """One character with a meaning of its own, or a number, which is no text to Kafka."""
    END = auto()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _Kind
    text: str = ""
    position: int = 0


class _Tokens:
    """The tokens of a text, one after another."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)

    def next(self) -> _Token:
        return next(self._tokens, _Token(_Kind.END))


def _parse_entry(first: _Token, tokens: _Tokens) -> LoginModule:
    if first.kind is not _Kind.TEXT:
        raise JaasError(f"a JAAS configuration must begin with the class of a login module{_place(first)}")
    flag = tokens.next()
    if flag.kind is not _Kind.TEXT or flag.text.lower() not in CONTROL_FLAGS:
        allowed = ", ".join(CONTROL_FLAGS)
        raise JaasError(f"the class of the login module must be followed by one of {allowed}{_place(flag)}")
    options: dict[str, str] = {}
    while True:
        key = tokens.next()
        if key.kind is _Kind.SIGN and key.text == ";":
            return LoginModule(first.text, flag.text.lower(), options)
        if key.kind is _Kind.END:
            raise JaasError("the JAAS configuration must end with a semicolon")
        if key.kind is not _Kind.TEXT:
            raise JaasError(f"an option must be key=value, its value in quotes unless it is a word{_place(key)}")
        equals = tokens.next()
        if equals.kind is not _Kind.SIGN or equals.text != "=":
            raise JaasError(f"an option must be key=value, its value in quotes unless it is a word{_place(equals)}")
        value = tokens.next()
        if value.kind is not _Kind.TEXT:
            raise JaasError(f"the value of an option must be a word, or a text in quotes{_place(value)}")
        options[key.text] = value.text


def _place(token: _Token) -> str:
    return "; the text ends before" if token.kind is _Kind.END else f": character {token.position + 1}"


def _tokenize(text: str) -> Iterator[_Token]:
    position, end = 0, len(text)
    while position < end:
        letter = text[position]
        if letter <= " ":
            position += 1
        elif letter == "/":
            if (after := _after_comment(text, position)) is None:
                return
            position = after
        elif letter in "\"'":
            value, after = _quoted(text, position)
            yield _Token(_Kind.TEXT, value, position)
            position = after
        elif letter in _NUMBER_STARTS:
            after = _after_number(text, position)
            yield _Token(_Kind.SIGN, "", position)
            position = after
        elif letter in _WORD_STARTS or letter >= _FIRST_LETTER_BEYOND_ASCII:
            after = position + 1
            while after < end and (text[after] in _WORD_PARTS or text[after] >= _FIRST_LETTER_BEYOND_ASCII):
                after += 1
            yield _Token(_Kind.TEXT, text[position:after], position)
            position = after
        else:
            yield _Token(_Kind.SIGN, letter, position)
            position += 1


def _after_comment(text: str, position: int) -> int | None:
    """The position after a comment: `/* … */`, or from a slash to the end of the line. None: the text ends in it."""
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return None if end < 0 else end + 2
    ends = [found for found in (text.find("\n", position), text.find("\r", position)) if found >= 0]
    return min(ends) if ends else None


def _after_number(text: str, position: int) -> int:
    position += 1
    while position < len(text) and text[position] in "0123456789.":
        position += 1
    return position


def _quoted(text: str, start: int) -> tuple[str, int]:
    """(the text in the quotes that begin at `start`, the position after them)"""
    quote, position, end = text[start], start + 1, len(text)
    value: list[str] = []
    while position < end and text[position] not in "\r\n":
        letter = text[position]
        position += 1
        if letter == quote:
            return "".join(value), position
        if letter == "\\" and position < end:
            letter, position = _escaped(text, position)
        value.append(letter)
    raise JaasError(f"a quote is not closed: it begins at character {start + 1}")


def _escaped(text: str, position: int) -> tuple[str, int]:
    """(the character that an escape stands for, the position after it); `position` is that after the backslash."""
    first = text[position]
    if first not in _OCTAL:
        return _ESCAPES.get(first, first), position + 1
    most = 3 if first <= "3" else 2
    after = position + 1
    while after < len(text) and after < position + most and text[after] in _OCTAL:
        after += 1
    return chr(int(text[position:after], 8)), after
