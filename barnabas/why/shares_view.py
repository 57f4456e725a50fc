"""Core: answers of the brokers' page `/shares`, read into one view of a share group.

Brokers may be of another version or hostile: what is malformed counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]]

    def __str__(self) -> str:
        return f"{self.member_id} (client {self.client_id} at {self.host.removeprefix('/')})"


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring records in one state."""

    first_offset: int
    last_offset: int
    state: str
    """available, acquired, waiting (for its next delivery), acknowledged, archiving or archived."""
    delivery_count: int
    member_id: str = ""
    since_ms: int = -1
    lock_ends_ms: int = -1
    becomes: str = ""
    """The state that is being stored; empty: none."""

    @property
    def offsets(self) -> str:
        if self.first_offset == self.last_offset:
            return f"offset {self.first_offset}"
        return f"offsets {self.first_offset} to {self.last_offset}"


@dataclass(frozen=True, slots=True)
class SharePartition:
    """A share partition as its leader reports it; -1 for numbers that it does not report."""

    node: str
    topic: str
    partition: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    is_loaded: bool
    error: str
    error_at_ms: int
    max_record_locks: int
    delivery_count_limit: int
    read_committed: bool
    start_offset: int
    end_offset: int
    delivery_complete: int
    can_acquire: bool
    counts: Mapping[str, int]
    spans: tuple[Span, ...]
    spans_left_out: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def span_of(self, offset: int) -> Span | None:
        return next((it for it in self.spans if it.first_offset <= offset <= it.last_offset), None)


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """A share partition whose state could not be read from the share coordinator."""

    node: str
    topic: str
    partition: int
    error: str
    at_ms: int


@dataclass(slots=True)
class SharesView:
    """Reports of all brokers about one share group."""

    group_id: str
    coordinator: str = ""
    """Name of the node; empty: none that answers coordinates the group."""
    state: str = ""
    epoch: int = -1
    members: dict[str, ShareMember] = field(default_factory=dict)
    members_left_out: int = 0
    initialized: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Partitions by topic whose states the share coordinator keeps; others are assigned to nobody yet."""
    partitions: dict[tuple[str, int], SharePartition] = field(default_factory=dict)
    not_loaded: dict[tuple[str, int], NotLoaded] = field(default_factory=dict)
    fetching: dict[str, list[str]] = field(default_factory=dict)
    """Members with a session, by node."""

    @property
    def exists(self) -> bool:
        return bool(self.coordinator or self.partitions or self.fetching)

    def assigned_to(self, topic: str, partition: int) -> list[ShareMember]:
        return [it for it in self.members.values() if partition in it.assignment.get(topic, ())]


def read_shares(group_id: str, answers: Iterable[object]) -> SharesView:
    view = SharesView(group_id)
    for answer in answers:
        if isinstance(answer, Mapping) and answer.get("group") == group_id:
            _take(view, answer)
    return view


def _take(view: SharesView, answer: Json) -> None:
    node = _text(answer, "node")
    coordinator = answer.get("coordinator")
    if isinstance(coordinator, Mapping) and _number(coordinator, "epoch") > view.epoch:
        view.coordinator, view.state, view.epoch = node, _text(coordinator, "state"), _number(coordinator, "epoch")
        view.members = {it.member_id: it for it in map(_member, _objects(coordinator, "members"))}
        view.members_left_out = max(_number(coordinator, "members_left_out"), 0)
        view.initialized = _partitions_by_topic(coordinator.get("initialized"))
    for it in _objects(answer, "partitions"):
        found = _partition(node, it, read_committed=answer.get("read_committed") is True)
        key = found.topic, found.partition
        if key not in view.partitions or view.partitions[key].leader_epoch < found.leader_epoch:
            view.partitions[key] = found
    for it in _objects(answer, "not_loaded"):
        failed = NotLoaded(
            node, _text(it, "topic"), _number(it, "partition"), _text(it, "error"), _number(it, "at_ms")
        )
        key = failed.topic, failed.partition
        if key not in view.not_loaded or view.not_loaded[key].at_ms < failed.at_ms:
            view.not_loaded[key] = failed
    sessions = [_text(it, "member_id") for it in _objects(answer, "sessions")]
    if sessions:
        view.fetching[node] = sessions


def _member(it: Json) -> ShareMember:
    topics = it.get("topics")
    return ShareMember(
        _text(it, "member_id"),
        _text(it, "client_id"),
        _text(it, "host"),
        tuple(each for each in topics if isinstance(each, str)) if isinstance(topics, list) else (),
        _partitions_by_topic(it.get("assignment")),
    )


def _partition(node: str, it: Json, *, read_committed: bool) -> SharePartition:
    counts = it.get("counts")
    return SharePartition(
        node=node,
        topic=_text(it, "topic"),
        partition=_number(it, "partition"),
        leader_epoch=_number(it, "leader_epoch"),
        log_start_offset=_number(it, "log_start_offset"),
        high_watermark=_number(it, "high_watermark"),
        last_stable_offset=_number(it, "last_stable_offset"),
        is_loaded=it.get("is_loaded") is True,
        error=_text(it, "error"),
        error_at_ms=_number(it, "error_at_ms"),
        max_record_locks=_number(it, "max_record_locks"),
        delivery_count_limit=_number(it, "delivery_count_limit"),
        read_committed=read_committed,
        start_offset=_number(it, "start_offset"),
        end_offset=_number(it, "end_offset"),
        delivery_complete=max(_number(it, "delivery_complete"), 0),
        can_acquire=it.get("can_acquire") is not False,
        counts={str(name): count for name, count in counts.items() if type(count) is int}
        if isinstance(counts, Mapping)
        else {},
        spans=tuple(map(_span, _objects(it, "spans"))),
        spans_left_out=max(_number(it, "spans_left_out"), 0),
    )


def _span(it: Json) -> Span:
    return Span(
        _number(it, "first_offset"),
        _number(it, "last_offset"),
        _text(it, "state"),
        _number(it, "delivery_count"),
        _text(it, "member_id"),
        _number(it, "since_ms"),
        _number(it, "lock_ends_ms"),
        _text(it, "becomes"),
    )


def _partitions_by_topic(value: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, Mapping):
        return {}
    return {
        str(topic): tuple(it for it in partitions if type(it) is int)
        for topic, partitions in value.items()
        if isinstance(partitions, list)
    }


def _objects(it: Json, name: str) -> list[Json]:
    found = it.get(name)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _number(it: Json, name: str) -> int:
    value = it.get(name)
    return value if type(value) is int else -1


def _text(it: Json, name: str) -> str:
    value = it.get(name)
    return value if isinstance(value, str) else ""
