"""Core: the cordoned log directories of a broker (KIP-1066): no new replica is placed there."""

from __future__ import annotations

from collections.abc import Sequence

CORDONED_LOG_DIRS = "cordoned.log.dirs"
EVERY_DIRECTORY = "*"


def cordoned_paths(configured: Sequence[str], log_dirs: Sequence[str]) -> frozenset[str]:
    """The paths in `log_dirs` that `cordoned.log.dirs` names. Others are ignored."""
    if EVERY_DIRECTORY in configured:
        return frozenset(log_dirs)
    return frozenset(configured) & frozenset(log_dirs)


def refusal(configured: Sequence[str], log_dirs: Sequence[str]) -> str | None:
    """Why a broker does not take this value of `cordoned.log.dirs`; None if it does."""
    if EVERY_DIRECTORY in configured:
        if len(configured) == 1:
            return None
        return f"When {CORDONED_LOG_DIRS} is set to {EVERY_DIRECTORY}, it must not contain other values"
    unknown = [each for each in configured if each not in log_dirs]
    if not unknown:
        return None
    return (
        f"Invalid entry in {CORDONED_LOG_DIRS}: {unknown[0]}. "
        f"All cordoned log dirs must be entries of log.dirs or log.dir."
    )
