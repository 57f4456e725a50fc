"""Core: numbers in the settings of SASL."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.settings.errors import SettingsError


def whole_number(
    values: Mapping[str, str], key: str, default: int, least: int = 0, most: int | None = None
) -> int:
    """Raises SettingsError."""
    text = values.get(key, "").strip()
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        raise SettingsError("not a whole number in the range", key, text, allowed)
    return number


def fraction(values: Mapping[str, str], key: str, default: float, least: float, most: float) -> float:
    """Raises SettingsError."""
    text = values.get(key, "").strip()
    try:
        number = float(text) if text else default
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise SettingsError("not a number in the range", key, text, f"{least} to {most}")
    return number
