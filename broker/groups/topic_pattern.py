"""Topic patterns of consumer groups: RE2's language, matched in linear time. A core.

A pattern comes from a client and is run against every topic, so nothing in it may make the node hang: there are no
backreferences and no looking around (RE2 has neither), and what is left is walked as a set of states, never by trying
(Thompson's construction; the sets are kept as states of a machine that is built as far as it is needed). Names of
topics are ASCII, so what a pattern says of other characters is read, but matches nothing.

https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

MOST_REPETITIONS = 1000
"""RE2's bound for the numbers in `x{n,m}`."""
DEEPEST_NESTING = 100
LARGEST_PROGRAM = 10_000
"""Instructions. A pattern that needs more is refused, as RE2 refuses what needs too much memory."""
MOST_STATES = 4_000
"""Sets of states that are kept. When there are more, all are forgotten and found again."""


class InvalidPattern(Exception):
    """The text is no pattern of RE2; `str()` says why."""


# -- sets of characters: bit n stands for the character n

_EVERY = (1 << 128) - 1


def _mask(characters: Iterable[str]) -> int:
    mask = 0
    for character in characters:
        if ord(character) < 128:
            mask |= 1 << ord(character)
    return mask


def _span(first: int, last: int) -> int:
    last = min(last, 127)
    return 0 if first > last else (1 << last + 1) - (1 << first)


_DIGITS = _span(ord("0"), ord("9"))
_UPPER = _span(ord("A"), ord("Z"))
_LOWER = _span(ord("a"), ord("z"))
_WORDS = _DIGITS | _UPPER | _LOWER | _mask("_")
_SPACES = _mask("\t\n\f\r ")
_NEWLINE = _mask("\n")

_PERL = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_POSIX = {
    "alnum": _DIGITS | _UPPER | _LOWER,
    "alpha": _UPPER | _LOWER,
    "ascii": _EVERY,
    "blank": _mask("\t "),
    "cntrl": _span(0, 31) | 1 << 127,
    "digit": _DIGITS,
    "graph": _span(33, 126),
    "lower": _LOWER,
    "print": _span(32, 126),
    "punct": _span(33, 47) | _span(58, 64) | _span(91, 96) | _span(123, 126),
    "space": _SPACES | _mask("\v"),
    "upper": _UPPER,
    "word": _WORDS,
    "xdigit": _DIGITS | _mask("abcdefABCDEF"),
}
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_CATEGORIES = "Any C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
_SCRIPTS = """
    Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal
    Carian Chakma Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs
    Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic
    Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer
    Lao Latin Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Meroitic_Cursive
    Meroitic_Hieroglyphs Miao Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian
    Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Sharada Shavian
    Sinhala Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Telugu
    Thaana Thai Tibetan Tifinagh Ugaritic Vai Yi
"""


@cache
def _unicode_class(name: str) -> int:
    """The ASCII part of \\p{name}."""
    letters = _UPPER | _LOWER
    if name in _CATEGORIES.split():
        if name == "Any":
            return _EVERY
        return _mask(chr(code) for code in range(128) if unicodedata.category(chr(code)).startswith(name))
    if name in _SCRIPTS.split():
        return letters if name == "Latin" else _EVERY & ~letters if name == "Common" else 0
    raise InvalidPattern(f"no such class of characters: {name}")


def _either_case(mask: int) -> int:
    return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32


# -- what a pattern says


class _Set(NamedTuple):
    """One character out of these."""

    mask: int
    size: int = 1


class _Assertion(NamedTuple):
    """Nothing, but only here: `^`, `$`, `b` (at the edge of a word) or `B` (not there)."""

    kind: str
    size: int = 1


class _Sequence(NamedTuple):
    parts: tuple[_Node, ...]
    size: int


class _Choice(NamedTuple):
    parts: tuple[_Node, ...]
    size: int


class _Repeat(NamedTuple):
    part: _Node
    least: int
    most: int | None
    size: int


_Node = _Set | _Assertion | _Sequence | _Choice | _Repeat


@dataclass(slots=True)
class _Flags:
    """(?imsU). Whether `^` and `$` are for lines (m) or repetitions are lazy (U) changes nothing here: names have no
    second line, and only whether all of a name matches is asked."""

    ignore_case: bool = False
    dot_is_all: bool = False


def _checked(size: int) -> int:
    if size > LARGEST_PROGRAM:
        raise InvalidPattern("the pattern is too large")
    return size


def _sequence(parts: list[_Node]) -> _Node:
    return parts[0] if len(parts) == 1 else _Sequence(tuple(parts), _checked(sum(part.size for part in parts)))


def _choice(parts: list[_Node]) -> _Node:
    if len(parts) == 1:
        return parts[0]
    return _Choice(tuple(parts), _checked(sum(part.size for part in parts) + 2 * len(parts)))


class _Parser:
    """Reads one pattern, once, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._depth = 0
        self._names: set[str] = set()

    def parse(self) -> _Node:
        node = self._alternatives(_Flags())
        if self._place < len(self._text):
            raise InvalidPattern("unexpected )")
        return node

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _next(self, missing: str) -> str:
        if self._place >= len(self._text):
            raise InvalidPattern(missing)
        self._place += 1
        return self._text[self._place - 1]

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._place):
            return False
        self._place += len(text)
        return True

    def _alternatives(self, flags: _Flags) -> _Node:
        """Up to the end or the closing parenthesis of this group. Flags that are set within end with it."""
        choices: list[_Node] = []
        parts: list[_Node] = []
        while (ahead := self._peek()) and ahead != ")":
            if self._accept("|"):
                choices.append(_sequence(parts))
                parts = []
            else:
                self._item(parts, flags)
        choices.append(_sequence(parts))
        return _choice(choices)

    def _item(self, parts: list[_Node], flags: _Flags) -> None:
        if self._accept("\\Q"):
            quoted, _, _ = self._text[self._place :].partition("\\E")
            self._place += len(quoted)
            self._accept("\\E")
            parts += [_literal(character, flags) for character in quoted]
            _checked(len(parts))
            if not quoted:
                return
        else:
            atom = self._atom(flags)
            if atom is not None:
                parts.append(atom)
            elif not parts:
                return
        parts[-1] = self._repeated(parts[-1])

    def _atom(self, flags: _Flags) -> _Node | None:
        """None for what only sets flags."""
        character = self._next("nothing there")
        if character == "(":
            return self._group(flags)
        if character == "[":
            return _Set(self._class(flags))
        if character == ".":
            return _Set(_EVERY if flags.dot_is_all else _EVERY & ~_NEWLINE)
        if character in "^$":
            return _Assertion(character)
        if character == "\\":
            return self._escape(flags)
        if character in "*+?" or (character == "{" and self._bounds_at(self._place - 1) is not None):
            raise InvalidPattern(f"nothing to repeat before {character}")
        return _literal(character, flags)

    # -- groups

    def _group(self, flags: _Flags) -> _Node | None:
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            raise InvalidPattern("groups are nested too deeply")
        inner = _Flags(flags.ignore_case, flags.dot_is_all)
        if self._accept("?") and not self._group_head(flags, inner):
            self._depth -= 1
            return None
        node = self._alternatives(inner)
        if not self._accept(")"):
            raise InvalidPattern("missing )")
        self._depth -= 1
        return node

    def _group_head(self, outer: _Flags, inner: _Flags) -> bool:
        """Behind `(?`. False if that was all: flags for the rest of the group around it."""
        if self._accept("P<") or (self._peek() == "<" and self._text[self._place + 1 : self._place + 2] not in "=!"):
            self._accept("<")
            name, closed, _ = self._text[self._place :].partition(">")
            if not closed or not name.isascii() or not name.replace("_", "a").isalnum():
                raise InvalidPattern("invalid name of a group")
            if name in self._names:
                raise InvalidPattern(f"two groups are called {name}")
            self._names.add(name)
            self._place += len(name) + 1
            return True
        switch_on = True
        seen = False
        while True:
            character = self._next("missing )")
            if character in "imsU":
                seen = True
                if character == "i":
                    inner.ignore_case = switch_on
                elif character == "s":
                    inner.dot_is_all = switch_on
            elif character == "-" and switch_on:
                switch_on, seen = False, False
            elif character in ":)" and (seen or switch_on):
                if character == ")":
                    outer.ignore_case, outer.dot_is_all = inner.ignore_case, inner.dot_is_all
                return character == ":"
            else:
                raise InvalidPattern(f"(?{character} is not supported")

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

    def _repeated(self, atom: _Node) -> _Node:
        count = 0
        while True:
            place = self._place
            if self._accept("*"):
                atom = _Repeat(atom, 0, None, _checked(atom.size + 2))
            elif self._accept("+"):
                atom = _Repeat(atom, 1, None, _checked(atom.size * 2 + 2))
            elif self._accept("?"):
                atom = _Repeat(atom, 0, 1, _checked(atom.size + 2))
            elif self._peek() == "{" and (bounds := self._bounds_at(self._place)) is not None:
                least, most, self._place = bounds
                if max(least, most or 0) > MOST_REPETITIONS or (most is not None and most < least):
                    raise InvalidPattern(f"invalid repeat count {self._text[place : self._place]}")
                copies = least + 1 if most is None else most
                atom = _Repeat(atom, least, most, _checked((atom.size + 2) * max(copies, 1)))
            else:
                return atom
            self._accept("?")
            count += 1
            if count > 1:
                raise InvalidPattern(f"invalid nested repetition {self._text[place : self._place]}")

    # -- characters and classes of them

    def _escape(self, flags: _Flags) -> _Node:
        character = self._next("trailing backslash")
        if character == "A":
            return _Assertion("^")
        if character == "z":
            return _Assertion("$")
        if character in "bB":
            return _Assertion(character)
        mask = self._class_escape(character)
        if mask is not None:
            return _Set(_either_case(mask) if flags.ignore_case else mask)
        return _literal(chr(self._character_escape(character)), flags)

    def _class_escape(self, character: str) -> int | None:
        """\\d, \\W, \\pL, \\P{Greek}, … behind the backslash."""
        if character.lower() in _PERL:
            mask = _PERL[character.lower()]
            return mask if character.islower() else _EVERY & ~mask
        if character not in "pP":
            return None
        name = self._next("a class of characters has no name")
        if name == "{":
            name, closed, _ = self._text[self._place :].partition("}")
            if not closed:
                raise InvalidPattern("missing }")
            self._place += len(name) + 1
        negated = (character == "P") != name.startswith("^")
        mask = _unicode_class(name.removeprefix("^"))
        return _EVERY & ~mask if negated else mask

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
            raise InvalidPattern(f"\\{character} is not supported")
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
            raise InvalidPattern("invalid \\x")
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise InvalidPattern("there is no such character")
        return code

    def _class(self, flags: _Flags) -> int:
        """Behind the `[`."""
        negated = self._accept("^")
        mask = 0
        first = True
        while first or self._peek() != "]":
            if self._peek() == "":
                raise InvalidPattern("missing ]")
            if self._peek() == "[" and self._text.find(":]", self._place) > 0 and self._accept("[:"):
                mask |= self._posix()
            else:
                mask |= self._range_or_class()
            first = False
        self._place += 1
        if flags.ignore_case:
            mask = _either_case(mask)
        return _EVERY & ~mask if negated else mask

    def _posix(self) -> int:
        name, closed, _ = self._text[self._place : self._place + 16].partition(":]")
        if not closed or name.removeprefix("^") not in _POSIX:
            raise InvalidPattern("invalid class of characters [: :]")
        self._place += len(name) + 2
        mask = _POSIX[name.removeprefix("^")]
        return _EVERY & ~mask if name.startswith("^") else mask

    def _range_or_class(self) -> int:
        if self._peek() == "\\":
            ahead = self._text[self._place + 1 : self._place + 2]
            if ahead and ahead in "dDwWsSpP":
                self._place += 2
                mask = self._class_escape(ahead)
                assert mask is not None
                return mask
        low = self._class_character()
        high = low
        if self._peek() == "-" and self._text[self._place + 1 : self._place + 2] not in ("]", ""):
            self._place += 1
            high = self._class_character()
            if high < low:
                raise InvalidPattern("a range of characters runs backwards")
        return _span(low, high)

    def _class_character(self) -> int:
        character = self._next("missing ]")
        if character != "\\":
            return ord(character)
        return self._character_escape(self._next("trailing backslash"))


def _literal(character: str, flags: _Flags) -> _Set:
    mask = _mask(character)
    return _Set(_either_case(mask) if flags.ignore_case else mask)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (len(text) == 1 or text[0] != "0")


# -- programs


class _Step(NamedTuple):
    """One instruction: a character out of `mask`, then on; or an assertion, then on; or on all ways at once."""

    mask: int | None = None
    assertion: str = ""
    on: tuple[int, ...] = ()


_DONE = 0


class _Compiler:
    """From what a pattern says to instructions. Each part is told where to go on, so they are made from the end."""

    def __init__(self) -> None:
        self.steps: list[_Step] = [_Step()]

    def add(self, step: _Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def compile(self, node: _Node, on: int) -> int:
        """Where this part begins, if it goes on at `on`."""
        if isinstance(node, _Set):
            return self.add(_Step(mask=node.mask, on=(on,)))
        if isinstance(node, _Assertion):
            return self.add(_Step(assertion=node.kind, on=(on,)))
        if isinstance(node, _Sequence):
            for part in reversed(node.parts):
                on = self.compile(part, on)
            return on
        if isinstance(node, _Choice):
            return self.add(_Step(on=tuple(self.compile(part, on) for part in node.parts)))
        return self._repeat(node, on)

    def _repeat(self, node: _Repeat, on: int) -> int:
        if node.most is None:
            loop = self.add(_Step())
            self.steps[loop] = _Step(on=(self.compile(node.part, loop), on))
            on = loop
        else:
            for _ in range(node.most - node.least):
                on = self.add(_Step(on=(self.compile(node.part, on), on)))
        for _ in range(node.least):
            on = self.compile(node.part, on)
        return on


@dataclass(slots=True, eq=False)
class _State:
    """All places of the program where a text that began like this one can be."""

    places: frozenset[int]
    at_start: bool
    after_word: bool
    following: dict[str, _State | None]
    """By the next character. None: nothing matches any more."""
    accepts: bool | None = None
    """Whether the text may end here. None: not known yet."""


class TopicPattern:
    """A pattern, ready to be matched."""

    def __init__(self, text: str) -> None:
        """Raises InvalidPattern."""
        compiler = _Compiler()
        self._first = compiler.compile(_Parser(text).parse(), _DONE)
        self._steps = compiler.steps
        self._states: dict[tuple[frozenset[int], bool, bool], _State] = {}
        self.work = 0
        """How many instructions have been looked at: what matching has cost."""

    def matches(self, text: str) -> bool:
        """Whether all of `text` matches."""
        state = self._state(frozenset((self._first,)), True, False)
        for character in text:
            self.work += 1
            if character not in state.following:
                state.following[character] = self._follow(state, character)
            following = state.following[character]
            if following is None:
                return False
            state = following
        if state.accepts is None:
            state.accepts = _DONE in self._reached(state, "")
        return state.accepts

    def _state(self, places: frozenset[int], at_start: bool, after_word: bool) -> _State:
        key = (places, at_start, after_word)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= MOST_STATES:
                self._states.clear()
            state = self._states[key] = _State(places, at_start, after_word, {})
        return state

    def _follow(self, state: _State, character: str) -> _State | None:
        code = ord(character)
        if code > 127:
            return None
        places = []
        for place in self._reached(state, character):
            step = self._steps[place]
            if step.mask is not None and step.mask >> code & 1:
                places.append(step.on[0])
        return self._state(frozenset(places), False, bool(_WORDS >> code & 1)) if places else None

    def _reached(self, state: _State, ahead: str) -> set[int]:
        """All instructions that can be got to without a character, with `ahead` next (empty at the end)."""
        before_word = ahead != "" and bool(_WORDS >> ord(ahead) & 1)
        at_edge = before_word != state.after_word
        holds = {"^": state.at_start, "$": ahead == "", "b": at_edge, "B": not at_edge}
        reached: set[int] = set()
        waiting = list(state.places)
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            step = self._steps[place]
            if step.mask is None and (not step.assertion or holds[step.assertion]):
                waiting += step.on
        self.work += len(reached)
        return reached


def find_topics(
    patterns: dict[str, TopicPattern], topics: Iterable[str], budget: int
) -> Iterator[dict[str, set[str]] | None]:
    """Which topics each pattern matches. Gives None each time that about `budget` instructions have been looked at, so
    that the caller can let others have their turn, and at last the result.
    """
    found: dict[str, set[str]] = {text: set() for text in patterns}
    spent = 0
    for topic in topics:
        for text, pattern in patterns.items():
            before = pattern.work
            if pattern.matches(topic):
                found[text].add(topic)
            spent += pattern.work - before
        if spent >= budget:
            spent = 0
            yield None
    yield found
