"""Promises that a simulated cluster broke, as its run recorded them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from histories.recorder import HistoryError

PROMISES = "promises.json"


def load(directory: Path) -> dict[str, Any] | None:
    """Read the directory of a run; None if it was no simulation. Raises HistoryError in one line."""
    path = directory / PROMISES
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise HistoryError(f"{path} is no JSON: {error}") from error
    if not isinstance(recorded, dict) or not isinstance(recorded.get("broken"), list):
        raise HistoryError(f"{path} has no list of broken promises")
    return recorded
