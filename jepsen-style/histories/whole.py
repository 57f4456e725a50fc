"""Files that are there as a whole, or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """In UTF-8. Raises OSError; then what was at `path` before still is, and nothing else is left."""
    written = path.with_name(f"{path.name}.new")
    try:
        written.write_text(text, encoding="utf-8")
        written.replace(path)
    except OSError:
        with suppress(OSError):
            written.unlink()
        raise
