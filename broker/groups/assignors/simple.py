"""Core: the `simple` assignor of share groups (KIP-932).

A partition may have many members: each gets as many partitions as the others, and each partition as many members.
Assignments that still fit stay. If all members subscribe to the same topics, the balance is over all of them, else over
the partitions of each topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from barnabas.broker.groups.assignors.assignor import MemberSpec, Pace, frozen
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.runtime.at_once import Stepwise

_Place = tuple[bytes, int]


def assign_shares(members: Mapping[str, MemberSpec], assignable: Partitions) -> Stepwise[dict[str, Partitions]]:
    """A target for every member. `assignable`: the partitions of subscribed topics that may be assigned."""
    subscriptions = {member.topics for member in members.values()}
    targets: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    topics = sorted(frozenset[bytes]().union(*subscriptions) & assignable.keys())
    if len(subscriptions) == 1:
        places = [(topic_id, index) for topic_id in topics for index in sorted(assignable[topic_id])]
        yield from _share_out(places, list(members), members, targets)
    else:
        subscribers = yield from _subscribers(members)
        for topic_id in topics:
            places = [(topic_id, index) for index in sorted(assignable[topic_id])]
            yield from _share_out(places, subscribers[topic_id], members, targets)
    return (yield from frozen(targets))


def _subscribers(members: Mapping[str, MemberSpec]) -> Stepwise[dict[bytes, list[str]]]:
    """Subscribed members by topic, in their order."""
    found: dict[bytes, list[str]] = {}
    pace = Pace()
    for member_id, member in members.items():
        for topic_id in member.topics:
            found.setdefault(topic_id, []).append(member_id)
        if pace.is_full(1 + len(member.topics)):
            yield
    return found


def _share_out(
    places: Sequence[_Place],
    subscribed: Sequence[str],
    members: Mapping[str, MemberSpec],
    targets: dict[str, dict[bytes, set[int]]],
) -> Stepwise[None]:
    """Divide the partitions `places` between the members `subscribed`, and add them to `targets`."""
    if not places or not subscribed:
        return
    sharing = -(-len(subscribed) // len(places))
    """Most members of a partition."""
    slots = sharing * len(places)
    missing: dict[str, int] = {}
    """Partitions that a member still gets."""
    pace = Pace()
    for number, member_id in enumerate(subscribed):
        missing[member_id] = -(-slots * (number + 1) // len(subscribed)) - -(-slots * number // len(subscribed))
        if pace.is_full(1):
            yield
    owners: dict[_Place, set[str]] = {place: set() for place in places}
    for member_id in subscribed:
        for place in _places_of(members[member_id].target):
            if place in owners and missing[member_id] and len(owners[place]) < sharing:
                _assign(place, member_id, owners, missing, targets)
        if pace.is_full(1 + sum(map(len, members[member_id].target.values()))):
            yield
    unfilled = deque(member_id for member_id in subscribed if missing[member_id])
    for place in places:
        # A member that has the partition already comes later again.
        for _ in range(len(unfilled)):
            if len(owners[place]) >= sharing:
                break
            member_id = unfilled.popleft()
            if member_id not in owners[place]:
                _assign(place, member_id, owners, missing, targets)
            if missing[member_id]:
                unfilled.append(member_id)
            if pace.is_full(1):
                yield


def _places_of(partitions: Partitions) -> Iterable[_Place]:
    for topic_id in sorted(partitions):
        for index in sorted(partitions[topic_id]):
            yield topic_id, index


def _assign(
    place: _Place,
    member_id: str,
    owners: dict[_Place, set[str]],
    missing: dict[str, int],
    targets: dict[str, dict[bytes, set[int]]],
) -> None:
    topic_id, index = place
    targets[member_id].setdefault(topic_id, set()).add(index)
    owners[place].add(member_id)
    missing[member_id] -= 1
