"""Core: sets of characters as RE2 names them: ranges, classes, categories and scripts, in either case or as written.

Names are ASCII nearly always, so the ASCII part of a set is one number (bit n stands for the character n), and only
for other characters its parts are asked one by one. Nobody here knows patterns.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain

LAST_CODE = 0x10FFFF
_CASED = (range(0x80, 0x3000), range(0xA640, 0xAC00), range(0xFF00, 0x11900), range(0x16E00, 0x1E944))
"""Beyond ASCII, no other character has an upper or a lower case."""

_ASCII = (1 << 128) - 1
_Part = Callable[[str], bool]
"""Whether a character beyond ASCII belongs to it."""


@dataclass(frozen=True, slots=True)
class CharacterSet:
    ascii: int = 0
    parts: tuple[_Part, ...] = ()
    """What it has beyond ASCII: whatever belongs to any of these."""
    outside: bool = False
    """Or rather, whatever belongs to none of them."""

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        if code < 128:
            return bool(self.ascii >> code & 1)
        return any(part(character) for part in self.parts) is not self.outside

    def __invert__(self) -> CharacterSet:
        return CharacterSet(_ASCII & ~self.ascii, self.parts, not self.outside)


def union(sets: Iterable[CharacterSet]) -> CharacterSet:
    mask = 0
    parts: list[_Part] = []
    for each in sets:
        mask |= each.ascii
        parts += (each.__contains__,) if each.outside else each.parts
    return CharacterSet(mask, tuple(parts))


# -- letters that differ in case only


def _fold(character: str) -> str:
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character


@cache
def _cases() -> dict[str, str]:
    """A letter, folded, to all that differ from it in case only, for those with one beyond ASCII."""
    cases: dict[str, str] = {}
    for code in chain(*_CASED):
        character = chr(code)
        folded = _fold(character)
        if folded != character:
            cases[folded] = cases.get(folded, folded + (folded.upper() if folded.isascii() else "")) + character
    return cases


def _in_any_case(character: str) -> str:
    folded = _fold(character)
    return _cases().get(folded, folded)


def _either_case(mask: int) -> int:
    return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32


_ASCII_TOO = {"\u017f": "s", "\u212a": "k"}
"""The long s and the Kelvin sign: all that is beyond ASCII in one case, and ASCII in the other."""


def _folded(mask: int, contains: _Part) -> CharacterSet:
    """What is in it, and what would be in another case. `contains` knows ASCII, too."""
    for beyond, letter in _ASCII_TOO.items():
        if contains(beyond):
            mask |= 1 << ord(letter)
    return CharacterSet(_either_case(mask), (lambda character: any(map(contains, _in_any_case(character))),))


# -- ranges


def _span(first: int, last: int) -> int:
    last = min(last, 127)
    return 0 if first > last else (1 << last + 1) - (1 << first)


def character_range(low: int, high: int, *, any_case: bool = False) -> CharacterSet:
    """Of codes, both included."""

    def contains(character: str) -> bool:
        return low <= ord(character) <= high

    mask = _span(low, high)
    if not any_case:
        return CharacterSet(mask, (contains,) if high > 127 else ())
    if high > 127 or mask & _either_case(_mask("ks")):
        return _folded(mask, contains)
    return CharacterSet(_either_case(mask))


def literal(character: str, *, any_case: bool = False) -> CharacterSet:
    return character_range(ord(character), ord(character), any_case=any_case)


def _mask(characters: Iterable[str]) -> int:
    return sum(1 << ord(character) for character in characters)


_DIGITS = _span(ord("0"), ord("9"))
_UPPER = _span(ord("A"), ord("Z"))
_LOWER = _span(ord("a"), ord("z"))
_SPACES = _mask("\t\n\f\r ")

EVERY = CharacterSet(_ASCII, outside=True)
NEWLINE = CharacterSet(_mask("\n"))
WORDS = CharacterSet(_DIGITS | _UPPER | _LOWER | _mask("_"))

_PERL = {"d": _DIGITS, "w": WORDS.ascii, "s": _SPACES}
_POSIX = {
    "alnum": _DIGITS | _UPPER | _LOWER,
    "alpha": _UPPER | _LOWER,
    "ascii": _ASCII,
    "blank": _mask("\t "),
    "cntrl": _span(0, 31) | 1 << 127,
    "digit": _DIGITS,
    "graph": _span(33, 126),
    "lower": _LOWER,
    "print": _span(32, 126),
    "punct": _span(33, 47) | _span(58, 64) | _span(91, 96) | _span(123, 126),
    "space": _SPACES | _mask("\v"),
    "upper": _UPPER,
    "word": WORDS.ascii,
    "xdigit": _DIGITS | _mask("abcdefABCDEF"),
}


def _ascii_class(mask: int, any_case: bool) -> CharacterSet:
    if any_case and mask & _either_case(_mask("ks")):
        return _folded(mask, lambda character: character.isascii() and bool(mask >> ord(character) & 1))
    return CharacterSet(mask)


def perl_class(letter: str, *, any_case: bool = False) -> CharacterSet:
    """\\d, \\s, \\w. Raises KeyError for other letters."""
    return _ascii_class(_PERL[letter], any_case)


def posix_class(name: str, *, any_case: bool = False) -> CharacterSet:
    """[:alpha:] and its like. Raises KeyError if there is none of this name."""
    return _ascii_class(_POSIX[name], any_case)


# -- what Unicode says of characters

_CATEGORIES = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
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
_NAMED_OTHERWISE = {
    "Canadian_Aboriginal": "CANADIAN SYLLABICS ",
    "Egyptian_Hieroglyphs": "EGYPTIAN HIEROGLYPH ",
    "Han": "CJK ",
    "Meroitic_Hieroglyphs": "MEROITIC HIEROGLYPHIC ",
    "Phags_Pa": "PHAGS-PA ",
}


def _is_of_category(name: str, character: str) -> bool:
    category = unicodedata.category(character)
    return category.startswith(name) and category != "Cn"


def _is_of_script(beginning: str, character: str) -> bool:
    return unicodedata.name(character, "").startswith(beginning)


@cache
def unicode_class(name: str, *, any_case: bool = False) -> CharacterSet:
    """\\p{name}. Raises KeyError if there is none.

    To which script a character belongs is told by its name (LATIN SMALL LETTER A), since nothing else here knows; so
    Common and Inherited, the scripts of what has none, have nothing beyond ASCII.
    """
    if name == "Any":
        return EVERY
    if name in _CATEGORIES.split():
        contains = partial(_is_of_category, name)
    elif name in _SCRIPTS.split():
        contains = partial(_is_of_script, _NAMED_OTHERWISE.get(name, name.replace("_", " ").upper() + " "))
    else:
        raise KeyError(name)
    mask = _ASCII & ~(_UPPER | _LOWER) if name == "Common" else _mask(filter(contains, map(chr, range(128))))
    return _folded(mask, contains) if any_case else CharacterSet(mask, (contains,))
