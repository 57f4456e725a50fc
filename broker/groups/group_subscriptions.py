"""Core: the topics that the members of a consumer group subscribe to, by name and by pattern, and how many do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.broker.groups.consumer_member import ConsumerMember
from barnabas.broker.groups.group_memory import NAME_BYTES, HeldBytes, size_of_names


class ResolvedPattern(NamedTuple):
    """Topics that a pattern matches."""

    topics: frozenset[str]
    version: int
    """Metadata offset of the search."""
    timestamp_ms: int
    """Wall time."""


class GroupSubscriptions:
    def __init__(self, held: HeldBytes) -> None:
        """`held` gets the bytes of the names of all members."""
        self._held = held
        self.resolved: dict[str, ResolvedPattern] = {}
        self._by_name: Counter[str] = Counter()
        self._by_pattern: Counter[str] = Counter()
        self._patterns: Counter[str] = Counter()

    def __contains__(self, topic: str) -> bool:
        return self._by_name[topic] > 0 or self._by_pattern[topic] > 0

    def __iter__(self) -> Iterator[str]:
        """Topics in no order; one that is subscribed by name and by pattern comes twice."""
        yield from self._by_name
        yield from self._by_pattern

    @property
    def patterns(self) -> Mapping[str, int]:
        """Number of subscribed members by pattern."""
        return self._patterns

    def topics_with(self, before: ConsumerMember, after: ConsumerMember) -> list[str]:
        """Topics subscribed by the group once `after` has replaced `before`."""
        names = set(self._by_name)
        names -= {name for name in before.topic_names - after.topic_names if self._by_name[name] <= 1}
        names |= after.topic_names
        by_pattern = self._by_pattern.copy()
        given_up = before.topic_pattern if before.topic_pattern != after.topic_pattern else ""
        if given_up and self._patterns[given_up] == 1:
            count(by_pattern, self._found_by(given_up), -1)
        return sorted(names.union(by_pattern))

    def topics_without(self, leaving: Iterable[ConsumerMember], forgotten_patterns: Iterable[str]) -> list[str]:
        """Topics subscribed by the group without these members and patterns."""
        by_name, by_pattern = self._by_name.copy(), self._by_pattern.copy()
        for member in leaving:
            count(by_name, member.topic_names, -1)
        for pattern in forgotten_patterns:
            count(by_pattern, self._found_by(pattern), -1)
        return sorted({*by_name, *by_pattern})

    def topics_with_resolved(self, resolved: Mapping[str, ResolvedPattern]) -> list[str]:
        """Topics subscribed by the group once the patterns have these results."""
        by_pattern = self._by_pattern.copy()
        for pattern, found in resolved.items():
            count(by_pattern, self._found_by(pattern), -1)
            count(by_pattern, found.topics, 1)
        return sorted({*self._by_name, *by_pattern})

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """All topics that the member subscribes to; an unresolved pattern counts as none."""
        if not member.topic_pattern:
            return member.topic_names
        return member.topic_names | self._found_by(member.topic_pattern)

    def _found_by(self, pattern: str) -> frozenset[str]:
        found = self.resolved.get(pattern)
        return frozenset() if found is None else found.topics

    def replace_names(self, before: frozenset[str], after: frozenset[str]) -> None:
        """A member subscribes to the topics `after` instead of `before`."""
        if before != after:
            less, more = before - after, after - before
            count(self._by_name, less, -1)
            self._by_name.update(more)
            self._held.change(size_of_names(more) - size_of_names(less))

    def count_pattern(self, pattern: str, step: int) -> None:
        """Count one more or one less member with this pattern, if it is not empty."""
        if pattern:
            count(self._patterns, (pattern,), step)
            self._held.change(step * (NAME_BYTES + len(pattern)))

    def resolve(self, pattern: str, found: ResolvedPattern | None) -> None:
        """Replace the result of a pattern; None removes it."""
        before = self.resolved.pop(pattern, None)
        if before is not None:
            count(self._by_pattern, before.topics, -1)
        if found is not None:
            self.resolved[pattern] = found
            count(self._by_pattern, found.topics, 1)


def count(counter: Counter[str], names: Iterable[str], step: int) -> None:
    """Removes names whose count falls to 0."""
    for name in names:
        counter[name] += step
        if counter[name] <= 0:
            del counter[name]
