"""Topic patterns in consumer groups (the patterns themselves: tests/broker/test_patterns.py)."""

from __future__ import annotations

import pytest

from barnabas.broker.groups.consumer_group import GroupState
from barnabas.broker.groups.pattern_searches import LEAST_INTERVAL_MS, find_topics
from barnabas.protocol.errors import ErrorCode
from tests.broker.groups.consumer_rig import GROUP, HEARTBEAT_MS, Reader, Rig, settle


@pytest.mark.feature("CG-15")
def test_a_search_runs_in_steps() -> None:
    costly, invalid = "(a|b)*a(a|b){13}", "("
    topics = [format(number, "b").translate({48: "a", 49: "b"}).rjust(20, "a") for number in range(3_000)]
    turns = list(find_topics([costly, invalid], topics, 300_000))
    assert len(turns) > 10 and turns[:-1] == [None] * (len(turns) - 1)
    assert turns[-1] == {costly: {topic for topic in topics if topic[-14] == "a"}, invalid: set()}


SEARCH_MS = 50


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.create_topic("news-eu", 2)
    rig.create_topic("news-us", 2)
    rig.create_topic("sport", 1)
    return rig


def pattern_reader(rig: Rig, name: str, pattern: str, *topics: str) -> Reader:
    reader = Reader(rig, name, *topics, subscribed_topic_regex=pattern)
    reader.join()
    assert reader.error is ErrorCode.NONE
    return reader


@pytest.mark.feature("CG-15")
def test_a_pattern_is_searched_beside_the_heartbeat(rig: Rig) -> None:
    reader = pattern_reader(rig, "a", "news-.*")
    assert (reader.epoch, reader.partitions) == (1, set())
    rig.pass_ms(SEARCH_MS)
    assert [record.key.API_KEY for record in rig.written] == [16, 3]
    resolved = rig.group.subscribed.resolved["news-.*"]
    assert (resolved.topics, resolved.version) == (frozenset({"news-eu", "news-us"}), rig.image.offset)
    reader.beat()
    assert reader.partitions == {("news-eu", 0), ("news-eu", 1), ("news-us", 0), ("news-us", 1)}
    assert rig.group.is_subscribed_to("news-eu") and not rig.group.is_subscribed_to("sport")


@pytest.mark.feature("CG-15")
def test_a_resolved_pattern_takes_effect_at_once(rig: Rig) -> None:
    a = pattern_reader(rig, "a", "news-.*")
    rig.pass_ms(SEARCH_MS)
    a.beat()
    b = pattern_reader(rig, "b", "news-.*")
    assert rig.group.targets["b"], "it has its share at once"
    settle(a, b)
    assert len(a.partitions) == len(b.partitions) == 2


@pytest.mark.feature("CG-15")
def test_new_topics_are_found_at_limited_intervals(rig: Rig) -> None:
    reader = pattern_reader(rig, "a", "news-.*")
    rig.pass_ms(SEARCH_MS)
    reader.beat()
    rig.create_topic("news-asia", 1)
    reader.beat()
    rig.pass_ms(SEARCH_MS)
    assert "news-asia" not in rig.group.subscribed.resolved["news-.*"].topics, "the last search was just now"
    rig.pass_ms(LEAST_INTERVAL_MS)
    reader.beat()
    rig.pass_ms(SEARCH_MS)
    reader.beat()
    assert ("news-asia", 0) in reader.partitions
    rig.delete_topic("news-asia")
    settle(reader)
    assert len(reader.partitions) == 4


@pytest.mark.feature("CG-15")
def test_patterns_are_searched_again_after_a_while() -> None:
    rig = Rig(group_consumer_regex_refresh_interval_ms=60_000)
    rig.create_topic("news", 1)
    reader = pattern_reader(rig, "a", ".*")
    rig.pass_ms(SEARCH_MS)
    first = rig.group.subscribed.resolved[".*"].timestamp_ms
    epoch = rig.group.epoch
    for _ in range(60_000 // HEARTBEAT_MS + 2):
        reader.beat()
        rig.pass_ms(HEARTBEAT_MS)
    assert rig.group.subscribed.resolved[".*"].timestamp_ms >= first + 60_000
    assert rig.group.epoch == epoch, "nothing has changed"


@pytest.mark.feature("CG-15")
def test_a_new_coordinator_searches_at_once(rig: Rig) -> None:
    reader = pattern_reader(rig, "a", "news-.*")
    rig.pass_ms(SEARCH_MS)
    reader.beat()
    rig.pass_ms(LEAST_INTERVAL_MS)
    rig.fail_over()
    rig.create_topic("news-asia", 1)
    reader.beat()
    rig.pass_ms(SEARCH_MS)
    reader.beat()
    assert ("news-asia", 0) in reader.partitions


@pytest.mark.feature("CG-15")
def test_a_pattern_without_subscribers_is_removed(rig: Rig) -> None:
    a, b = pattern_reader(rig, "a", "news-.*"), pattern_reader(rig, "b", "news-.*")
    rig.pass_ms(SEARCH_MS)
    a.leave()
    assert list(rig.group.subscribed.resolved) == ["news-.*"]
    b.fields["subscribed_topic_regex"] = ""
    b.beat(subscribed_topic_regex="")
    assert not rig.group.subscribed.resolved
    c = pattern_reader(rig, "c", "sport")
    rig.pass_ms(SEARCH_MS)
    c.beat()
    assert c.partitions == {("sport", 0)}
    c.leave()
    assert [record.key.API_KEY for record in rig.written] == [8, 7, 5, 16, 3]
    rig.fail_over(compacted=True)
    assert not rig.group.subscribed.resolved


@pytest.mark.feature("CG-15")
def test_a_pattern_that_is_given_up_during_its_search_has_no_result(rig: Rig) -> None:
    reader = pattern_reader(rig, "a", "news-.*")
    other = pattern_reader(rig, "b", "sport")
    reader.fields["subscribed_topic_regex"] = "sport"
    reader.beat(subscribed_topic_regex="sport")
    rig.pass_ms(SEARCH_MS)
    assert "news-.*" not in rig.group.subscribed.resolved
    rig.pass_ms(LEAST_INTERVAL_MS)
    other.beat()
    rig.pass_ms(SEARCH_MS)
    settle(reader, other)
    assert rig.group.subscribed.resolved.keys() == {"sport"}
    assert reader.partitions | other.partitions == {("sport", 0)}


@pytest.mark.feature("CG-15")
def test_names_and_patterns_are_combined(rig: Rig) -> None:
    reader = pattern_reader(rig, "a", "news-e.", "sport", "news-eu")
    rig.pass_ms(SEARCH_MS)
    reader.beat()
    assert reader.partitions == {("news-eu", 0), ("news-eu", 1), ("sport", 0)}


@pytest.mark.feature("CG-15")
def test_a_first_search_without_matches_starts_no_new_epoch(rig: Rig) -> None:
    """Nothing changes for the assignment: a member that repeats its last epoch must not be fenced."""
    a = pattern_reader(rig, "a", "foo.*")
    rig.pass_ms(SEARCH_MS)
    assert rig.group.subscribed.resolved["foo.*"].topics == frozenset()
    assert rig.group.epoch == 1
    rig.pass_ms(LEAST_INTERVAL_MS)
    a.beat()
    assert (a.epoch, a.partitions) == (1, set())
    rig.create_topic("foo", 3)
    rig.pass_ms(LEAST_INTERVAL_MS)
    a.beat()
    rig.pass_ms(SEARCH_MS)
    a.beat()
    assert (a.epoch, a.partitions) == (2, {("foo", 0), ("foo", 1), ("foo", 2)})


@pytest.mark.feature("CG-15")
def test_a_new_pattern_without_matches_releases_the_topics_of_the_old_one(rig: Rig) -> None:
    a, b = pattern_reader(rig, "a", "news-.*"), Reader(rig, "b", "news-eu", "news-us")
    rig.pass_ms(SEARCH_MS)
    b.join()
    settle(a, b)
    a.fields["subscribed_topic_regex"] = "nothing"
    rig.pass_ms(LEAST_INTERVAL_MS)
    a.beat(subscribed_topic_regex="nothing")
    rig.pass_ms(SEARCH_MS)
    settle(a, b)
    assert (a.partitions, len(b.partitions)) == (set(), 4)


@pytest.mark.feature("CG-15")
def test_a_result_that_cannot_be_written_is_written_later(rig: Rig) -> None:
    reader = pattern_reader(rig, "a", "sport")
    rig.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.pass_ms(SEARCH_MS)
    assert not rig.group.subscribed.resolved
    rig.broken = None
    rig.pass_ms(1_000)
    reader.beat()
    assert reader.partitions == {("sport", 0)}


@pytest.mark.feature("CG-15")
def test_a_removed_group_ends_its_search(rig: Rig) -> None:
    reader = pattern_reader(rig, "a", "sport")
    reader.leave()
    for record in rig.group.tombstones():
        rig.core.replay(record.key, None)
    rig.pass_ms(SEARCH_MS)
    assert rig.directory.get(GROUP) is None


@pytest.mark.feature("CG-15")
def test_a_bad_pattern_changes_nothing(rig: Rig) -> None:
    reader = Reader(rig, "a", "sport")
    reader.join()
    answer = reader.beat(subscribed_topic_regex="(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "`(`" in (answer.error_message or "")
    assert rig.group.members["a"].topic_pattern == ""
    assert rig.group.state is GroupState.STABLE
