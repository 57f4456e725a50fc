"""Features that this software supports and their levels, and the form of the log at each metadata.version.

One table for all: nodes announce these ranges when they register, `format` finalises the production
levels, and replay refuses a log that goes beyond them (KIP-584, KIP-1022).
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELR_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
    ELR_VERSION: (0, 1),
    SHARE_VERSION: (0, 0),
    STREAMS_VERSION: (0, 0),
}
"""Name -> (lowest, highest) level this software works with. Raising a highest level here is all it takes for
nodes to announce it and for `format` to finalise it."""

METADATA_VERSION_NAMES: dict[int, str] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}

EPOCH_BUMP_ON_ISR_SHRINK_UNTIL = 11
"""Up to here a shrinking ISR needs a new leader epoch (KAFKA-15021)."""
CONTROLLER_REGISTRATION_SINCE = 15
DIRECTORIES_SINCE = 17
ELR_SINCE = 23
CORDONED_DIRECTORIES_SINCE = 30

LEVELS_THAT_CHANGE_METADATA = (8, 11, 13, 14, 15, 17, 23, 30)
"""Levels that brought a new record, or a new field in one: stepping down across any of them could lose
data."""

FEATURE_DEPENDENCIES: dict[tuple[str, int], dict[str, int]] = {
    (ELR_VERSION, 1): {METADATA_VERSION: ELR_SINCE},
}
"""(feature, level) -> the levels that others must have first."""


def production_levels() -> dict[str, int]:
    """Levels that `format` finalises by records: the highest supported level of each feature, zeros left out.

    `kraft.version` is not among them: it lives in control records, and depends on how voters are given.
    """
    return {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items() if highest > 0 and name != KRAFT_VERSION}


def unsupported_reason(name: str, level: int) -> str | None:
    """Reason why this software cannot run with `name` at `level`; None if it can."""
    lowest, highest = SUPPORTED_FEATURES.get(name, (0, 0))
    if lowest <= level <= highest or (level == 0 and name != METADATA_VERSION):
        return None
    return f"this node supports levels {lowest} to {highest}"


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """The dependency of `name` at `level` that `levels` does not meet; None if all are met."""
    for needed, needed_level in FEATURE_DEPENDENCIES.get((name, level), {}).items():
        if levels.get(needed, 0) < needed_level:
            return f"{name} could not be set to {level} because it depends on {needed} level {needed_level}"
    return None


def metadata_changes_between(lower: int, higher: int) -> bool:
    """True if a log written at `higher` may hold records or fields that `lower` does not have."""
    return any(lower < level <= higher for level in LEVELS_THAT_CHANGE_METADATA)
