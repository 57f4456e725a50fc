"""The error for a setting that cannot be used, in one line. Knows no files and no keys."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_VALUE_SHOWN = 80


@dataclass(slots=True)
class SettingsError(Exception):
    """A key, its value, the problem, and the allowed values.

    `str()` of it is one line: `broker-1.properties line 7: broker.session.timeout.ms=abc: not a whole number;
    allowed: 1 or more`. Unknown parts are left out.
    """

    problem: str
    key: str = ""
    value: str | None = None
    allowed: str = ""
    source: str = ""
    line: int = 0

    def at(self, source: str, line: int) -> SettingsError:
        """The same error with its place; a place that is already known stays."""
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
        line = ": ".join(parts)
        return f"{line}; allowed: {self.allowed}" if self.allowed else line


def _shown(value: str) -> str:
    """The value on one line, cut when it is long."""
    line = value.encode("unicode_escape").decode() if not value.isprintable() else value
    return line if len(line) <= _LONGEST_VALUE_SHOWN else line[: _LONGEST_VALUE_SHOWN - 1] + "…"
