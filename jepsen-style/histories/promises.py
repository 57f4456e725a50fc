"""What a simulated cluster broke while it ran, as its run left it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from histories.recorder import HistoryError

PROMISES = "promises.json"


def load(directory: Path) -> dict[str, Any] | None:
    """Of a run's directory; None if it was no simulation. Raises HistoryError in one line."""
    path = directory / PROMISES
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise HistoryError(f"{path} is no JSON: {error}") from error
    if not isinstance(told, dict) or not isinstance(told.get("broken"), list):
        raise HistoryError(f"{path} does not say what was broken")
    return told
