"""Core: what a pattern says: RE2's syntax, read into a tree.

Neither back references nor looking around are there (RE2 has neither), so that what is left can be matched in linear
time. Whether repetitions are lazy changes nothing: only whether all of a text matches is ever asked.

https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from broker.character_sets import (
    EVERY,
    LAST_CODE,
    NEWLINE,
    CharacterSet,
    character_range,
    literal,
    perl_class,
    posix_class,
    unicode_class,
    union,
)

MOST_REPETITIONS = 1000
"""RE2's bound for the numbers in `x{n,m}`."""
DEEPEST_NESTING = 100
LARGEST_PROGRAM = 10_000
"""Instructions. A pattern that needs more is refused, as RE2 refuses what needs too much memory."""


class PatternError(ValueError):
    """The text is no pattern of RE2; `str()` says why."""


class One(NamedTuple):
    """One character out of these."""

    characters: CharacterSet
    size: int


class Condition(Enum):
    """On the place between two characters."""

    TEXT_BEGINS = auto()
    TEXT_ENDS = auto()
    LINE_BEGINS = auto()
    LINE_ENDS = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()


class Here(NamedTuple):
    """Nothing, but only where this holds."""

    condition: Condition
    size: int = 1


class Sequence(NamedTuple):
    parts: tuple[Node, ...]
    size: int


class Choice(NamedTuple):
    parts: tuple[Node, ...]
    size: int


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None
    size: int


Node = One | Here | Sequence | Choice | Repeat
"""`size` is how many instructions it takes, about."""


def parse(text: str) -> Node:
    """Raises PatternError."""
    return _Parser(text).parse()


@dataclass(frozen=True, slots=True)
class _Flags:
    """(?imsU). U, for lazy repetitions, changes nothing here."""

    ignore_case: bool = False
    lines: bool = False
    """^ and $ hold at the ends of lines, too."""
    dot_is_all: bool = False

    def switched(self, flag: str, on: bool) -> _Flags:
        name = {"i": "ignore_case", "m": "lines", "s": "dot_is_all"}.get(flag)
        return self if name is None else replace(self, **{name: on})


def _checked(size: int) -> int:
    if size > LARGEST_PROGRAM:
        raise PatternError("the pattern is too large")
    return size


def _one(characters: CharacterSet) -> One:
    return One(characters, _checked(1 + len(characters.parts)))


def _sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts), _checked(sum(part.size for part in parts)))


def _choice(parts: list[Node]) -> Node:
    if len(parts) == 1:
        return parts[0]
    return Choice(tuple(parts), _checked(sum(part.size for part in parts) + 2 * len(parts)))


class _Parser:
    """Reads one pattern, once, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._depth = 0
        self._names: set[str] = set()
        self._flags = _Flags()
        """Those that hold here."""

    def parse(self) -> Node:
        node = self._alternatives()
        if self._place < len(self._text):
            raise PatternError("unexpected )")
        return node

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _next(self, missing: str) -> str:
        if self._place >= len(self._text):
            raise PatternError(missing)
        self._place += 1
        return self._text[self._place - 1]

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._place):
            return False
        self._place += len(text)
        return True

    def _alternatives(self) -> Node:
        """Up to the end or the closing parenthesis of this group."""
        choices: list[Node] = []
        parts: list[Node] = []
        while (ahead := self._peek()) and ahead != ")":
            if self._accept("|"):
                choices.append(_sequence(parts))
                parts = []
            else:
                self._item(parts)
        choices.append(_sequence(parts))
        return _choice(choices)

    def _item(self, parts: list[Node]) -> None:
        if self._accept("\\Q"):
            quoted, _, _ = self._text[self._place :].partition("\\E")
            self._place += len(quoted)
            self._accept("\\E")
            parts += [self._literal(character) for character in quoted]
            _checked(len(parts))
            if not quoted:
                return
        else:
            atom = self._atom()
            if atom is not None:
                parts.append(atom)
            elif not parts:
                return
        parts[-1] = self._repeated(parts[-1])

    def _atom(self) -> Node | None:
        """None for what only sets flags."""
        character = self._next("nothing there")
        if character == "(":
            return self._group()
        if character == "[":
            return _one(self._class())
        if character == ".":
            return _one(EVERY if self._flags.dot_is_all else ~NEWLINE)
        if character == "^":
            return Here(Condition.LINE_BEGINS if self._flags.lines else Condition.TEXT_BEGINS)
        if character == "$":
            return Here(Condition.LINE_ENDS if self._flags.lines else Condition.TEXT_ENDS)
        if character == "\\":
            return self._escape()
        if character in "*+?" or (character == "{" and self._bounds_at(self._place - 1) is not None):
            raise PatternError(f"nothing to repeat before {character}")
        return self._literal(character)

    def _literal(self, character: str) -> One:
        return _one(literal(character, any_case=self._flags.ignore_case))

    # -- groups

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            raise PatternError("groups are nested too deeply")
        outer = self._flags
        if self._accept("?") and not self._group_head():
            self._depth -= 1
            return None
        node = self._alternatives()
        if not self._accept(")"):
            raise PatternError("missing )")
        self._depth -= 1
        # Flags that were set within end with it.
        self._flags = outer
        return node

    def _group_head(self) -> bool:
        """Behind `(?`. False if that was all: flags for the rest of the group around it."""
        if self._accept("P<") or (self._peek() == "<" and self._text[self._place + 1 : self._place + 2] not in "=!"):
            self._accept("<")
            name, closed, _ = self._text[self._place :].partition(">")
            if not closed or not name.isascii() or not name.replace("_", "a").isalnum():
                raise PatternError("invalid name of a group")
            if name in self._names:
                raise PatternError(f"two groups are called {name}")
            self._names.add(name)
            self._place += len(name) + 1
            return True
        switch_on = True
        seen = False
        while True:
            character = self._next("missing )")
            if character in "imsU":
                seen = True
                self._flags = self._flags.switched(character, switch_on)
            elif character == "-" and switch_on:
                switch_on, seen = False, False
            elif character in ":)" and (seen or switch_on):
                return character == ":"
            else:
                raise PatternError(f"(?{character} is not supported")

    # -- repetition

    def _bounds_at(self, place: int) -> tuple[int, int | None, int] | None:
        """`{n}`, `{n,}` or `{n,m}` at this place, and where it ends. None: the brace is a character like others."""
        closing = self._text.find("}", place, place + 16)
        if closing < 0:
            return None
        least, comma, most = self._text[place + 1 : closing].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        if not comma:
            return int(least), int(least), closing + 1
        return int(least), int(most) if most else None, closing + 1

    def _repeated(self, atom: Node) -> Node:
        count = 0
        while True:
            place = self._place
            if self._accept("*"):
                atom = Repeat(atom, 0, None, _checked(atom.size + 2))
            elif self._accept("+"):
                atom = Repeat(atom, 1, None, _checked(atom.size * 2 + 2))
            elif self._accept("?"):
                atom = Repeat(atom, 0, 1, _checked(atom.size + 2))
            elif self._peek() == "{" and (bounds := self._bounds_at(self._place)) is not None:
                least, most, self._place = bounds
                if max(least, most or 0) > MOST_REPETITIONS or (most is not None and most < least):
                    raise PatternError(f"invalid repeat count {self._text[place : self._place]}")
                copies = least + 1 if most is None else most
                atom = Repeat(atom, least, most, _checked((atom.size + 2) * max(copies, 1)))
            else:
                return atom
            self._accept("?")
            count += 1
            if count > 1:
                raise PatternError(f"invalid nested repetition {self._text[place : self._place]}")

    # -- characters and classes of them

    def _escape(self) -> Node:
        character = self._next("trailing backslash")
        if character in _ESCAPED_CONDITIONS:
            return Here(_ESCAPED_CONDITIONS[character])
        some = self._class_escape(character)
        return self._literal(chr(self._character_escape(character))) if some is None else _one(some)

    def _class_escape(self, character: str) -> CharacterSet | None:
        """\\d, \\W, \\pL, \\P{Greek}, … behind the backslash."""
        any_case = self._flags.ignore_case
        if character in "dDsSwW":
            some = perl_class(character.lower(), any_case=any_case)
            return some if character.islower() else ~some
        if character not in "pP":
            return None
        name = self._next("a class of characters has no name")
        if name == "{":
            name, closed, _ = self._text[self._place :].partition("}")
            if not closed:
                raise PatternError("missing }")
            self._place += len(name) + 1
        negated = (character == "P") != name.startswith("^")
        try:
            some = unicode_class(name.removeprefix("^"), any_case=any_case)
        except KeyError:
            raise PatternError(f"no such class of characters: {name}") from None
        return ~some if negated else some

    def _character_escape(self, character: str) -> int:
        """Behind the backslash: the code of the character that is meant."""
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0" or (character in "1234567" and self._peek() and self._peek() in "01234567"):
            digits = character
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._next("")
            return int(digits, 8)
        if character.isascii() and character.isalnum():
            raise PatternError(f"\\{character} is not supported")
        return ord(character)

    def _hexadecimal(self) -> int:
        if self._accept("{"):
            digits, closed, _ = self._text[self._place : self._place + 16].partition("}")
            self._place += len(digits) + 1
        else:
            digits, closed = self._text[self._place : self._place + 2], "}"
            self._place += 2
            closed = closed if len(digits) == 2 else ""
        if not closed or not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise PatternError("invalid \\x")
        code = int(digits, 16)
        if code > LAST_CODE:
            raise PatternError("there is no such character")
        return code

    def _class(self) -> CharacterSet:
        """Behind the `[`."""
        negated = self._accept("^")
        found: list[CharacterSet] = []
        first = True
        while first or self._peek() != "]":
            if self._peek() == "":
                raise PatternError("missing ]")
            if self._text.startswith("[:", self._place) and self._text.find(":]", self._place) > 0:
                self._place += 2
                found.append(self._posix())
            else:
                found.append(self._range_or_class())
            first = False
        self._place += 1
        return ~union(found) if negated else union(found)

    def _posix(self) -> CharacterSet:
        name, _, _ = self._text[self._place : self._place + 16].partition(":]")
        self._place += len(name) + 2
        try:
            some = posix_class(name.removeprefix("^"), any_case=self._flags.ignore_case)
        except KeyError:
            raise PatternError(f"no such class of characters: [:{name}:]") from None
        return ~some if name.startswith("^") else some

    def _range_or_class(self) -> CharacterSet:
        if self._peek() == "\\":
            ahead = self._text[self._place + 1 : self._place + 2]
            if ahead and ahead in "dDwWsSpP":
                self._place += 2
                some = self._class_escape(ahead)
                assert some is not None
                return some
        low = self._class_character()
        high = low
        if self._peek() == "-" and self._text[self._place + 1 : self._place + 2] not in ("]", ""):
            self._place += 1
            high = self._class_character()
            if high < low:
                raise PatternError("a range of characters runs backwards")
        return character_range(low, high, any_case=self._flags.ignore_case)

    def _class_character(self) -> int:
        character = self._next("missing ]")
        if character != "\\":
            return ord(character)
        return self._character_escape(self._next("trailing backslash"))


_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_ESCAPED_CONDITIONS = {
    "A": Condition.TEXT_BEGINS,
    "z": Condition.TEXT_ENDS,
    "b": Condition.WORD_EDGE,
    "B": Condition.NO_WORD_EDGE,
}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (len(text) == 1 or text[0] != "0")
