"""The first records of the metadata log of a newly formatted cluster (KIP-778)."""

from __future__ import annotations

from barnabas.kraft.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    default_levels,
    unmet_dependency,
    unsupported_reason,
)
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord


class UnknownLevel(ValueError):
    """A feature or level that this software does not have."""


def bootstrap_records(levels: dict[str, int] | None = None) -> list[FeatureLevelRecord]:
    """One record for each finalised feature, metadata.version first.

    `levels` replaces what would be chosen: the newest metadata.version, and the default level of each other feature at
    that metadata.version. A level of 0 writes no record, and so does kraft.version, which lives in the log's own
    control records. Raises `UnknownLevel`.
    """
    wanted = levels or {}
    chosen = default_levels(wanted.get(METADATA_VERSION, max(METADATA_VERSION_NAMES))) | wanted
    for name, level in chosen.items():
        reason = unsupported_reason(name, level) if name in SUPPORTED_FEATURES else "there is no such feature"
        reason = reason or unmet_dependency(name, level, chosen)
        if reason is not None:
            raise UnknownLevel(f"{name} cannot be set to {level}: {reason}")
    metadata_version = chosen.pop(METADATA_VERSION)
    chosen.pop(KRAFT_VERSION, None)
    return [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version),
        *(FeatureLevelRecord(name=name, feature_level=level) for name, level in sorted(chosen.items()) if level),
    ]


def metadata_version_level(release: str) -> int:
    """The level for `30`, `4.3-IV0` or `4.3` (the last level of that release). Raises `UnknownLevel`."""
    if release.isdigit() and int(release) in METADATA_VERSION_NAMES:
        return int(release)
    fitting = [level for level, name in METADATA_VERSION_NAMES.items() if release in {name, name.partition("-")[0]}]
    if not fitting:
        known = f"{min(METADATA_VERSION_NAMES)} to {max(METADATA_VERSION_NAMES)}"
        raise UnknownLevel(f"there is no metadata.version {release}; known are {known}")
    return max(fitting)
