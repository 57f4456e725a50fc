"""Core: the progress of a table, as the summary of a snapshot keeps it.

The summary is the only truth: it is committed together with the data, in one compare-and-swap. A snapshot with this
progress has exactly the committed records of the topic below its offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.lake.errors import TableChanged

PREFIX = "barnabas."
"""Begin of the names of all properties of ours."""
OFFSETS = "barnabas.offsets"
"""JSON: topic id, to partition, to the offset of the first record that the table does not have."""
LEADER_EPOCHS = "barnabas.leader-epochs"
"""JSON: partition, to the leader epoch of the last record before its offset."""
TOPIC = "barnabas.topic"
EPOCH = "barnabas.epoch"
COMMIT_ID = "barnabas.commit-id"
SKIPPED = "barnabas.skipped"
"""JSON: partition, to ranges [from, until] that were lost and skipped on request."""
DEAD_LETTERS = "barnabas.dead-letters"
"""Number of records of this snapshot that did not fit the table."""
DEAD_LETTER_FILES = "barnabas.dead-letter-files"
"""JSON: paths of the files with these records."""

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """The place in a topic up to which a table has its records."""

    topic: str
    topic_id: str
    """In the form that Kafka's tools print."""
    offsets: Mapping[int, int]
    """By partition, the offset of the first record that the table does not have."""
    epoch: int
    """Number of the process that writes the table; a later process has a higher one."""
    commit_id: str
    skipped: Mapping[int, Ranges] = field(default_factory=dict)
    """By partition, ranges of offsets (without the ends) that were lost and skipped on request."""
    leader_epochs: Mapping[int, int] = field(default_factory=dict)
    """By partition, as far as it is known, the leader epoch of the last record before the offset: a log whose epochs
    say otherwise was truncated, and has other records at these offsets."""

    def properties(self) -> dict[str, str]:
        """The properties of the summary."""
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        found = {
            OFFSETS: as_json({self.topic_id: offsets}),
            TOPIC: self.topic,
            EPOCH: str(self.epoch),
            COMMIT_ID: self.commit_id,
        }
        if self.leader_epochs:
            found[LEADER_EPOCHS] = as_json(
                {str(partition): each for partition, each in sorted(self.leader_epochs.items())}
            )
        if self.skipped:
            found[SKIPPED] = as_json({str(partition): ranges for partition, ranges in sorted(self.skipped.items())})
        return found


def progress_of(properties: Mapping[str, str]) -> Progress | None:
    """The progress in a summary; None if it has none. `TableChanged` if it is damaged."""
    if OFFSETS not in properties:
        return None
    try:
        [(topic_id, offsets)] = json.loads(properties[OFFSETS]).items()
        skipped = json.loads(properties.get(SKIPPED, "{}"))
        return Progress(
            properties[TOPIC],
            topic_id,
            {int(partition): _offset(offset) for partition, offset in offsets.items()},
            int(properties[EPOCH]),
            properties[COMMIT_ID],
            {
                int(partition): tuple((_offset(begin), _offset(end)) for begin, end in ranges)
                for partition, ranges in skipped.items()
            },
            {
                int(partition): _offset(epoch)
                for partition, epoch in json.loads(properties.get(LEADER_EPOCHS, "{}")).items()
            },
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise TableChanged(
            f"the summary of the snapshot has {OFFSETS}={properties[OFFSETS]!r} and cannot be read: {error!r}"
        ) from None


def _offset(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"an offset is a number of at least 0; got {value!r}")
    return value


def as_json(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))
