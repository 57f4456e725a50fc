"""The one error of this room: a setting that cannot be used, told in one line. Knows no files and no keys."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_VALUE_SHOWN = 80


@dataclass(slots=True)
class SettingsError(Exception):
    """A key, its value, what is wrong with it, and what would be right.

    `str()` of it is one line: `broker-1.properties line 7: broker.session.timeout.ms=abc: not a whole number;
    allowed: 1 or more`. Whatever is not known is left out.
    """

    problem: str
    key: str = ""
    value: str | None = None
    allowed: str = ""
    source: str = ""
    line: int = 0

    def at(self, source: str, line: int) -> SettingsError:
        """The same error, told with its place; a place that is known already stays."""
        if not self.source:
            self.source, self.line = source, line
        return self

    def __str__(self) -> str:
        parts = []
        if self.source:
            parts.append(f"{self.source} line {self.line}" if self.line else self.source)
        if self.key:
            parts.append(self.key if self.value is None else f"{self.key}={_shown(self.value)}")
        parts.append(self.problem)
        told = ": ".join(parts)
        return f"{told}; allowed: {self.allowed}" if self.allowed else told


def _shown(value: str) -> str:
    """The value on one line, cut when it is long."""
    line = value.encode("unicode_escape").decode() if not value.isprintable() else value
    return line if len(line) <= _LONGEST_VALUE_SHOWN else line[: _LONGEST_VALUE_SHOWN - 1] + "…"
