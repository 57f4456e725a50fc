"""Entries of the ledger, and the decision about a batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.pipeline.errors import LedgerError
from barnabas.pipeline.ledger import (
    Ledger,
    LedgerEntry,
    Verdict,
    decide,
    decode_entry,
    digest_of,
    entries_at,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.examples import examples
from tests.pipeline.scripted_cluster import ScriptedCluster

pytestmark = pytest.mark.feature("PL-06")


def entry(batch_id: int, checkpoint: str = "here") -> LedgerEntry:
    return LedgerEntry(batch_id, checkpoint, "app-1", 10, "abc")


def verdict_of(last: LedgerEntry | None, batch_id: int, **more: Any) -> Verdict:
    return decide(last, batch_id, "here", query="q", **more)


@settings(max_examples=examples(30))
@given(
    st.integers(0, 2**62),
    st.text(max_size=50),
    st.text(max_size=1000),
    st.integers(0, 2**62),
    st.text("0123456789abcdef", max_size=16),
)
def test_an_entry_is_read_as_it_was_written(
    batch: int, checkpoint: str, application: str, records: int, digest: str
) -> None:
    written = LedgerEntry(batch, checkpoint, application, records, digest)
    [(offset, metadata)] = entries_at(["flights"], written).values()
    read = decode_entry(offset, metadata)
    assert (read.batch_id, read.checkpoint, read.records, read.digest) == (batch, checkpoint, records, digest)
    assert application.startswith(read.application)


@given(st.uuids(), st.integers(0, 2**62))
def test_an_entry_is_small_enough_for_an_offset(checkpoint: Any, number: int) -> None:
    longest = LedgerEntry(number, str(checkpoint), "\U0001f680" * 5000, number, "f" * 16)
    assert len(longest.encode().encode()) <= 4096


@pytest.mark.parametrize(
    "metadata", [None, "", "{}", "[]", "7", '"batch"', "{", '{"format":2,"batch":5}', entry(4).encode()]
)
def test_an_offset_of_another_program_is_an_error(metadata: str | None) -> None:
    with pytest.raises(LedgerError, match="another name"):
        decode_entry(5, metadata)


def test_a_new_query_begins_at_its_first_batch() -> None:
    assert verdict_of(None, 0) is Verdict.WRITE


@given(st.integers(0, 2**40))
def test_batches_follow_each_other_and_only_the_last_comes_again(batch_id: int) -> None:
    assert verdict_of(entry(batch_id), batch_id + 1) is Verdict.WRITE
    assert verdict_of(entry(batch_id), batch_id) is Verdict.SKIP


@given(st.none() | st.integers(0, 50), st.integers(0, 50))
def test_a_batch_is_never_written_twice_and_never_skipped_unwritten(last: int | None, batch_id: int) -> None:
    """With any other entry, the batch is neither skipped, which would lose it, nor written."""
    before = None if last is None else entry(last)
    expected = 0 if last is None else last + 1
    if batch_id == expected:
        assert verdict_of(before, batch_id) is Verdict.WRITE
    elif batch_id == last:
        assert verdict_of(before, batch_id) is Verdict.SKIP
    else:
        with pytest.raises(LedgerError):
            verdict_of(before, batch_id)


def test_an_empty_ledger_with_a_late_batch_is_an_error_unless_allowed() -> None:
    with pytest.raises(LedgerError, match=r"expired .* begin_late=True"):
        verdict_of(None, 7)
    assert verdict_of(None, 7, may_begin_late=True) is Verdict.WRITE
    assert verdict_of(entry(3), 7, may_begin_late=True) is Verdict.WRITE


def test_a_batch_before_the_last_is_always_an_error() -> None:
    with pytest.raises(LedgerError, match="old copy"):
        verdict_of(entry(8), 7, may_begin_late=True)


def test_a_new_checkpoint_with_an_old_name_is_an_error() -> None:
    """Its batches begin at 0 again: skipping them would lose their rows."""
    with pytest.raises(LedgerError, match="another checkpoint"):
        decide(entry(57, "there"), 0, "here", query="q", may_begin_late=True)


def test_a_digest_does_not_depend_on_the_order_of_tasks() -> None:
    ranges = [("b", 0, 5, 9), ("a", 1, 0, 3), ("a", 0, 7, 7)]
    assert digest_of(ranges) == digest_of(reversed(ranges)) != digest_of(ranges[:2])


# ---- the shell


def committed(*offsets: tuple[str, int, str, ErrorCode], code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[OffsetFetchResponsePartition(committed_offset=offset, metadata=text, error_code=error)],
            )
            for topic, offset, text, error in offsets
        ],
    )


def test_a_ledger_without_entries_is_empty() -> None:
    assert Ledger(ScriptedCluster(committed()), "q").last() is None


def test_the_newest_of_the_entries_at_many_topics_counts() -> None:
    old, new = ("a", 3, entry(3).encode(), ErrorCode.NONE), ("b", 4, entry(4).encode(), ErrorCode.NONE)
    assert Ledger(ScriptedCluster(committed(old, new)), "q").last() == entry(4)
    assert Ledger(ScriptedCluster(committed(new, old)), "q").last() == entry(4)


def test_an_entry_that_is_being_committed_is_waited_for() -> None:
    cluster = ScriptedCluster(
        committed(("a", -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)),
        committed(code=ErrorCode.NOT_COORDINATOR),
        committed(("a", 6, entry(6).encode(), ErrorCode.NONE)),
    )
    assert Ledger(cluster, "q").last(stable=True) == entry(6)
    asked = cluster.asked[0]
    assert isinstance(asked, OffsetFetchRequest)
    assert asked.require_stable and asked.topics is None and asked.group_id == "spark-sink-q"
    assert len(cluster.asked) == 3


def test_the_entry_of_a_known_topic_is_asked_for_by_its_name() -> None:
    cluster = ScriptedCluster(committed(("flights", 6, entry(6).encode(), ErrorCode.NONE)))
    assert Ledger(cluster, "q", "flights").last() == entry(6)
    [topic] = cluster.asked[0].topics
    assert (topic.name, topic.partition_indexes) == ("flights", [0])


def test_an_error_of_the_coordinator_is_raised() -> None:
    with pytest.raises(KafkaError, match="spark-sink-q"):
        Ledger(ScriptedCluster(committed(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)), "q").last()
