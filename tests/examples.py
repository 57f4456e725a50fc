"""How many examples a test that sets their number draws."""

from __future__ import annotations

from hypothesis import settings

DEEP = "deep"
"""The profile for searches of hours: `pytest --hypothesis-profile deep TEST`."""
TIMES = 30


def examples(number: int) -> int:
    """`max_examples`: so many, and many more in a deep search."""
    return number * TIMES if settings.get_current_profile_name() == DEEP else number
