"""Core: asynchronous search for the topics that match the patterns of consumer groups.

A group's patterns are searched when a member subscribes to a new pattern, when topics were created since the last
search, and once per group.consumer.regex.refresh.interval.ms, but at most every ten seconds. A search covers all
patterns of the group together, in steps of bounded work, so that neither many topics nor an expensive pattern block the
event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.broker.coordinator.outcome import Now, Outcome
from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_member import ConsumerMember
from barnabas.broker.groups.group import GroupContext, describes_all
from barnabas.broker.groups.group_subscriptions import ResolvedPattern
from barnabas.broker.groups.group_update import Update
from barnabas.broker.patterns import Pattern, PatternError
from barnabas.protocol.errors import ErrorCode, KafkaError

LEAST_INTERVAL_MS = 10_000
STEPS_OF_COMPILING = 1_000_000
STEPS_OF_ONE_TURN = 3_000_000
"""Cost of the matches in one step of the event loop, as `Pattern.cost` counts it: a few milliseconds."""
STEPS_OF_A_RIGHT = 5_000
"""Cost of one question for a right."""
RETRY_MS = 500
"""Delay before a result is written again that could not be written."""


MayDescribe = Callable[[str], bool]


class PatternChange(NamedTuple):
    """Effect of a member's heartbeat on its pattern."""

    changed: bool
    """The member subscribes to another pattern, or to none."""
    resolved: bool
    """The new pattern is resolved already, so the group's topics change at once."""


class _Search(NamedTuple):
    """A search in progress."""

    patterns: tuple[str, ...]
    version: int
    """Metadata offset of the search."""
    began_ms: int
    """Wall time."""
    turns: Iterator[dict[str, set[str]] | None]


def find_topics(
    patterns: Iterable[str], topics: Sequence[str], budget: int, may_describe: MayDescribe = describes_all
) -> Iterator[dict[str, set[str]] | None]:
    """Find the topics that each pattern matches and the client may describe. Yields None after each `budget` steps, and
    finally the result.

    An invalid pattern, which another version has accepted, matches nothing.
    """
    found: dict[str, set[str]] = {text: set() for text in patterns}
    spent = 0
    for text, matching in found.items():
        try:
            pattern = Pattern(text)
        except PatternError:
            continue
        spent += STEPS_OF_COMPILING
        for topic in topics:
            if spent >= budget:
                spent = 0
                yield None
            if pattern.matches(topic):
                spent += STEPS_OF_A_RIGHT
                if may_describe(topic):
                    matching.add(topic)
            spent += pattern.cost(topic)
    yield found


def check_pattern(pattern: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    try:
        Pattern(pattern)
    except PatternError as error:
        message = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def search_timer(group_id: str) -> Hashable:
    return ("consumer-patterns", group_id)


class PatternSearches:
    """The searches of one partition's groups. `found(group, topics, changed, update)` receives each result."""

    def __init__(
        self, context: GroupContext, found: Callable[[ConsumerGroup, Iterable[str], bool, Update], None]
    ) -> None:
        self._context = context
        self._found = found
        self._topics_created_at = -1
        """Offset of the newest metadata that added a topic."""

    def loaded(self) -> None:
        """After loading, every topic may be newer than the last search."""
        self._topics_created_at = max(self._topics_created_at, self._context.image().offset)

    def topics_created(self, offset: int) -> None:
        self._topics_created_at = offset

    def update(
        self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, update: Update
    ) -> PatternChange:
        """Start a search if one is due. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
        old, new = before.topic_pattern, after.topic_pattern
        change = PatternChange(old != new, False)
        is_new = False
        if change.changed:
            if old and group.subscribed.patterns.get(old, 0) == 1:
                update.records.append(records.resolved_pattern_tombstone(group.group_id, old))
            if new and group.subscribed.patterns.get(new, 0) == 0:
                check_pattern(new)
                is_new = True
            else:
                change = PatternChange(True, not new or new in group.subscribed.resolved)
        if is_new or group.subscribed.patterns:
            subscribed = Counter(group.subscribed.patterns)
            if old:
                subscribed[old] -= 1
            if new:
                subscribed[new] += 1
            patterns = tuple(pattern for pattern, count in subscribed.items() if count > 0)
            if patterns and self._is_due(group, patterns, is_new, update.now):
                self._begin(group, patterns, update)
        return change

    def _is_due(self, group: ConsumerGroup, patterns: Sequence[str], is_new: bool, now: Now) -> bool:
        if self._context.timers.deadline_ms(search_timer(group.group_id)) is not None:
            return False
        last = next(iter(group.subscribed.resolved.values()), None)
        if last is None:
            return True
        # A clock that was set back must not delay a search for long.
        since_ms = abs(now.wall_ms - last.timestamp_ms)
        if since_ms <= LEAST_INTERVAL_MS:
            return False
        return (
            is_new
            or len(patterns) != len(group.subscribed.resolved)
            or last.version < self._topics_created_at
            or since_ms > self._context.settings().group_consumer_regex_refresh_interval_ms
        )

    def _begin(self, group: ConsumerGroup, patterns: tuple[str, ...], update: Update) -> None:
        image, now = self._context.image(), update.now
        turns = find_topics(patterns, list(image.topics.by_name), STEPS_OF_ONE_TURN, update.may_describe)
        search = _Search(patterns, image.offset, now.wall_ms, turns)
        self._schedule(group.group_id, search, now)

    def _schedule(self, group_id: str, search: _Search, now: Now) -> None:
        self._context.timers.schedule(search_timer(group_id), now.monotonic_ms, partial(self._turn, group_id, search))

    def _turn(self, group_id: str, search: _Search, now: Now) -> Outcome:
        """Timer: continue the search; at the end write the new results."""
        found = next(search.turns)
        if found is None:
            self._schedule(group_id, search, now)
            return Outcome()
        return self._finish(group_id, search, found, now)

    def _finish(self, group_id: str, search: _Search, found: dict[str, set[str]], now: Now) -> Outcome:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return Outcome()
        update = Update(now)
        resolved: dict[str, ResolvedPattern] = {}
        changed = False
        # A member that changed its pattern no longer subscribes to the topics of the old one, so their partitions must
        # be reassigned even if the new pattern matches nothing. (Kafka does not do that.)
        with_topics = {member.topic_pattern for member in group.members.values() if group.target_of(member)}
        for pattern in search.patterns:
            if not group.subscribed.patterns.get(pattern, 0):
                continue
            topics = frozenset(found.get(pattern, ()))
            resolved[pattern] = ResolvedPattern(topics, search.version, search.began_ms)
            before = group.subscribed.resolved.get(pattern)
            if before is None:
                changed = changed or bool(topics) or pattern in with_topics
            else:
                changed = changed or topics != before.topics
            update.records.append(records.resolved_pattern(group_id, pattern, topics, search.version, search.began_ms))
        self._found(group, group.subscribed.topics_with_resolved(resolved), changed, update)
        outcome = update.outcome()
        outcome.failed = lambda error: self._again(group_id, search, found, now)
        return outcome

    def _again(self, group_id: str, search: _Search, found: dict[str, set[str]], now: Now) -> Outcome:
        """Retry a failed write. The result remains valid for a while."""
        again = search._replace(turns=iter([found]))
        self._context.timers.schedule(
            search_timer(group_id), now.monotonic_ms + RETRY_MS, partial(self._turn, group_id, again)
        )
        return Outcome()

    def forget(self, group: ConsumerGroup, leaving: Iterable[ConsumerMember], update: Update) -> list[str]:
        """Patterns without subscribers once these members have left."""
        given_up = Counter(member.topic_pattern for member in leaving if member.topic_pattern)
        subscribed = group.subscribed.patterns
        forgotten = [pattern for pattern, count in given_up.items() if subscribed.get(pattern, 0) == count]
        update.records += [records.resolved_pattern_tombstone(group.group_id, pattern) for pattern in forgotten]
        return forgotten
