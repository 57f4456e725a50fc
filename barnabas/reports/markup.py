"""HTML from values, escaped wherever it is not Markup already.

A history is hostile input: error texts, record keys and log lines come from other machines. Whatever reaches the page
passes `element` or `escape` of this file, and nothing else makes Markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as _escape

LONGEST_TEXT = 400
"""Characters of one foreign text that are shown."""

_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}
_INVISIBLE = dict.fromkeys((*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_VISIBLE = _CONTROLS | _INVISIBLE
"""Control characters get their pictures; what would turn the direction of a line gets a mark."""

_VOID = frozenset({"br", "hr", "input", "meta", "path", "rect", "line", "use", "circle"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = object
"""Markup, or a value whose str() is escaped; None is nothing; an iterable of them is all of them."""


def escape(text: object) -> Markup:
    """For any place between tags or in quoted attributes."""
    plain = str(text).translate(_VISIBLE)
    return Markup(_escape(plain.encode("utf-8", "replace").decode("utf-8"), quote=True))


def shorten(text: object, longest: int = LONGEST_TEXT) -> str:
    plain = str(text)
    return plain if len(plain) <= longest else f"{plain[:longest]}… ({len(plain):,} characters)"


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(map(_render, children)))


def element(tag: str, *children: Child, **attributes: object) -> Markup:
    """`element("td", value, class_="n", data_t=3)`; an attribute of None or False is left out, of True stands alone.

    Underscores in attributes become hyphens, and a last one goes away (`class_`, `for_`)."""
    start = f"<{tag}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if tag in _VOID and not children:
        return Markup(start if tag in ("br", "hr", "input", "meta") else f"{start[:-1]}/>")
    return Markup(f"{start}{join(children)}</{tag}>")


def _render(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if child is None:
        return ""
    if isinstance(child, Iterable) and not isinstance(child, str | bytes):
        return join(child)
    return escape(child)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


def plural(count: int, noun: str) -> str:
    """`1 election`, `3 elections`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
