"""Regular expressions that clients send, in the syntax of RE2, matched in time linear in the text. A core.

Python's own engine tries one way after the other and can be made to try for ever by a pattern of a few characters;
this one follows all ways at once (Thompson 1968). It knows whether a whole text matches, and nothing else: groups
capture nothing, and greedy or lazy makes no difference. Not there: scripts (`\\p{Greek}`; general categories such as
`\\p{Lu}` are) and `\\C`. What RE2 itself does not have (look-around, back references) is refused as there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace

MAX_REPEAT = 1000
MAX_NESTING = 100
MAX_PROGRAM = 5_000
"""Steps of a compiled pattern: repetitions of repetitions grow fast."""
_CACHED_STEPS = 10_000


class PatternError(ValueError):
    """The text is no pattern; says why."""


# -- what one character may be

_MAX_CODE = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]

_DIGIT: _Ranges = ((0x30, 0x39),)
_SPACE: _Ranges = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
_WORD: _Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, _Ranges] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0x00, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": _WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
_CATEGORIES = frozenset(
    {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi"}
    | {"Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Cs", "Co", "Cn"}
)


def _other_than(ranges: _Ranges) -> _Ranges:
    others: list[tuple[int, int]] = []
    begin = 0
    for low, high in sorted(ranges):
        if low > begin:
            others.append((begin, low - 1))
        begin = max(begin, high + 1)
    if begin <= _MAX_CODE:
        others.append((begin, _MAX_CODE))
    return tuple(others)


@dataclass(frozen=True, slots=True)
class _Characters:
    """A set of characters."""

    ranges: _Ranges = ()
    categories: tuple[tuple[str, bool], ...] = ()
    """(general category, whether the characters in it belong to the set, or those that are not in it)"""
    negated: bool = False
    folded: bool = False

    def __contains__(self, character: str) -> bool:
        inside = self._has(character)
        if self.folded and not inside:
            inside = any(self._has(other) for other in (character.lower(), character.upper()) if len(other) == 1)
        return inside is not self.negated

    def _has(self, character: str) -> bool:
        code = ord(character)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        if not self.categories:
            return False
        category = unicodedata.category(character)
        return any(category.startswith(name) is within for name, within in self.categories)

    def __or__(self, other: _Characters) -> _Characters:
        assert not self.negated and not other.negated
        return replace(self, ranges=self.ranges + other.ranges, categories=self.categories + other.categories)


# -- the program: positions, each with what it lets pass

_Before = Callable[[str, str], bool]
"""A condition on the characters before and after a place; "" at the text's ends."""


@dataclass(slots=True)
class _Step:
    """Goes on to `then` (and `otherwise`) without reading, or by reading one character of `reads`."""

    reads: _Characters | None = None
    holds: _Before | None = None
    then: int = -1
    otherwise: int = -1


def _is_word(character: str) -> bool:
    return character != "" and ((character.isascii() and character.isalnum()) or character == "_")


_CONDITIONS: dict[str, _Before] = {
    "text begins": lambda before, after: before == "",
    "text ends": lambda before, after: after == "",
    "line begins": lambda before, after: before in ("", "\n"),
    "line ends": lambda before, after: after in ("", "\n"),
    "word boundary": lambda before, after: _is_word(before) is not _is_word(after),
    "no word boundary": lambda before, after: _is_word(before) is _is_word(after),
}

# -- the tree between text and program


@dataclass(frozen=True, slots=True)
class _One:
    characters: _Characters


@dataclass(frozen=True, slots=True)
class _Condition:
    name: str


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    least: int
    most: int | None


_Node = _One | _Condition | _Sequence | _Choice | _Repeat


@dataclass(frozen=True, slots=True)
class _Flags:
    fold: bool = False
    """i"""
    lines: bool = False
    """m: ^ and $ also at the ends of lines"""
    dot_all: bool = False
    """s: . also a line's end"""


class _Parser:
    """Reads one pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node, _ = self._choice(_Flags())
        if self._at < len(self._text):
            raise PatternError("unexpected )")
        return node

    # -- reading

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _until(self, end: str, what: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise PatternError(f"missing {end} after {what}")
        taken = self._text[self._at : found]
        self._at = found + len(end)
        return taken

    # -- sequences and groups

    def _choice(self, flags: _Flags) -> tuple[_Node, _Flags]:
        choices: list[_Node] = []
        parts: list[_Node] = []
        while self._at < len(self._text) and self._peek() != ")":
            if self._take("|"):
                choices.append(_Sequence(tuple(parts)))
                parts = []
                continue
            node, flags = self._atom(flags)
            if node is not None:
                parts.append(self._repeated(node))
            elif self._peek() in ("*", "+", "?") and self._peek():
                raise PatternError(f"missing argument to repetition operator: {self._peek()}")
        choices.append(_Sequence(tuple(parts)))
        return (choices[0] if len(choices) == 1 else _Choice(tuple(choices))), flags

    def _atom(self, flags: _Flags) -> tuple[_Node | None, _Flags]:
        """One element; None for what stands for nothing (flags, an empty quotation)."""
        if self._peek() == "(":
            return self._group(flags)
        if self._take("\\Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
            self._at += len(quoted) + (2 if end >= 0 else 0)
            if not quoted:
                return None, flags
            ones: tuple[_Node, ...] = tuple(self._literal(each, flags) for each in quoted[:-1])
            # A repetition after \E means the last character.
            return _Sequence((*ones, self._repeated(self._literal(quoted[-1], flags)))), flags
        return self._single(flags), flags

    def _group(self, flags: _Flags) -> tuple[_Node | None, _Flags]:
        self._next()
        inner = flags
        if self._take("?"):
            if self._take("P<") or (self._peek() == "<" and self._text[self._at + 1 : self._at + 2] not in ("=", "!")):
                self._take("<")
                name = self._until(">", "the name of a group")
                if not name or not all(_is_word(each) for each in name):
                    raise PatternError(f"invalid named capture: {name}")
            else:
                inner, ends = self._flags(flags)
                if ends:
                    return None, inner
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise PatternError("nested too deeply")
        node, _ = self._choice(inner)
        if not self._take(")"):
            raise PatternError("missing closing )")
        self._depth -= 1
        return node, flags

    def _flags(self, flags: _Flags) -> tuple[_Flags, bool]:
        """The flags after `(?`, and whether they hold for the rest rather than for a group."""
        value, seen = True, False
        while True:
            character = self._next()
            if character == "i":
                flags = replace(flags, fold=value)
            elif character == "m":
                flags = replace(flags, lines=value)
            elif character == "s":
                flags = replace(flags, dot_all=value)
            elif character == "U":
                pass  # Greedy or lazy is all one to a match of the whole text.
            elif character == "-" and value:
                value, seen = False, False
                continue
            elif character in (":", ")") and character and (seen or (value and character == ":")):
                return flags, character == ")"
            else:
                raise PatternError("invalid or unsupported Perl syntax: (?")
            seen = True

    def _repeated(self, node: _Node) -> _Node:
        repeated = False
        while True:
            before = self._at
            limits = self._repetition()
            if limits is None:
                return node
            if repeated:
                raise PatternError(f"invalid nested repetition operator: {self._text[before : self._at]}")
            self._take("?")
            repeated = True
            least, most = limits
            if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or most < least)):
                raise PatternError(f"invalid repeat count: {self._text[before : self._at]}")
            node = _Repeat(node, least, most)

    def _repetition(self) -> tuple[int, int | None] | None:
        for operator, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(operator):
                return least, most
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        digits = (low, high) if high else (low,)
        if end < 0 or not all(each.isascii() and each.isdigit() and len(each) < 6 for each in digits):
            return None  # Not a repetition: it stands for itself.
        self._at = end + 1
        return int(low), (int(high) if high else None) if comma else int(low)

    # -- single characters

    def _single(self, flags: _Flags) -> _Node:
        character = self._next()
        if character in "*+?":
            raise PatternError(f"missing argument to repetition operator: {character}")
        if character == "^":
            return _Condition("line begins" if flags.lines else "text begins")
        if character == "$":
            return _Condition("line ends" if flags.lines else "text ends")
        if character == ".":
            return _One(_Characters(() if flags.dot_all else ((0x0A, 0x0A),), negated=True))
        if character == "[":
            return _One(replace(self._class(), folded=flags.fold))
        if character == "\\":
            return self._escaped(flags)
        return self._literal(character, flags)

    def _literal(self, character: str, flags: _Flags) -> _Node:
        return _One(_Characters(((ord(character), ord(character)),), folded=flags.fold))

    def _escaped(self, flags: _Flags) -> _Node:
        for letter, condition in (
            ("A", "text begins"),
            ("z", "text ends"),
            ("b", "word boundary"),
            ("B", "no word boundary"),
        ):
            if self._take(letter):
                return _Condition(condition)
        some = self._escaped_set()
        if some is not None:
            return _One(replace(some, folded=flags.fold))
        return self._literal(self._escaped_character(), flags)

    def _escaped_set(self) -> _Characters | None:
        """After a backslash: \\d and its like, \\p; None for anything else."""
        letter = self._peek()
        if letter and letter in "dswDSW":
            self._next()
            ranges = _PERL[letter.lower()]
            return _Characters(ranges if letter.islower() else _other_than(ranges))
        if not letter or letter not in "pP":
            return None
        self._next()
        name = self._until("}", "\\p{") if self._take("{") else self._next()
        within = letter == "p"
        if name.startswith("^"):
            name, within = name[1:], not within
        if name == "Any":
            return _Characters(((0, _MAX_CODE),) if within else ())
        if name not in _CATEGORIES:
            raise PatternError(f"invalid character class range: \\{letter}{{{name}}}")
        return _Characters(categories=((name, within),))

    def _escaped_character(self) -> str:
        character = self._next()
        if not character:
            raise PatternError("trailing backslash at end of expression")
        control = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(character)
        if control is not None:
            return control
        if character == "x":
            digits = self._until("}", "\\x{") if self._take("{") else self._next() + self._next()
            if digits and all(each in "0123456789abcdefABCDEF" for each in digits) and int(digits, 16) <= _MAX_CODE:
                return chr(int(digits, 16))
        elif character in "01234567" and (character == "0" or (self._peek() and self._peek() in "01234567")):
            octal = character
            while len(octal) < 3 and self._peek() and self._peek() in "01234567":
                octal += self._next()
            return chr(int(octal, 8))
        elif not _is_word(character):
            return character
        raise PatternError(f"invalid escape sequence: \\{character}")

    def _class(self) -> _Characters:
        """What follows a [."""
        negated = self._take("^")
        found = _Characters()
        first = True
        while first or self._peek() != "]":
            first = False
            if not self._peek():
                raise PatternError("missing closing ]")
            some = self._posix_class()
            if some is None and self._peek() == "\\":
                mark = self._at
                self._next()
                some = self._escaped_set()
                if some is None:
                    self._at = mark
            found |= _Characters((self._class_range(),)) if some is None else some
        self._next()
        return replace(found, negated=negated)

    def _posix_class(self) -> _Characters | None:
        if not self._text.startswith("[:", self._at) or ":]" not in self._text[self._at + 2 :]:
            return None
        self._at += 2
        name = self._until(":]", "[:")
        ranges = _POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise PatternError(f"invalid character class range: [:{name}:]")
        return _Characters(_other_than(ranges) if name.startswith("^") else ranges)

    def _class_range(self) -> tuple[int, int]:
        low = self._class_character()
        high = low
        if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._next()
            high = self._class_character()
        if high < low:
            raise PatternError(f"invalid character class range: {chr(low)}-{chr(high)}")
        return low, high

    def _class_character(self) -> int:
        character = self._next()
        if not character:
            raise PatternError("missing closing ]")
        return ord(self._escaped_character() if character == "\\" else character)


def _program(node: _Node) -> tuple[list[_Step], int]:
    """(steps, where to begin); the first step is the end. Built from the back: a part knows what follows it."""
    steps = [_Step()]

    def add(step: _Step) -> int:
        if len(steps) >= MAX_PROGRAM:
            raise PatternError("expression too large")
        steps.append(step)
        return len(steps) - 1

    def build(part: _Node, then: int) -> int:
        if isinstance(part, _One):
            return add(_Step(reads=part.characters, then=then))
        if isinstance(part, _Condition):
            return add(_Step(holds=_CONDITIONS[part.name], then=then))
        if isinstance(part, _Sequence):
            for each in reversed(part.parts):
                then = build(each, then)
            return then
        if isinstance(part, _Choice):
            begin = build(part.parts[-1], then)
            for each in reversed(part.parts[:-1]):
                begin = add(_Step(then=build(each, then), otherwise=begin))
            return begin
        if part.most is None:
            loop = add(_Step(otherwise=then))
            steps[loop].then = build(part.part, loop)
            then = loop
        else:
            after = then
            for _ in range(part.most - part.least):
                then = add(_Step(then=build(part.part, then), otherwise=after))
        for _ in range(part.least):
            then = build(part.part, then)
        return then

    return steps, build(node, 0)


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        self.text = text
        self._steps, self._begin = _program(_Parser(text).parse())
        self._conditional = any(step.holds is not None for step in self._steps)
        self._cache: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether all of `text` matches."""
        before = ""
        places = self._reach((self._begin,), before, text[:1])
        for position, character in enumerate(text):
            if not places:
                return False
            after = text[position + 1 : position + 2] if self._conditional else ""
            key = (places, character)
            found = None if self._conditional else self._cache.get(key)
            if found is None:
                read = [self._steps[place].then for place in places if self._reads(place, character)]
                found = self._reach(read, character, after)
                if not self._conditional:
                    if len(self._cache) >= _CACHED_STEPS:
                        self._cache.clear()
                    self._cache[key] = found
            places = found
        return 0 in places

    def _reads(self, place: int, character: str) -> bool:
        reads = self._steps[place].reads
        return reads is not None and character in reads

    def _reach(self, begin: list[int] | tuple[int, ...], before: str, after: str) -> frozenset[int]:
        """Where one gets without reading; of these only the places that read, and the end."""
        stack = list(begin)
        seen = set(stack)
        reached: list[int] = []
        while stack:
            place = stack.pop()
            step = self._steps[place]
            if place == 0 or step.reads is not None:
                reached.append(place)
                continue
            if step.holds is not None and not step.holds(before, after):
                continue
            for following in (step.then, step.otherwise):
                if following >= 0 and following not in seen:
                    seen.add(following)
                    stack.append(following)
        return frozenset(reached)
