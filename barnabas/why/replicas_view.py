"""Core: the state of each replica of a partition (new, online, offline), in words, from the brokers' pages `/state`.

Brokers may be of another version or hostile: what is malformed counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_REASONS = {
    "new": "a reassignment adds it, and it was not in sync yet",
    "offline": "its broker is fenced or not registered, or its log directory is gone",
}
NO_LEADER = -1


def replica_lines(name: str, partition: int, answers: Iterable[object]) -> list[str]:
    """A line for the leader and each replica, by the broker that knows the latest leader epoch; none if no broker knows
    the partition. `name`: that of the partition, `flights-3`."""
    found = [state for answer in answers if (state := _partition(answer, partition)) is not None]
    if not found:
        return []
    newest = max(found, key=lambda state: int(state["leader_epoch"]))
    leader, in_sync = newest["leader"], newest["isr"]
    led = "nobody leads" if leader == NO_LEADER else f"broker {leader} leads"
    lines = [f"{led} {name} in epoch {newest['leader_epoch']}"]
    for broker_id, state in zip(newest["replicas"], newest["replica_states"], strict=False):
        reason = "it is in sync" if broker_id in in_sync else "it is catching up"
        lines.append(f"the replica on broker {broker_id} is {state}: {_REASONS.get(str(state), reason)}")
    return lines


def _partition(answer: object, index: int) -> Mapping[str, Any] | None:
    """The partition as one broker shows it; None if it does not, or in another form."""
    listed = answer.get("partitions") if isinstance(answer, dict) else None
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, dict) or each.get("index") != index:
            continue
        numbers = [each.get(name) for name in ("leader", "leader_epoch")]
        lists = [each.get(name) for name in ("replicas", "isr", "replica_states")]
        if all(isinstance(it, int) for it in numbers) and all(isinstance(it, list) for it in lists):
            return each
    return None
