"""Copies of the data of a stopped node, by hard links where a file no longer changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from barnabas.storage.names import LOG_SUFFIX, SEGMENT_SUFFIXES

_LOCK = ".lock"


def copy_state(source: Path, target: Path) -> None:
    """Copy the log directories in `source` to `target`, which must not exist.

    Files of a segment that has a later one never change again, so they are linked; all others are copied.
    """
    for directory, _, files in os.walk(source):
        copied = target / Path(directory).relative_to(source)
        copied.mkdir(parents=True)
        active = _last_segment(files)
        for name in files:
            if name == _LOCK:
                continue
            is_fixed = name.endswith(SEGMENT_SUFFIXES) and not name.startswith(active)
            (os.link if is_fixed else shutil.copyfile)(os.path.join(directory, name), copied / name)


def _last_segment(files: Iterable[str]) -> str:
    """Base offset of the last segment, as its files are named; empty if there is none."""
    return max((name.removesuffix(LOG_SUFFIX) for name in files if name.endswith(LOG_SUFFIX)), default="")


def replace_state(data: Path, state: Path) -> None:
    """Put a copy of `state` in the place of `data`. If this is interrupted, `data` is the old one or missing."""
    fresh, old = data.with_name(f"{data.name}.fresh"), data.with_name(f"{data.name}.old")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    copy_state(state, fresh)
    data.rename(old)
    fresh.rename(data)
    shutil.rmtree(old, ignore_errors=True)
