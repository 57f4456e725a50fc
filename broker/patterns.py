"""Core: regular expressions of clients, in the syntax of RE2/J, which Kafka uses (KIP-848), matched by RE2.

RE2 matches in time linear in the text and in a fixed amount of memory, whatever the pattern is. It accepts the patterns
of RE2/J and two more kinds, which are refused here: those with `\\C` (one byte), and those with two groups of one name.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re2

MAX_MEMORY_BYTES: Final = 256 * 1024
"""Memory of one compiled pattern, including its cache of states. It limits a program to 16,384 instructions, so that
matching a topic name of 249 characters takes less than 10 ms.
"""
LONGEST_PATTERN: Final = 4_000
"""Characters. With the next limit, compiling takes less than 10 ms."""
MOST_UNICODE_CLASSES: Final = 50
"""Occurrences of `\\p` and `\\P`, which expand to hundreds of ranges each."""

_STEPS_OF_CALL = 1_500
_STEPS_OF_INSTRUCTION = 2
_UNICODE_CLASS = re.compile(r"\\[pP]")
_TOKENS = re.compile(
    r"""\\Q.*?(?:\\E|\Z)                                        # literal text
    | \\.                                                       # an escape
    | \[ \^? \]? (?: \\. | \[:\^?\w+:\] | [^\]\\] )* \]         # a class of characters
    | \( \? P? < (?P<name>\w+) >                                # the head of a named group
    """,
    re.DOTALL | re.VERBOSE,
)


class PatternError(ValueError):
    """The text is no valid pattern; `str()` is the reason."""


@cache
def _options() -> re2.Options:
    import re2  # loaded for the first pattern

    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True  # without groups RE2 uses its DFA
    return options



class Pattern:
    """A compiled pattern. The module of RE2 caches the last 128 programs, so compiling one again is cheap."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        if len(text) > LONGEST_PATTERN:
            raise PatternError(f"a pattern must have at most {LONGEST_PATTERN} characters; got {len(text)}")
        classes = len(_UNICODE_CLASS.findall(text))
        if classes > MOST_UNICODE_CLASSES:
            raise PatternError(f"a pattern must have at most {MOST_UNICODE_CLASSES} Unicode classes; got {classes}")
        import re2

        try:
            self._program = re2.compile(text, _options())
        except UnicodeEncodeError:
            raise PatternError("a pattern must not contain surrogates") from None
        except re2.error as error:
            raise PatternError(error.args[0].decode(errors="replace")) from None
        _check_tokens(text)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._program.fullmatch(text.encode(errors="surrogatepass")) is not None

    def cost(self, text: str) -> int:
        """Upper bound of the cost of matching this text, in RE2's steps of about a nanosecond."""
        return _STEPS_OF_CALL + _STEPS_OF_INSTRUCTION * len(text) * int(self._program.programsize)


def _check_tokens(text: str) -> None:
    """Raises PatternError for what RE2 accepts and RE2/J does not."""
    names: set[str] = set()
    for token in _TOKENS.finditer(text):
        if token[0] == "\\C":
            raise PatternError("\\C is not supported")
        name = token["name"]
        if name in names:
            raise PatternError(f"duplicate name of a group: {name}")
        if name is not None:
            names.add(name)
