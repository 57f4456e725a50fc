"""Files with keys or passwords."""

from __future__ import annotations

from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read; never readable by others, not even at first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)
