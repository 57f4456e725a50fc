"""What the tests in containers measured, told in one place at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_notes: list[str] = []


@pytest.fixture(scope="session")
def note() -> Callable[[str], None]:
    """Lines for the summary at the end."""
    return _notes.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _notes:
        terminalreporter.section("in containers")
        for line in _notes:
            terminalreporter.write_line(line)
