"""Draws faults of messages from those that are sent often enough for the fault to meet some.

Messages that are sent only after a change, such as a new leader of the quorum or an ISR that shrinks, are drawn
together with another rule that provokes the change.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from barnabas.fault_proxy.rules import MessageRule, Way
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.runtime.world import Chance
from nemeses.choosing import happens, one_of, shuffled
from nemeses.shapes import CLIENT
from worlds.cluster import ClusterUnderTest

Action = Literal["hold", "drop", "delay", "reset"]
Direction = Literal["request", "response"]
ACTIONS: Sequence[Action] = ("hold", "drop", "delay", "reset")
DIRECTIONS: Sequence[Direction] = ("request", "response")
Expected = Mapping[Way, float]
"""Expected number of requests from each source to each target while the fault lasts."""

AMONG_NODES = (
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.API_VERSIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.UPDATE_RAFT_VOTER,
)
"""Requests between nodes. Leaders ask a coordinator with ADD_PARTITIONS_TO_TXN whether a transaction is under way; a
broker forwards requests that only a controller can serve in an ENVELOPE."""
BY_CLIENTS = tuple(
    spec.key
    for spec in API_SPECS.values()
    if "broker" in spec.listeners and (spec.forwardable or not spec.cluster_action)
)
"""Requests that clients may send to brokers; they send nothing to controllers."""

OF_CLIENTS = 0.6
"""Share of faults of requests of clients; the others are of requests between nodes."""
ENOUGH = 3.0
"""Minimum number of expected requests: then hardly any fault meets none."""
PROBABILITIES = (1.0, 0.3, 0.05)
"""Share of messages that a rule meets; a part is enough of frequent messages."""
PROVOKED_SECONDS = 5.0
"""Duration of the provoking rule: longer than the session of a broker and the fetch timeout of a voter in these
runs."""
OF_ELECTIONS = (ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH)
"""An election comes when nobody is answered by the active controller."""
OF_THE_ISR = (ApiKey.ALTER_PARTITION,)
"""A broker that was fenced comes into its ISRs again."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A value of `--message`, such as END_TXN:hold. Missing parts are drawn."""

    api_key: ApiKey
    action: Action | None = None
    direction: Direction | None = None


def wish_of(text: str) -> Wish:
    """`API`, `API:ACTION`, `API:DIRECTION`, `API:ACTION:DIRECTION`. Raises ValueError."""
    name, *words = (word.strip() for word in text.split(":"))
    by_name = {_plain(each.name): each for each in ApiKey if each in BY_CLIENTS or each in AMONG_NODES}
    api_key = by_name.get(_plain(name))
    if api_key is None:
        near = difflib.get_close_matches(_plain(name), by_name, n=1, cutoff=0.7)
        guess = f" ({by_name[near[0]].name}?)" if near else ""
        raise ValueError(
            f"nobody sends {name or 'that'}{guess}; there are {', '.join(each.name for each in by_name.values())}"
        )
    actions = [action for action in ACTIONS if action in words]
    directions = [direction for direction in DIRECTIONS if direction in words]
    if len(actions) > 1 or len(directions) > 1 or len(words) != len(actions) + len(directions):
        what = f"one of {', '.join(ACTIONS)}, and one of {', '.join(DIRECTIONS)}"
        raise ValueError(f"behind {api_key.name} there may be {what}: {api_key.name}:hold:request")
    return Wish(api_key, actions[0] if actions else None, directions[0] if directions else None)


def _plain(name: str) -> str:
    """EndTxn, END_TXN and end-txn are one."""
    return name.replace("_", "").replace("-", "").upper()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A rule, and its description for the history."""

    rule: MessageRule
    api_name: str
    targets: Sequence[str]
    """The nodes that are asked."""
    provoked_by: MessageRule | None = None
    """To be there meanwhile for PROVOKED_SECONDS: without it nobody would send such messages."""


async def draw(
    chance: Chance, cluster: ClusterUnderTest, traffic: Expected, wishes: Sequence[Wish] = ()
) -> Drawn | None:
    """Draws from the wishes, or else from messages that are sent or can be provoked; None if there are none.

    It depends on the traffic as little as possible: a few messages more or less seldom lead to another rule.
    """
    if wishes:
        wish = one_of(chance, wishes)
        return _drawn(chance, cluster, wish, _of_api(traffic, wish.api_key))
    is_of_clients = happens(chance, OF_CLIENTS)
    traffic = {way: count for way, count in traffic.items() if (way.source == CLIENT) == is_of_clients}
    api_key = _some_api(chance, traffic, () if is_of_clients else _provokable(cluster))
    if api_key is None:
        return None
    traffic = _of_api(traffic, api_key)
    if _is_enough(traffic):
        return _drawn(chance, cluster, Wish(api_key), traffic)
    provoked_by = await _provocation(chance, cluster, api_key)
    if provoked_by is None:
        return None
    return replace(_drawn(chance, cluster, Wish(api_key), {}), provoked_by=provoked_by)


def _drawn(chance: Chance, cluster: ClusterUnderTest, wish: Wish, traffic: Expected) -> Drawn:
    """`traffic` is that of the API; source and target of the rule are chosen from it."""
    api_key = wish.api_key
    direction = one_of(chance, [wish.direction] if wish.direction else DIRECTIONS)
    action = one_of(chance, [wish.action] if wish.action else ACTIONS)
    delay_ms = float(one_of(chance, [50, 300, 1_500]))
    target, traffic = _some_end(chance, traffic, "target")
    source, traffic = _some_end(chance, traffic, "source")
    probability = _some_probability(chance, sum(traffic.values()))
    rule = MessageRule(int(api_key), direction, action, delay_ms, source, target, probability)
    asked = sorted({way.target for way in traffic}) or _who_answers(cluster, api_key)
    return Drawn(rule, api_key.name, [target] if target else asked)


def _of_api(traffic: Expected, api_key: ApiKey) -> Expected:
    return {way: count for way, count in traffic.items() if way.api_key == api_key}


def _is_enough(traffic: Expected) -> bool:
    return sum(traffic.values()) >= ENOUGH


def _some_api(chance: Chance, traffic: Expected, provokable: Sequence[ApiKey]) -> ApiKey | None:
    """In an order that does not depend on the traffic, the first that is sent."""
    sums: dict[int, float] = {}
    for way, count in traffic.items():
        sums[way.api_key] = sums.get(way.api_key, 0.0) + count
    for api_key in shuffled(chance, list(ApiKey)):
        if api_key in provokable or sums.get(api_key, 0.0) >= ENOUGH:
            return api_key
    return None


def _some_end(chance: Chance, traffic: Expected, end: Literal["source", "target"]) -> tuple[str | None, Expected]:
    """A source or target, None meaning any, and the traffic that is left."""
    names: list[str] = sorted({getattr(way, end) for way in traffic})
    if names == [CLIENT]:
        return CLIENT, traffic
    found = {name: {way: count for way, count in traffic.items() if getattr(way, end) == name} for name in names}
    order = shuffled(chance, [None, None, *names])
    name = next(each for each in order if each is None or _is_enough(found[each]))
    return name, traffic if name is None else found[name]


def _some_probability(chance: Chance, count: float) -> float:
    return next((each for each in shuffled(chance, PROBABILITIES) if count * each >= ENOUGH), 1.0)


def _who_answers(cluster: ClusterUnderTest, api_key: ApiKey) -> list[str]:
    return list(cluster.brokers if "broker" in API_SPECS[api_key].listeners else cluster.controllers)


def _provokable(cluster: ClusterUnderTest) -> list[ApiKey]:
    """Those for which there is somebody else to ask."""
    elections = OF_ELECTIONS if len(cluster.controllers) > 1 else ()
    return [*elections, *(OF_THE_ISR if len(cluster.brokers) > 1 else ())]


async def _provocation(chance: Chance, cluster: ClusterUnderTest, api_key: ApiKey) -> MessageRule | None:
    """None: that cannot be provoked now."""
    if api_key in OF_THE_ISR:
        return MessageRule(ApiKey.BROKER_HEARTBEAT, "request", "hold", source=one_of(chance, cluster.brokers))
    active = await cluster.active_controller()
    return None if active is None else MessageRule(ApiKey.FETCH, "response", "hold", target=active)
