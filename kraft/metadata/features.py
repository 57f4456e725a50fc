"""Features that this software supports and their levels, and the form of the log at each metadata.version.

One table for all: nodes announce these ranges when they register, `format` finalises the default levels of a
release, and nodes do not serve a cluster that goes beyond them (KIP-584, KIP-1022).
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
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
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
MIGRATION_SINCE = 8
"""Brokers can be registered as migrating from ZooKeeper."""
SCRAM_SINCE = 11
DELEGATION_TOKENS_SINCE = 14
CONTROLLER_REGISTRATION_SINCE = 15
DIRECTORIES_SINCE = 17
ELR_SINCE = 23
CORDONED_DIRECTORIES_SINCE = 30

FEATURE_DEPENDENCIES: dict[tuple[str, int], dict[str, int]] = {
    (ELR_VERSION, 1): {METADATA_VERSION: ELR_SINCE},
}
"""(feature, level) -> the levels that others must have first."""

DEFAULT_SINCE: dict[tuple[str, int], int] = {
    (KRAFT_VERSION, 1): 21,
    (TRANSACTION_VERSION, 1): 24,
    (TRANSACTION_VERSION, 2): 24,
    (GROUP_VERSION, 1): 22,
    (ELR_VERSION, 1): 26,
    (SHARE_VERSION, 1): 28,
    (STREAMS_VERSION, 1): 29,
}
"""(feature, level) -> the first metadata.version with which a new cluster has it (KIP-1022)."""


def default_levels(metadata_version: int) -> dict[str, int]:
    """Levels of a cluster that is formatted at this metadata.version: the default levels that this software supports,
    zeros left out. kraft.version is not among them: control records of the log have its level."""
    levels = {METADATA_VERSION: metadata_version}
    for (name, level), since in DEFAULT_SINCE.items():
        if name != KRAFT_VERSION and metadata_version >= since and level <= SUPPORTED_FEATURES[name][1]:
            levels[name] = level
    return levels


def unsupported_reason(name: str, level: int) -> str | None:
    """Reason why this software does not support `name` at `level`; None if it does."""
    lowest, highest = SUPPORTED_FEATURES.get(name, (0, 0))
    if lowest <= level <= highest or (level == 0 and name != METADATA_VERSION):
        return None
    return f"this node supports levels {lowest} to {highest}"


def obstacle(finalized: Mapping[str, int]) -> str | None:
    """The first finalised level with which a node of this software cannot run; None if it can."""
    for name, level in finalized.items():
        reason = unsupported_reason(name, level)
        if reason is not None:
            return f"{name} is finalised at {level}: {reason}"
    return None


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """The dependency of `name` at `level` that `levels` does not meet; None if all are met."""
    for needed, needed_level in FEATURE_DEPENDENCIES.get((name, level), {}).items():
        if levels.get(needed, 0) < needed_level:
            return f"{name} could not be set to {level} because it depends on {needed} level {needed_level}"
    return None
