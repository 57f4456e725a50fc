"""Measurements of the tests in containers, printed at the end of the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_notes: list[str] = []


@pytest.fixture(scope="session")
def note() -> Callable[[str], None]:
    """Adds a line to the summary."""
    return _notes.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _notes:
        terminalreporter.section("in containers")
        for line in _notes:
            terminalreporter.write_line(line)
