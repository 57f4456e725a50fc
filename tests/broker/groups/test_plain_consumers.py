"""Histories of a consumer group beside a plain one: members join, stay, change what they want, leave and fall silent,
some of them static; topics come, grow and go; patterns are searched; writes fail; coordinators move. Each seed is
another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.groups import assignment_turns, consumer_heartbeat
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.group import Client, Commit
from barnabas.broker.groups.topic_hashes import TopicHashes
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.broker.groups.machine_bench import Bench
from tests.broker.groups.plain_consumers import (
    LEFT_FOR_A_WHILE,
    UNREVOKED,
    Place,
    PlainGroup,
    PlainMember,
    Resolved,
    Step,
    by_topic,
    places_of,
    plain_member,
)

pytestmark = pytest.mark.feature("CG-13", "CG-14", "CG-15", "CG-04")

E = ErrorCode
GROUP = "readers"
SESSION_MS, HEARTBEAT_MS, INTERVAL_MS, REBALANCE_MS = 45_000, 5_000, 1_000, 20_000
REFRESH_MS = 2**31 - 1
SEARCH_MS, SEARCH_AGAIN_MS, RETRY_MS = 10_000, 60_000, 500
SIZE, AT_ONCE = 4, 4
TOPICS = ("apples", "pears", "plums")
MATCHING = {
    "p.*": {"pears", "plums"},
    "apples|plums": {"apples", "plums"},
    "none": set[str](),
    "pl.*": {"plums"},
}
"""Patterns, and what they match."""
PATTERNS = (*MATCHING, "(")
BROKEN = KafkaError(E.NOT_COORDINATOR)
SEARCH, TURN = ("consumer-patterns", GROUP), ("consumer-assignment", GROUP)


def all_but_plums(topic: str) -> bool:
    return topic != "plums"


CLIENTS = (Client("c", "/1"), Client("c", "/1"), Client("c", "/1"), Client("d", "/2", all_but_plums))


class History:
    """The machine under test, and a plain group."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.interval_ms = chance.choice([0, INTERVAL_MS])
        self.in_turns = seed % 4 == 3
        self.fickleness = chance.choice([0.1, 0.1, 0.4])
        """How often members want another pattern."""
        self.bench = Bench(
            group__consumer__assignment__interval__ms=str(self.interval_ms),
            group__consumer__max__size=str(SIZE),
            group__consumer__migration__policy="upgrade",
            group__consumer__regex__refresh__interval__ms=str(SEARCH_AGAIN_MS),
            offsets__retention__check__interval__ms=str(2**50),
        )
        self.group: PlainGroup | None = None
        self.sessions: dict[str, int] = {}
        self.revocations: dict[str, tuple[int, int]] = {}
        """Deadline, and the epoch for which it was set."""
        self.search: tuple[int, int, int, dict[str, frozenset[str]]] | None = None
        """When it is due, the version and the time of its beginning, and what each pattern finds."""
        self.created_at = -1
        """Version of the metadata that last had a new topic."""
        self.notes: list[tuple[str, str]] = []
        self.noted = 0
        self.rebalances = 0
        self.static_ids = 0
        self.turns_are_due = False
        self.moves()

    @property
    def now_ms(self) -> int:
        return self.bench.monotonic_ms

    def soft_state(self) -> list[dict[str, Any]]:
        """By member; lost with the coordinator."""
        return [self.sessions, self.revocations]

    @property
    def wall_ms(self) -> int:
        return self.bench.now.wall_ms

    def note(self, what: str, cause: str) -> None:
        self.notes.append((what, cause))

    def hash_of(self, names: Any) -> int:
        return TopicHashes().of_group(sorted(names), self.bench.image)

    # -- the plain rules of a heartbeat

    def wrong(self, request: ConsumerGroupHeartbeatRequest) -> ErrorCode | None:
        """The first reason against a heartbeat."""
        return self.malformed(request) or self.stranger(request) or self.wrong_pattern(request)

    @staticmethod
    def malformed(request: ConsumerGroupHeartbeatRequest) -> ErrorCode | None:
        epoch, owned = request.member_epoch, request.topic_partitions
        texts = (request.member_id, request.group_id, request.instance_id, request.rack_id)
        is_bad = any(text is not None and not text.strip() for text in texts)
        if epoch == 0:
            is_bad |= request.rebalance_timeout_ms == -1 or owned is None or bool(owned)
            is_bad |= request.subscribed_topic_names is None and request.subscribed_topic_regex is None
        is_bad |= epoch < -2 or (epoch == -2 and request.instance_id is None)
        if is_bad:
            return E.INVALID_REQUEST
        if request.server_assignor not in (None, "uniform", "range"):
            return E.UNSUPPORTED_ASSIGNOR
        topics = max(len(owned or ()), len(request.subscribed_topic_names or ()))
        return E.INVALID_REQUEST if topics > 3 or sum(len(it.partitions) for it in owned or ()) > 6 else None

    def stranger(self, request: ConsumerGroupHeartbeatRequest) -> ErrorCode | None:
        group, epoch, name, instance = self.group, request.member_epoch, request.member_id, request.instance_id
        if group is None:
            return None if epoch == 0 else E.GROUP_ID_NOT_FOUND
        if epoch >= 0 and len(group.members) >= SIZE and name not in group.members:
            return E.GROUP_MAX_SIZE_REACHED
        holder = group.holder(instance)
        if instance is not None:
            if epoch == 0:
                held = None if holder is None else group.members[holder]
                is_away = held is None or held.classic is not None or held.epoch == LEFT_FOR_A_WHILE
                return None if is_away else E.UNRELEASED_INSTANCE_ID
            if holder is None:
                return E.UNKNOWN_MEMBER_ID
            if holder != name:
                return E.FENCED_INSTANCE_ID
        if epoch == 0:
            return None
        if name not in group.members:
            return E.UNKNOWN_MEMBER_ID
        member = group.members[name]
        if epoch < 0 or epoch == member.epoch:
            return None
        owned = reported_by(request)
        is_repeated = epoch == member.previous_epoch and owned is not None and owned <= member.assigned.keys()
        return None if epoch < member.epoch and is_repeated else E.FENCED_MEMBER_EPOCH

    def wrong_pattern(self, request: ConsumerGroupHeartbeatRequest) -> ErrorCode | None:
        if request.member_epoch < 0 or request.subscribed_topic_regex != "(":
            return None
        return E.INVALID_REGULAR_EXPRESSION

    def joins_or_stays(self, group: PlainGroup, request: ConsumerGroupHeartbeatRequest, client: Client) -> PlainMember:
        """Changes the group; returns the member as it was."""
        name = request.member_id
        holder = group.holder(request.instance_id) if request.member_epoch == 0 else None
        before = self.changes(
            group, name, holder, lambda it: with_request(it, request, client), reported_by(request), client
        )
        self.sessions[name] = self.now_ms + SESSION_MS
        return before

    def changes(
        self,
        group: PlainGroup,
        name: str,
        holder: str | None,
        say: Callable[[PlainMember], PlainMember],
        reported: set[Place] | None,
        client: Client,
    ) -> PlainMember:
        """A member says what it wants and has; `holder` is the static member that it replaces."""
        last = group.copy()
        before = group.members.get(name, PlainMember())
        if holder is not None:
            before = replace(group.members[holder], epoch=0, previous_epoch=0)
            if holder != name:
                came = f"static member {before.instance} returned as {name}"
                self.note(f"member {holder} of group {GROUP} is fenced", came)
                del group.members[holder]
            group.targets[name] = group.targets.pop(holder, set())
        after = group.members[name] = say(before)
        pattern_changed, is_resolved = self.change_pattern(group, last, before.pattern, name, client)
        names_changed = before.names != after.names
        cause = ""
        if names_changed or is_resolved or group.must_reassign:
            cause = f"{name} changed its subscribed pattern"
            if name not in last.members:
                cause = f"{name} joined"
            elif names_changed:
                cause = f"{name} changed its subscribed topics"
            elif group.must_reassign:
                cause = "its target assignment was incomplete when this coordinator loaded it"
        self.next_epoch(group, cause)
        epoch, target = self.assign(group, last, name)
        topics = self.bench.image.topics.by_name
        ids = {topics[it].id for it in group.topics_of(after) if it in topics}
        step = Step(epoch, target, ids, names_changed or pattern_changed, reported, last.owned())
        done = group.members[name] = step.of(after)
        if done != after and done.classic is None:
            self.revocations.pop(name, None)
            if done.state is UNREVOKED:
                self.revocations[name] = (self.now_ms + done.rebalance_ms, done.epoch)
        return before

    def next_epoch(self, group: PlainGroup, cause: str) -> None:
        at_ms, epoch = group.checked
        if not cause and self.now_ms < at_ms and group.epoch >= epoch:
            return
        metadata_hash = self.hash_of(group.topics())
        if cause or metadata_hash != group.metadata_hash:
            group.epoch += 1
            group.metadata_hash = metadata_hash
            group.must_reassign = False
            self.note(
                f"group {GROUP} begins epoch {group.epoch}", cause or "partitions or racks of its topics have changed"
            )
        group.checked = (self.now_ms + REFRESH_MS, group.epoch)

    def assign(self, group: PlainGroup, last: PlainGroup, name: str) -> tuple[int, set[Place]]:
        """The target that the member is led to, and its epoch."""
        member = group.members[name]
        owner = name if member.instance is None else last.holder(member.instance)
        mine = last.targets.get(owner or "", set())
        wall_ms = self.wall_ms
        too_soon = group.assigned_at_ms and 0 <= wall_ms - group.assigned_at_ms < self.interval_ms
        if group.assignment_epoch >= group.epoch or too_soon:
            return group.assignment_epoch, mine
        if self.in_turns:
            # If one is under way, it is the next heartbeat after it that begins another.
            self.turns_are_due = True
            return group.assignment_epoch, mine
        # A static member comes last in the order of an assignment, even if it was there before.
        members = {
            other: it for other, it in last.members.items() if member.instance is None or it.instance != member.instance
        }
        members[name] = member
        targets = {**{other: last.targets.get(other, set()) for other in members}, name: mine}
        self.take_targets(group, replace(group, members=members), targets)
        return group.epoch, group.targets[name]

    def take_targets(self, group: PlainGroup, ordered: PlainGroup, last: dict[str, set[Place]]) -> None:
        assignor = ordered.assignor(["uniform", "range"])
        group.targets = ordered.new_targets(assignor, self.bench.image.topics, last)
        self.note(
            f"group {GROUP} has a new target assignment of epoch {group.epoch} for {len(group.members)} members",
            f"the previous one had epoch {group.assignment_epoch}; assignor {assignor}",
        )
        group.assignment_epoch, group.assigned_at_ms = group.epoch, self.wall_ms
        self.rebalances += 1

    def take_turns_soon(self) -> None:
        """Now, or after other requests of the same moment."""
        if self.chance.random() < 0.6:
            self.take_turns()

    def take_turns(self) -> None:
        """An assignment that takes turns has all of them now. The first that writes may fail, and is repeated."""
        group, due, timers = self.group, self.turns_are_due, self.bench.timers
        self.turns_are_due = False
        assert (timers.deadline_ms(TURN) is not None) == due
        last = {} if group is None else dict(group.targets)
        writes = due and group is not None and bool(group.members) and group.epoch > group.assignment_epoch
        turns = 1
        if group is not None and writes:
            self.take_targets(group, group, {name: group.targets.get(name, set()) for name in group.members})
            sizes = [1 + len(target) for name, target in group.targets.items() if last.get(name) != target]
            turns = max(1, full(sizes))
            if self.chance.random() < 0.2:
                self.bench.broken = BROKEN
                self.bench.take_turn(TURN)
                self.bench.broken = None
                assert timers.deadline_ms(TURN) == self.now_ms + RETRY_MS
                timers.waiting[TURN] = (self.now_ms, timers.waiting[TURN][1])
                # An assignment is counted though its last write fails.
                self.rebalances += turns == 1
        for _ in range(turns if due else 0):
            assert timers.deadline_ms(TURN) == self.now_ms
            self.bench.take_turn(TURN)
        assert timers.deadline_ms(TURN) is None

    # -- patterns

    def change_pattern(
        self, group: PlainGroup, last: PlainGroup, old: str, name: str, client: Client
    ) -> tuple[bool, bool]:
        """Return whether the member has another pattern, and whether that one is known to match these topics."""
        new = group.members[name].pattern
        is_new = bool(new) and new not in last.patterns
        if old != new and old not in group.patterns:
            group.resolved.pop(old, None)
        wanted = list(group.patterns)
        if wanted and (is_new or last.patterns) and self.is_search_due(last, wanted, is_new):
            image = self.bench.image
            found = {
                it: frozenset(filter(client.may_describe, MATCHING[it] & image.topics.by_name.keys())) for it in wanted
            }
            self.search = (self.now_ms, image.offset, self.wall_ms, found)
        return old != new, old != new and not is_new and (not new or new in last.resolved)

    def is_search_due(self, last: PlainGroup, wanted: list[str], is_new: bool) -> bool:
        if self.search is not None:
            return False
        known = next(iter(last.resolved.values()), None)
        if known is None:
            return True
        since_ms = abs(self.wall_ms - known.at_ms)
        is_stale = len(wanted) != len(last.resolved) or known.version < self.created_at or since_ms > SEARCH_AGAIN_MS
        return since_ms > SEARCH_MS and (is_new or is_stale)

    def search_ends(self, at_ms: int, *, is_broken: bool = False) -> None:
        assert self.search is not None
        due, self.search = self.search, None
        if self.group is None:
            return
        _, version, began_ms, found = due
        group, noted = self.group.copy(), len(self.notes)
        changed = False
        with_topics = {it.pattern for name, it in group.members.items() if group.targets.get(name)}
        for pattern, topics in found.items():
            if pattern not in group.patterns:
                continue
            before = group.resolved.pop(pattern, None)
            changed |= topics != before.topics if before is not None else bool(topics) or pattern in with_topics
            group.resolved[pattern] = Resolved(topics, version, began_ms)
        metadata_hash = self.hash_of(group.topics())
        if changed or metadata_hash != group.metadata_hash:
            group.epoch += 1
            group.metadata_hash, group.must_reassign = metadata_hash, False
            group.checked = (at_ms + REFRESH_MS, group.epoch)
            self.note(f"group {GROUP} begins epoch {group.epoch}", "the topics that its patterns match have changed")
        is_written = group.epoch != self.group.epoch or any(pattern in group.patterns for pattern in found)
        if is_broken and is_written:
            self.group.checked = group.checked
            self.search = (at_ms + RETRY_MS, *due[1:])
            del self.notes[noted:]
        else:
            self.group = group

    def search_fails(self) -> None:
        """The result of a search cannot be written."""
        if self.search is None or self.search[0] > self.now_ms:
            return
        self.bench.broken = BROKEN
        while (self.bench.timers.deadline_ms(SEARCH) or self.now_ms + 1) <= self.now_ms:
            self.bench.take_turn(SEARCH)
        self.bench.broken = None
        self.search_ends(self.now_ms, is_broken=True)

    # -- one heartbeat

    def beat(self) -> None:
        chance = self.chance
        request = self.some_request()
        client = chance.choice(CLIENTS)
        is_broken = chance.random() < 0.1
        size = len(self.bench.log)
        self.bench.broken = BROKEN if is_broken else None
        try:
            answer = self.bench.ask(self.bench.machine.consumer.heartbeat, request, client, 1)
        except KafkaError as error:
            answer = error
        self.bench.broken = None
        if (wrong := self.wrong(request)) is not None:
            assert (ErrorCode(answer.error_code), len(self.bench.log)) == (wrong, size), (answer, request)
            return
        name, epoch = request.member_id, request.member_epoch
        before, group = self.group, (self.group or PlainGroup()).copy()
        noted, kept = len(self.notes), [dict(it) for it in self.soft_state()]
        was = None
        if epoch == -1:
            self.remove(group, [name], f"{name} left")
        elif epoch == LEFT_FOR_A_WHILE:
            member = group.members[name]
            group.members[name] = replace(member, epoch=epoch, revoking={}, assigned=dict.fromkeys(member.assigned, 0))
        else:
            was = self.joins_or_stays(group, request, client)
        is_written = was is None or before is None or before.durable() != group.durable()
        if is_broken and is_written:
            assert isinstance(answer, KafkaError) and answer.code is BROKEN.code
            del self.notes[noted:]
            if was is None:
                for now, then in zip(self.soft_state(), kept, strict=True):
                    now.clear()
                    now.update(then)
            elif before is not None:
                before.checked = group.checked
        else:
            assert (answer.error_code, answer.error_message, answer.member_id) == (E.NONE, None, name)
            self.group = group
            for other in before.members.keys() - group.members.keys() if before is not None else ():
                self.forget(other)
            if was is None:
                assert answer.member_epoch == epoch and answer.assignment is None
            else:
                self.check_answer(answer, request, was)
        self.take_turns_soon()

    def check_answer(self, answer: Any, request: ConsumerGroupHeartbeatRequest, was: PlainMember) -> None:
        assert self.group is not None
        member = self.group.members[request.member_id]
        assert (answer.member_epoch, answer.heartbeat_interval_ms) == (member.epoch, HEARTBEAT_MS)
        shown = None if answer.assignment is None else places_in(answer.assignment.topic_partitions)
        names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        is_full = request.rebalance_timeout_ms != -1 and request.topic_partitions is not None
        is_full &= names is not None or pattern is not None
        is_shown = request.member_epoch == 0 or is_full or was.assigned != member.assigned
        assert shown == (set(member.assigned) if is_shown else None)

    def some_request(self) -> ConsumerGroupHeartbeatRequest:
        """Mostly what a client would send, and what it would not."""
        chance, group = self.chance, self.group or PlainGroup()
        instance = chance.choice([None, None, None, "one"])
        name = chance.choice("abc")
        holder = group.holder("one")
        if instance is not None and chance.random() < 0.95:
            name = holder or "one.0"
            if holder is None or chance.random() < 0.2:
                self.static_ids += 1
                name = f"one.{self.static_ids}"
        elif holder == name and chance.random() < 0.9:
            instance = "one"
        member = group.members.get(name)
        epoch = 0 if member is None or member.epoch < 0 else member.epoch
        epoch = chance.choice([*[epoch] * 12, 0, -1, -2, -3, epoch + 1, max(1, epoch - 1)])
        if instance is not None and name not in group.members:
            epoch = chance.choice([0, 0, 0, epoch])
        if member is not None and chance.random() < 0.15:
            epoch = max(member.previous_epoch, 0)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=epoch,
            instance_id=instance,
            topic_partitions=self.some_places(member),
        )
        if epoch == 0:
            request.rebalance_timeout_ms, request.topic_partitions = REBALANCE_MS, []
        elif chance.random() < 0.2:
            request.rebalance_timeout_ms = chance.choice([REBALANCE_MS, 2 * REBALANCE_MS])
        if epoch == 0 or chance.random() < 0.15:
            request.subscribed_topic_names = chance.sample(TOPICS, chance.choice([0, 1, 2, 2]))
        if chance.random() < (0.3 if epoch == 0 else self.fickleness):
            request.subscribed_topic_regex = chance.choice(["", *PATTERNS])
        if chance.random() < 0.15:
            request.server_assignor = chance.choice(["uniform", "range", "range", "best"])
        if chance.random() < 0.05:
            request.rack_id = chance.choice(["r", "s", " "])
        match chance.randrange(40):
            case 0:
                request.topic_partitions = None
            case 1:
                request.rebalance_timeout_ms = -1
            case 2:
                request.subscribed_topic_names = None
            case 3:
                request.subscribed_topic_names = [*TOPICS, "four"]
            case 4:
                request.member_id = ""
        return request

    def some_places(self, member: PlainMember | None) -> list[TopicPartitions] | None:
        """Partitions that a member says it owns."""
        chance = self.chance
        if member is None:
            return None
        everything = [(it.id, number) for it in self.bench.image.topics.by_name.values() for number in it.partitions]
        places = chance.choice(
            [
                None,
                list(member.assigned),
                list(member.assigned),
                list(member.assigned),
                [*member.assigned, *member.revoking],
                list(member.assigned)[1:],
                list(member.revoking)[:1],
                everything[: chance.randrange(8)],
            ]
        )
        if places is None:
            return None
        return [TopicPartitions(topic_id=it, partitions=sorted(numbers)) for it, numbers in by_topic(places).items()]

    # -- members that go

    def remove(self, group: PlainGroup, names: list[str], cause: str) -> None:
        for name in names:
            del group.members[name]
            group.targets.pop(name, None)
            self.forget(name)
        group.resolved = {pattern: it for pattern, it in group.resolved.items() if pattern in group.patterns}
        group.epoch += 1
        group.metadata_hash, group.must_reassign = self.hash_of(group.topics()), False
        left = len(group.members)
        self.note(f"group {GROUP} begins epoch {group.epoch}", f"{cause}; {left or 'no'} members remain")

    def forget(self, name: str) -> None:
        self.sessions.pop(name, None)
        self.revocations.pop(name, None)

    def fence(self, name: str, late: str) -> None:
        assert self.group is not None
        self.note(f"member {name} of group {GROUP} is fenced", late)
        self.remove(self.group, [name], f"{name} is fenced, {late}")

    def time(self) -> None:
        self.take_turns()
        chance, now_ms = self.chance, self.now_ms
        ends = [at_ms - now_ms for at_ms in (*self.sessions.values(), *(it[0] for it in self.revocations.values()))]
        lasts = [1, RETRY_MS, INTERVAL_MS - 1, INTERVAL_MS, SEARCH_MS, SEARCH_MS + 1, 20_000, SEARCH_AGAIN_MS + 1]
        time_ms = max(0, chance.choice([*lasts, *ends, *[it - 1 for it in ends]]))
        if chance.random() < 0.02:
            time_ms = REFRESH_MS
        ranks = {key: place for place, key in enumerate(self.bench.timers.waiting)}
        self.bench.advance(time_ms)
        while True:
            due = self.other_timers(ranks)
            for name, at_ms in self.sessions.items():
                due.append((at_ms, ranks["consumer-session", GROUP, name], "session", name))
            for name, (at_ms, _) in self.revocations.items():
                due.append((at_ms, ranks["consumer-rebalance", GROUP, name], "revocation", name))
            if self.search is not None:
                due.append((self.search[0], ranks[SEARCH], "search", ""))
            at_ms, _, what, name = min(due, default=(self.now_ms + 1, 0, "", ""))
            if at_ms > self.now_ms:
                return
            self.comes(what, name, at_ms)

    def other_timers(self, ranks: dict[Any, int]) -> list[tuple[int, int, str, str]]:
        """When they are due, their order, their kinds and members."""
        return []

    def comes(self, what: str, name: str, at_ms: int) -> None:
        """The time of a timer has come."""
        member = None if self.group is None else self.group.members.get(name)
        if what == "search":
            self.search_ends(max(at_ms, 0))
        elif what == "session":
            del self.sessions[name]
            if member is not None:
                self.fence(name, f"it sent nothing for {SESSION_MS} ms")
        else:
            _, epoch = self.revocations.pop(name)
            if member is not None and member.epoch == epoch:
                self.fence(name, f"it did not revoke its partitions within {member.rebalance_ms} ms")

    # -- the rest of the world

    def topics(self) -> None:
        chance, bench = self.chance, self.bench
        name = chance.choice(TOPICS)
        is_new = True
        if name not in bench.image.topics.by_name:
            bench.create_topic(name, chance.choice([1, 2, 3]))
        elif chance.random() < 0.3:
            bench.delete_topic(name)
            is_new = False
        elif chance.random() < 0.3:
            bench.recreate_topic(name)
        elif len(bench.image.topics.by_name[name].partitions) < 5:
            bench.add_partition(name)
            is_new = False
        else:
            return
        if is_new:
            self.created_at = bench.image.offset
        if self.group is not None and name in self.group.topics():
            self.group.checked = (0, 0)

    def moves(self) -> None:
        """Another broker coordinates the group."""
        if self.chance.random() < 0.5:
            self.bench.compact()
        self.bench.reload()
        found = self.bench.machine.consumer.find(GROUP)
        if self.group is not None and found is not None:
            # The order of members is that of the log.
            self.group.members = {name: self.group.members[name] for name in found.members}
        self.search, self.revocations, self.sessions, self.turns_are_due = None, {}, {}, False
        self.created_at = self.bench.image.offset
        group = self.group
        if group is None:
            return
        group.checked = (0, 0)
        is_current = group.assignment_epoch == group.epoch
        group.must_reassign = is_current and not group.assigns_each_once(self.bench.image.topics)
        self.sessions = dict.fromkeys(group.members, self.now_ms + SESSION_MS)
        for name, it in group.members.items():
            if it.state is UNREVOKED and it.classic is None:
                self.revocations[name] = (self.now_ms + it.rebalance_ms, it.epoch)

    def set_clock(self) -> None:
        """The wall clock is set, ahead or back."""
        self.bench.clock_error_ms += self.chance.choice([-1, -1, 1, -self.interval_ms, -3_600_000, 3_600_000])

    def delete(self) -> None:
        try:
            self.bench.ask(self.bench.machine.delete, GROUP)
            code = None
        except KafkaError as error:
            code = error.code
        if self.group is None:
            assert code is E.GROUP_ID_NOT_FOUND
        elif self.group.members:
            assert code is E.NON_EMPTY_GROUP
        else:
            assert code is None
            self.note(f"group {GROUP} is deleted, with its offsets", "requested by DeleteGroups")
            self.group, self.turns_are_due = None, False

    # -- offsets

    def offsets(self) -> None:
        """May somebody commit or fetch?"""
        chance, group, found = self.chance, self.group, self.bench.machine.consumer.find(GROUP)
        if group is None or found is None:
            return
        name = chance.choice([*group.members, "", "nobody"])
        member = group.members.get(name)
        epochs = [-2, -1, 0, 3] if member is None else [-1, *range(max(0, member.epoch - 3), max(0, member.epoch) + 2)]
        epoch, version, transactional = chance.choice(epochs), chance.choice([8, 9, 10]), chance.random() < 0.4
        commit = Commit(name, chance.choice([None, None, "one"]), epoch, transactional, version)
        refusal = self.refusal(group, commit)
        assert code_of(found.check_commit, commit, self.bench.now) is refusal
        if refusal is None:
            for topic in self.bench.image.topics.by_name.values():
                for number in topic.partitions:
                    code = code_of(found.check_commit_of, commit, topic.name, topic.id, number)
                    assert code is self.refusal(group, commit, (topic.id, number))
        who = chance.choice([name, None])
        code = code_of(found.check_fetch, who, epoch)
        if who is None and epoch < 0:
            assert code is None
        elif (reader := group.members.get(who or "")) is None:
            assert code is E.UNKNOWN_MEMBER_ID
        else:
            stale = E.STALE_MEMBER_EPOCH if reader.classic is None else E.ILLEGAL_GENERATION
            assert code is (None if epoch == reader.epoch else stale)

    @staticmethod
    def refusal(group: PlainGroup, commit: Commit, place: Place | None = None) -> ErrorCode | None:
        epoch = commit.generation_or_epoch
        is_nobody = epoch == -1 and commit.transactional and not commit.member_id and not commit.group_instance_id
        if epoch < 0 and (not group.members or is_nobody):
            return None
        member = group.members.get(commit.member_id)
        if member is None:
            return E.UNKNOWN_MEMBER_ID
        if commit.version < 9 and not commit.transactional and member.classic is None:
            return E.UNSUPPORTED_VERSION
        stale = E.STALE_MEMBER_EPOCH if member.classic is None else E.ILLEGAL_GENERATION
        if place is None:
            return stale if epoch > member.epoch else None
        since = {**member.revoking, **member.assigned}.get(place)
        is_fine = epoch == member.epoch or (since is not None and since <= epoch)
        return None if is_fine else stale

    # -- checks

    def check(self) -> None:
        bench = self.bench
        found, group = bench.machine.consumer.find(GROUP), self.group
        assert (found is None) == (group is None)
        decided = bench.decisions.since(self.noted + 1)
        self.noted += len(decided)
        assert [(it.what, it.cause) for it in decided] == self.notes
        self.notes = []
        assert bench.events.consumer_rebalances == self.rebalances
        assert bench.timers.deadline_ms(SEARCH) == (None if self.search is None else self.search[0])
        if found is None or group is None:
            assert bench.machine.groups.memory.held_bytes == 0
            return
        self.check_group(found, group)
        for name in group.members:
            assert bench.timers.deadline_ms(("consumer-session", GROUP, name)) == self.sessions[name]
            revocation = self.revocations.get(name, (None, 0))[0]
            assert bench.timers.deadline_ms(("consumer-rebalance", GROUP, name)) == revocation

    def check_group(self, found: ConsumerGroup, group: PlainGroup) -> None:
        bench, topics = self.bench, self.bench.image.topics
        assert (found.epoch, found.metadata_hash) == (group.epoch, group.metadata_hash)
        assert (found.assignment_epoch, found.assignment_timestamp_ms) == (group.assignment_epoch, group.assigned_at_ms)
        assert {name: plain_member(it) for name, it in found.members.items()} == group.members
        assert {name: places_of(it) for name, it in found.targets.items()} == group.targets
        resolved = {pattern: Resolved(*it) for pattern, it in found.subscribed.resolved.items()}
        assert resolved == group.resolved
        assert [it.at_ms for it in resolved.values()] == [it.at_ms for it in group.resolved.values()]
        assert found.must_reassign == group.must_reassign
        assert {name for name in TOPICS if found.is_subscribed_to(name)} == group.topics() & set(TOPICS)
        static = found.static_member("one")
        assert (None if static is None else static.member_id) == group.holder("one")
        assert bench.machine.groups.memory.held_bytes == group.memory_bytes
        described = bench.machine.describe_consumer(GROUP).complete()
        assert (described.group_state, described.group_epoch) == (group.state, group.epoch)
        assert described.assignment_epoch == group.assignment_epoch
        assert described.assignor_name == (group.favourite() or "uniform")
        for it in described.members:
            member = group.members[it.member_id]
            target = group.targets.get(it.member_id, set())
            for shown, places in ((it.assignment, member.held), (it.target_assignment, target)):
                assert places_in(shown.topic_partitions) == {place for place in places if place[0] in topics.by_id}
            kind = 1 if member.classic is None else 0
            assert (it.member_type, it.member_epoch, it.instance_id) == (kind, member.epoch, member.instance)
            assert set(it.subscribed_topic_names) == member.names and it.subscribed_topic_regex == member.pattern


def full(sizes: list[int]) -> int:
    """How many turns it takes to write targets of these sizes."""
    turns, size = 0, AT_ONCE
    for it in sizes:
        if size >= AT_ONCE:
            turns, size = turns + 1, 0
        size += it
    return turns


def with_request(member: PlainMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> PlainMember:
    """The member with what a heartbeat says; fields that it leaves out stay."""
    said = {
        "instance": request.instance_id,
        "rack": request.rack_id,
        "names": None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        "pattern": request.subscribed_topic_regex,
        "assignor": request.server_assignor,
        "rebalance_ms": None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
    }
    changes: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    return replace(member, client=(client.client_id, client.host), classic=None, **changes)


def places_in(topics: Any) -> set[Place]:
    return {(it.topic_id, number) for it in topics for number in it.partitions}


def reported_by(request: ConsumerGroupHeartbeatRequest) -> set[Place] | None:
    return None if request.topic_partitions is None else places_in(request.topic_partitions)


def code_of(check: Any, *arguments: Any) -> ErrorCode | None:
    try:
        check(*arguments)
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize("seed", range(36))
def test_a_consumer_group_is_like_a_plain_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_heartbeat, "MOST_TOPICS", 3)
    monkeypatch.setattr(consumer_heartbeat, "MOST_OWNED_PARTITIONS", 6)
    history = History(seed)
    if history.in_turns:
        monkeypatch.setattr(assignment_turns, "MOST_AT_ONCE", 0)
        monkeypatch.setattr(assignment_turns, "WRITTEN_AT_ONCE", AT_ONCE)
    for name in TOPICS[:2]:
        history.bench.create_topic(name, 2)
        history.created_at = history.bench.image.offset
    steps = [history.beat] * 14 + [history.time] * 3 + [history.offsets] * 2
    steps += [history.topics, history.moves, history.delete, history.search_fails, history.set_clock]
    for _ in range(150):
        history.chance.choice(steps)()
        history.check()
