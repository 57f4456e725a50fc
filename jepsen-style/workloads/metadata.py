"""Administrators at a few topics at a time: created, deleted, given partitions, configured, looked at.

Every value of the one config that changes is written once in a run. A topic's name is left alone after a while, and
another takes its place.

`create` `{"topic": name, "partitions": n, "config": v}`, `delete` `{"topic": name}`, `partitions`
`{"topic": name, "total": n}`, `alter` `{"topic": name, "config": v}`: `fail` with Kafka's name of the error is what the
cluster said of the topic (it exists, nobody knows it, it has that many already).
`describe` `{"topic": name}`, completed with `"config"`; `list` `{}`, completed with `"topics"`: `{name: partitions}`.
`look` (at the end) `{"topic": name}`, completed with `"partitions"` and `"config"`, both null if there is none.
`crash`: the client is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation
from workloads.lives import CRASH, Finale, Lives, crash, drawn, failed
from workloads.workload import WorkloadOptions

CONFIG = "retention.ms"
FIRST_VALUE = 1_000_000_000
"""Days: nothing is ever deleted by it."""
MOST_TOPICS = 5
"""At a time."""
MOST_PARTITIONS = 5
MOST_OPERATIONS = 80
"""On one name."""
MOST_UNKNOWN = 6
"""Operations on one name of which nobody knows: each of them makes the search for an order longer."""
_FINAL_READERS = 2
_SHARES = (("describe", 0.35), ("list", 0.1), ("alter", 0.2), ("create", 0.15), ("partitions", 0.1), ("delete", 0.1))
_CHANGES = ("create", "delete", "partitions", "alter")
_ANSWERED = ("describe", "look")
"""Operations that a broker answers from its own image."""


@dataclass(slots=True)
class _Name:
    """One that is in use."""

    name: str
    operations: int = 0
    unknown: int = 0


class Metadata:
    """One run of it; a `Workload`."""

    name = "metadata"

    def __init__(self, options: WorkloadOptions) -> None:
        self._lives = Lives(options)
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._names: list[_Name] = []
        self._used: list[str] = []
        self._config = FIRST_VALUE
        self._looked: dict[int, int] = {}
        """By thread: how many of the names it has looked at."""
        for _ in range(max(1, min(MOST_TOPICS, options.keys))):
            self._names.append(self._new_name())

    def _new_name(self) -> _Name:
        self._used.append(self._lives.named(f"metadata-{len(self._used)}"))
        return _Name(self._used[-1])

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return replace(base, group_id=None, transactional_id=None)

    async def set_up(self, client: WorkClient) -> None:
        await client.list_topics()

    # What to do

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        thread = self._lives.thread(process)
        if self._finale.begun:
            if not self._finale.waits_for(thread, now_ns):
                return None
            return Invocation("look", {"topic": self._used[self._looked.get(thread, 0)]})
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        return self._choose(chance)

    def _choose(self, chance: Chance) -> Invocation:
        place = chance.randrange(0, len(self._names))
        if self._names[place].operations >= MOST_OPERATIONS or self._names[place].unknown >= MOST_UNKNOWN:
            self._names[place] = self._new_name()
        chosen = self._names[place]
        f = drawn(chance, _SHARES)
        if f == "list":
            return Invocation("list", {})
        chosen.operations += 1
        asked: dict[str, Any] = {"topic": chosen.name}
        if f == "create":
            asked["partitions"] = chance.randrange(1, 3)
        if f == "partitions":
            asked["total"] = chance.randrange(2, MOST_PARTITIONS + 1)
        if f in ("create", "alter"):
            self._config += 1
            asked["config"] = str(self._config)
        return Invocation(f, asked)

    # How it is done

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        value = dict(invocation.value)
        try:
            await self._ask(invocation.f, value, client)
        except ClientError as error:
            if invocation.f in _CHANGES:
                return failed(error, invocation.value)
            # A read has changed nothing.
            return Completion("fail", invocation.value, (error.name, error.text), ends_process=error.fatal)
        # Only reads are answered by the broker itself: the controller makes a change, whichever broker forwarded it.
        node = client.answered_by() if value.get("config") is not None and invocation.f in _ANSWERED else None
        return Completion("ok", value, node=node)

    async def _ask(self, f: str, value: dict[str, Any], client: WorkClient) -> None:
        topic = value.get("topic", "")
        if f == "create":
            await client.create_topic(topic, value["partitions"], self._lives.replicas, {CONFIG: value["config"]})
        elif f == "delete":
            await client.delete_topic(topic)
        elif f == "partitions":
            await client.create_partitions(topic, value["total"])
        elif f == "alter":
            await client.alter_config(topic, CONFIG, value["config"])
        elif f == "describe":
            value["config"] = await client.describe_config(topic, CONFIG)
        else:
            topics = await client.list_topics()
            if f == "list":
                value["topics"] = {name: count for name, count in sorted(topics.items()) if name in self._used}
            else:
                value["partitions"] = topics.get(topic)
                value["config"] = await client.describe_config(topic, CONFIG) if topic in topics else None

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        if invocation.f == "look":
            self._has_looked(self._lives.thread(process), completion)
        elif completion.type == "info" and invocation.f in _CHANGES:
            for each in self._names:
                each.unknown += each.name == invocation.value["topic"]

    def _has_looked(self, thread: int, completion: Completion) -> None:
        if completion.type == "ok":
            self._looked[thread] = self._looked.get(thread, 0) + 1
        if self._looked.get(thread, 0) == len(self._used):
            self._finale.has_finished(thread)

    # The end

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over
