"""Who sends which messages to whom, and of which of them a fault is drawn.

A rule for messages that nobody sends does nothing: WRITE_TXN_MARKERS to a controller, VOTE between brokers.
OFFSET_FOR_LEADER_EPOCH is of clients alone: followers read in the answer to FETCH where they diverge (KIP-595).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nemeses.choosing import happens, one_of
from nemeses.shapes import CLIENT
from protocol.api_keys import API_SPECS, ApiKey
from runtime.world import Chance
from worlds.cluster import ClusterUnderTest, MessageRule

Role = Literal["client", "broker", "controller"]
Action = Literal["hold", "drop", "delay", "reset"]
Direction = Literal["request", "response"]
ACTIONS: Sequence[Action] = ("hold", "drop", "delay", "reset")
DIRECTIONS: Sequence[Direction] = ("request", "response")
Way = tuple[Role, Role]
"""(who asks, who is asked)"""

FROM_CLIENTS: Way = ("client", "broker")
BETWEEN_BROKERS: Way = ("broker", "broker")
TO_CONTROLLERS: Way = ("broker", "controller")
BETWEEN_CONTROLLERS: Way = ("controller", "controller")

AMONG_NODES: Mapping[ApiKey, Sequence[Way]] = {
    ApiKey.FETCH: (BETWEEN_BROKERS, TO_CONTROLLERS, BETWEEN_CONTROLLERS),
    ApiKey.LIST_OFFSETS: (BETWEEN_BROKERS,),
    ApiKey.API_VERSIONS: (BETWEEN_BROKERS, TO_CONTROLLERS, BETWEEN_CONTROLLERS),
    ApiKey.ADD_PARTITIONS_TO_TXN: (BETWEEN_BROKERS,),
    ApiKey.WRITE_TXN_MARKERS: (BETWEEN_BROKERS,),
    ApiKey.VOTE: (BETWEEN_CONTROLLERS,),
    ApiKey.BEGIN_QUORUM_EPOCH: (BETWEEN_CONTROLLERS,),
    ApiKey.END_QUORUM_EPOCH: (BETWEEN_CONTROLLERS,),
    ApiKey.ALTER_PARTITION: (TO_CONTROLLERS,),
    ApiKey.ENVELOPE: (TO_CONTROLLERS,),
    ApiKey.FETCH_SNAPSHOT: (TO_CONTROLLERS, BETWEEN_CONTROLLERS),
    ApiKey.BROKER_REGISTRATION: (TO_CONTROLLERS,),
    ApiKey.BROKER_HEARTBEAT: (TO_CONTROLLERS,),
    ApiKey.ALLOCATE_PRODUCER_IDS: (TO_CONTROLLERS,),
    ApiKey.CONTROLLER_REGISTRATION: (BETWEEN_CONTROLLERS,),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (TO_CONTROLLERS,),
}
"""What nodes send each other. Leaders ask a coordinator with ADD_PARTITIONS_TO_TXN whether a transaction is under way;
what clients ask of a broker and only a controller can do goes there in an ENVELOPE."""
BY_CLIENTS = tuple(
    spec.key
    for spec in API_SPECS.values()
    if "broker" in spec.listeners and (spec.forwardable or not spec.cluster_action)
)
"""What clients may send to brokers; they send nothing to controllers."""
FROM_ANYBODY = frozenset({ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.API_VERSIONS})
"""What is sent to controllers that do not lead, too; all else there goes to the active one."""
TO_THE_ACTIVE = 0.75
"""How often such a rule names the one that leads now; another may lead in a moment."""

TALKED_OF = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
)
"""APIs of clients whose messages are held, dropped and delayed, if nobody says which."""
TALKED_OF_BY_LIBRDKAFKA = (*TALKED_OF, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
"""The same where there is librdkafka: others do not ask for a transaction's partitions any more (KIP-890)."""
TALKED_OF_INSIDE = (
    ApiKey.FETCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
)
"""The same between nodes."""
STEADY = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.HEARTBEAT, ApiKey.BROKER_HEARTBEAT})
"""Of these some are enough, and those between two nodes; of what comes now and then a fault meets all it can."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asked for: `--message END_TXN:hold`. Whatever it leaves out is drawn."""

    api_key: ApiKey
    action: Action | None = None
    direction: Direction | None = None


def wish_of(text: str) -> Wish:
    """`API`, `API:ACTION`, `API:DIRECTION`, `API:ACTION:DIRECTION`. Raises ValueError, one line that says what there
    is."""
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
class Choice:
    """What messages a run's faults are about."""

    of_clients: Sequence[ApiKey] = TALKED_OF
    wishes: Sequence[Wish] = ()
    """None: those of clients here, and always the same of nodes."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A rule, and what there is to tell of it."""

    rule: MessageRule
    api_name: str
    targets: Sequence[str]
    """The nodes that are asked."""


EVERYTHING = Choice()


async def draw(chance: Chance, cluster: ClusterUnderTest, choice: Choice = EVERYTHING) -> Drawn | None:
    """Of messages that somebody sends. None: this cluster has nobody who would, a single broker, say."""
    if choice.wishes:
        wish = one_of(chance, choice.wishes)
        ways = _ways_among(cluster, wish.api_key)
        if _clients_send(wish.api_key, choice):
            ways.append(FROM_CLIENTS)
    elif happens(chance, 0.6):
        wish, ways = Wish(one_of(chance, choice.of_clients)), [FROM_CLIENTS]
    else:
        wish = Wish(one_of(chance, TALKED_OF_INSIDE))
        ways = _ways_among(cluster, wish.api_key)
    if not ways:
        return None
    api_key = wish.api_key
    way = one_of(chance, ways)
    source, target = await _ends(chance, cluster, api_key, way)
    rule = MessageRule(
        api_key=int(api_key),
        direction=one_of(chance, [wish.direction] if wish.direction else DIRECTIONS),
        action=one_of(chance, [wish.action] if wish.action else ACTIONS),
        delay_ms=float(one_of(chance, [50, 300, 1_500])),
        source=source,
        target=target,
        probability=one_of(chance, [1.0, 0.3, 0.05]) if api_key in STEADY else 1.0,
    )
    return Drawn(rule, api_key.name, [target] if target else _of_role(cluster, way[1]))


def _of_role(cluster: ClusterUnderTest, role: Role) -> list[str]:
    return {"client": [CLIENT], "broker": list(cluster.brokers), "controller": list(cluster.controllers)}[role]


def _clients_send(api_key: ApiKey, choice: Choice) -> bool:
    """What only librdkafka would is not theirs where others send it too."""
    is_old = api_key in TALKED_OF_BY_LIBRDKAFKA and api_key not in choice.of_clients
    return api_key in BY_CLIENTS and not (is_old and api_key in AMONG_NODES)


def _ways_among(cluster: ClusterUnderTest, api_key: ApiKey) -> list[Way]:
    """Those on which there are two who can speak to each other."""
    return [
        (asker, asked)
        for asker, asked in AMONG_NODES.get(api_key, ())
        if len({*_of_role(cluster, asker), *_of_role(cluster, asked)}) > 1
    ]


async def _ends(chance: Chance, cluster: ClusterUnderTest, api_key: ApiKey, way: Way) -> tuple[str | None, str | None]:
    """Who asks and who is asked; None: anybody."""
    asker, asked = way
    if api_key not in STEADY and happens(chance, 0.5):
        return CLIENT if asker == "client" else None, None
    target = one_of(chance, [None, None, *_of_role(cluster, asked)])
    if target is not None and asked == "controller" and api_key not in FROM_ANYBODY and happens(chance, TO_THE_ACTIVE):
        target = await cluster.active_controller() or target
    if asker == "client":
        return CLIENT, target
    return one_of(chance, [None, *(name for name in _of_role(cluster, asker) if name != target)]), target
