"""Core: where each log of a stopped broker ends, as a file: a restore of the metadata chooses leaders by it.

The file is JSON, one object per broker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string

_VERSION = 1


class MalformedLogEnds(Exception):
    """The file does not list the ends of logs; the message is one line."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of one log."""

    topic: str
    partition: int
    topic_id: bytes | None
    """None for a log of an old version that was never used since."""
    directory_id: bytes
    leader_epoch: int
    """Epoch of its last record; -1 for an empty log."""
    end_offset: int
    is_tiered: bool = False
    """Its oldest records may be remote only: a broker that takes it for another log forgets them."""

    @property
    def rank(self) -> tuple[int, int]:
        """The greatest rank among replicas is that of the log with every committed record (Raft, 5.4.1)."""
        return self.leader_epoch, self.end_offset


@dataclass(frozen=True, slots=True)
class BrokerLogEnds:
    """The ends of all logs of one broker."""

    cluster_id: str
    broker_id: int
    broker_epoch: int
    """The broker names it when it registers the next time."""
    logs: tuple[LogEnd, ...]


def format_log_ends(ends: BrokerLogEnds) -> str:
    """The content of the file."""
    logs = [
        {
            **asdict(log),
            "topic_id": None if log.topic_id is None else uuid_to_string(log.topic_id),
            "directory_id": uuid_to_string(log.directory_id),
        }
        for log in ends.logs
    ]
    content = {
        "version": _VERSION,
        "cluster_id": ends.cluster_id,
        "broker_id": ends.broker_id,
        "broker_epoch": ends.broker_epoch,
        "logs": logs,
    }
    return json.dumps(content, indent=1) + "\n"


def parse_log_ends(text: str, name: str) -> BrokerLogEnds:
    """Raises `MalformedLogEnds`."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            raise ValueError(f"must be an object of version {_VERSION}, as `barnabas storage log-ends` writes it")
        return BrokerLogEnds(
            _text(content["cluster_id"]),
            _whole(content["broker_id"]),
            _whole(content["broker_epoch"]),
            tuple(map(_log_end, content["logs"])),
        )
    except KeyError as error:
        raise MalformedLogEnds(f"{name}: {error.args[0]} is missing") from None
    except (ValueError, TypeError) as error:
        raise MalformedLogEnds(f"{name}: {error}") from None


def _log_end(log: Any) -> LogEnd:
    return LogEnd(
        _text(log["topic"]),
        _whole(log["partition"]),
        None if log["topic_id"] is None else uuid_from_string(_text(log["topic_id"])),
        uuid_from_string(_text(log["directory_id"])),
        _whole(log["leader_epoch"], least=-1),
        _whole(log["end_offset"]),
        log.get("is_tiered", False) is True,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} must be a text")
    return value


def _whole(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{value!r} must be a whole number from {least}")
    return value
