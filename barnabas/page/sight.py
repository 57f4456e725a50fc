"""Core: the events `cluster` and `partitions`, from the newest answers of the nodes.

A node that does not answer is dead if its process has ended or its port refuses connections; paused if its process is
known to be stopped; otherwise unreachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.page.node_state import NodeName, NodeState, PartitionState

FRESH_MS = 1_700
"""Validity of an answer; nodes are polled twice a second."""

NOT_ASKED = "not polled yet"

_SEEKING = {
    "prospective": "sends pre-votes",
    "unattached": "knows no leader",
    "resigned": "has resigned",
}
"""States of a voter besides leader, follower and candidate."""


@dataclass(slots=True)
class Sight:
    """The newest knowledge of one node."""

    node: NodeName
    state: NodeState | None = None
    """Its last answer."""
    answered_ms: int | None = None
    """Time of its last answer."""
    partitions: dict[str, Sequence[PartitionState]] = field(default_factory=dict)
    """Its last answer by topic."""
    refused: bool = False
    """Whether its port has refused since."""
    silence: str = NOT_ASKED
    """Reason for the missing answer to the last poll; one line."""
    process: str = ""
    """State of the process in a local cluster: running, paused, dead or stopped."""
    good_for_ms: int = FRESH_MS

    def answered(self, state: NodeState, topic: str | None, now_ms: int, good_for_ms: int = FRESH_MS) -> None:
        self.state, self.answered_ms, self.refused, self.silence = state, now_ms, False, ""
        self.good_for_ms = good_for_ms
        if topic is not None:
            self.partitions[topic] = state.partitions

    def not_answered(self, reason: str, *, refused: bool) -> None:
        self.silence, self.refused = reason, refused

    def is_fresh(self, now_ms: int) -> bool:
        return (
            self.answered_ms is not None
            and now_ms - self.answered_ms <= self.good_for_ms
            and not self.refused
            and self.process in ("", "running")
        )


def cluster_event(sights: Sequence[Sight], now_ms: int, at_ms: int, cut: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The event `cluster`. `now_ms` is a time of the clock of `Sight.answered`, `at_ms` is since 1970."""
    fresh = [sight for sight in sights if sight.is_fresh(now_ms)]
    active = _active_controller(fresh)
    return {
        "at_ms": at_ms,
        "nodes": [_node(sight, active, now_ms) for sight in sights],
        "quorum": _quorum(fresh, active),
        "topics": _topics(fresh),
        "cut": [list(pair) for pair in cut],
        "away": not fresh,
    }


def _active_controller(fresh: Iterable[Sight]) -> NodeState | None:
    """The controller that leads the metadata log in the highest epoch."""
    leading = [
        sight.state
        for sight in fresh
        if sight.state is not None and sight.node.role == "controller" and sight.state.state == "leader"
    ]
    return max(leading, key=lambda each: each.metadata.epoch or 0, default=None)


def _node(sight: Sight, active: NodeState | None, now_ms: int) -> dict[str, Any]:
    word, detail = _word(sight, active, now_ms)
    state = sight.state
    epoch = None
    if state is not None:
        epoch = state.epoch if sight.node.role == "broker" else state.metadata.epoch
    return {
        **sight.node.to_json(),
        "state": word,
        "epoch": epoch,
        "metadata_end": None if state is None else state.metadata.log_end_offset,
        "metadata_high_watermark": None if state is None else state.metadata.high_watermark,
        "told": detail,
    }


def _word(sight: Sight, active: NodeState | None, now_ms: int) -> tuple[str, str]:
    """(state, detail); the detail may be empty."""
    if sight.process == "paused":
        return "paused", "its process is stopped (SIGSTOP)"
    if sight.process in ("dead", "stopped"):
        return "dead", "its process has ended" if sight.process == "dead" else "it is not running"
    if sight.refused:
        return (
            "dead",
            ": ".join(filter(None, ("its port refuses connections", sight.silence))),
        )
    state = sight.state
    if state is None or not sight.is_fresh(now_ms):
        starts = sight.answered_ms is None and (sight.process == "running" or sight.silence == NOT_ASKED)
        return "starting" if starts else "unreachable", sight.silence or "it does not answer"
    if sight.node.role == "controller":
        if state.state in _SEEKING:
            return "candidate", f"{state.state}: it {_SEEKING[state.state]}"
        return state.state, state.missing or state.source
    return _broker_word(state, active)


def _broker_word(state: NodeState, active: NodeState | None) -> tuple[str, str]:
    known = None if active is None else active.brokers.get(state.id)
    if state.state == "starting":
        return "starting", state.missing
    if state.state == "shutting down":
        return "fenced", "controlled shutdown"
    if state.state == "fenced" or (known is not None and known.fenced):
        return "fenced", state.missing or "the controller gives it no leadership"
    if known is not None and known.out_of_sync:
        count = known.out_of_sync
        return "catching up", f"{count} of its replicas {'is' if count == 1 else 'are'} not in sync"
    return state.state, state.missing or state.source


def _quorum(fresh: Iterable[Sight], active: NodeState | None) -> dict[str, Any]:
    """The active controller's view; without one, the view of the node with the latest epoch."""
    known = [sight.state.metadata for sight in fresh if sight.state is not None and sight.state.metadata.epoch]
    best = active.metadata if active is not None else max(known, key=lambda each: each.epoch or 0, default=None)
    if best is None:
        return {"leader": None, "epoch": 0, "high_watermark": 0, "log_end_offset": 0}
    return {
        # Followers may not know yet that their leader is gone.
        "leader": None if active is None else best.leader,
        "epoch": best.epoch,
        "high_watermark": best.high_watermark,
        "log_end_offset": best.log_end_offset,
    }


def _topics(fresh: Iterable[Sight]) -> list[dict[str, Any]]:
    brokers = [sight.state for sight in fresh if sight.state is not None and sight.node.role == "broker"]
    newest = max(brokers, key=lambda each: each.metadata.applied_offset or 0, default=None)
    topics: Mapping[str, int] = {} if newest is None else newest.topics
    return [{"name": name, "partitions": topics[name]} for name in sorted(topics)]


def partitions_event(sights: Sequence[Sight], topic: str, now_ms: int, at_ms: int) -> dict[str, Any]:
    """The event `partitions`. Replicas that do not answer have their last known offsets."""
    brokers = [sight for sight in sights if sight.node.role == "broker"]
    views: dict[int, list[tuple[Sight, PartitionState]]] = {}
    for sight in brokers:
        for partition in sight.partitions.get(topic, ()):
            views.setdefault(partition.index, []).append((sight, partition))
    return {
        "at_ms": at_ms,
        "topic": topic,
        "partitions": [_partition(index, views[index], now_ms) for index in sorted(views)],
    }


def _partition(index: int, views: Sequence[tuple[Sight, PartitionState]], now_ms: int) -> dict[str, Any]:
    """The view with the latest leader epoch determines the leader; within it, the leader's view determines the ISR."""

    def weight(each: tuple[Sight, PartitionState]) -> tuple[bool, int, bool, int]:
        sight, partition = each
        applied = 0 if sight.state is None else sight.state.metadata.applied_offset or 0
        return sight.is_fresh(now_ms), partition.leader_epoch, partition.is_leader, applied

    best_sight, best = max(views, key=weight)
    by_broker = {sight.node.id: (sight, partition) for sight, partition in views}
    anybody = best_sight.is_fresh(now_ms)
    leader = best.leader if best.leader >= 0 and anybody else None
    return {
        "index": index,
        "leader": leader,
        "leader_epoch": best.leader_epoch,
        "isr": list(best.isr),
        "replicas": [_replica(broker, by_broker.get(broker), best, leader, now_ms) for broker in best.replicas],
    }


def _replica(
    broker: int, found: tuple[Sight, PartitionState] | None, best: PartitionState, leader: int | None, now_ms: int
) -> dict[str, Any]:
    state = "follower" if broker in best.isr else "out of sync"
    if found is None or not found[0].is_fresh(now_ms):
        state = "gone"
    elif broker == leader:
        state = "leader"
    mine = None if found is None else found[1]
    return {
        "broker": broker,
        "log_start_offset": None if mine is None else mine.log_start_offset,
        "log_end_offset": None if mine is None else mine.log_end_offset,
        "high_watermark": None if mine is None else mine.high_watermark,
        "state": state,
    }
