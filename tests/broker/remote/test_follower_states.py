"""A follower learns from remote segments the producers that the log knew at an offset."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.remote import follower_states
from barnabas.broker.remote.follower_states import FollowerStates
from barnabas.broker.replication.tier_start import RemoteState, StateWanted
from barnabas.runtime.object_store import StoreError
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_snapshot_format import decode_snapshot, encode_snapshot
from tests.broker.remote.rig import KEY, Tiers, run
from tests.broker.remote.test_reader import Act, acts
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, append, batch, small_segments
from tests.storage.test_aborted import begin, end

pytestmark = pytest.mark.feature("TS-08")


class Queue:
    """Runs nothing; the test does."""

    def submit(self, read: Any, ended: Any) -> None:
        self.read = read


class Named:
    topic_id, topic, index = KEY


def state_at(tiers: Tiers, offset: int, epoch: int = 0) -> RemoteState:
    """The state of a log whose next offset is `offset`."""
    queue = Queue()
    states = FollowerStates(tiers.store, lambda _key: tiers.segments, queue)  # type: ignore[arg-type]
    states.ask(Named(), StateWanted(9, epoch, offset - 1, 0), lambda _state: None)  # type: ignore[arg-type]
    found: RemoteState = run(queue.read)
    return found


def played(log: PartitionLog, story: list[Act]) -> list[tuple[int, bytes]]:
    """Append; returns the producers at the end of each batch, as a snapshot."""
    sequences: dict[int, int] = {}
    known: list[tuple[int, bytes]] = []
    for kind, producer in story:
        if kind == "plain":
            append(log, batch(1))
        elif kind == "begin":
            begin(log, producer, sequence=sequences.get(producer, 0))
            sequences[producer] = sequences.get(producer, 0) + 1
        elif producer in sequences:
            end(log, producer, commit=kind == "commit")
        assert log.producers is not None
        known.append((log.log_end_offset, encode_snapshot(log.producers.entries.values())))
    return known


def entries(snapshot: bytes) -> dict[int, Any]:
    return {
        each.producer_id: (
            each.epoch,
            each.coordinator_epoch,
            each.last_timestamp,
            each.transaction_first_offset,
            each.batches,
        )
        for each in decode_snapshot(snapshot)
    }


@given(story=acts(), chunk_bytes=st.sampled_from((100, 1_000, 1 << 20)))
@settings(max_examples=examples(30), deadline=None)
def test_the_producers_at_each_offset_are_those_of_the_log(story: list[Act], chunk_bytes: int) -> None:
    log = Rig().open(small_segments())
    known = played(log, story)
    log.set_high_watermark(log.log_end_offset)
    tiers = Tiers(log)
    tiers.copy_closed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower_states, "REPLAY_BYTES", chunk_bytes)
        for offset, snapshot in known:
            if 0 < offset <= log.active_segment.base_offset:
                state = state_at(tiers, offset)
                assert state.next_offset == offset
                assert state.leader_epochs == ((0, 0),)
                assert entries(state.producer_snapshot) == entries(snapshot)


def test_only_a_segment_that_reaches_beyond_is_read() -> None:
    log = Rig().open(small_segments())
    for _ in range(20):
        append(log, batch(1, value=b"x" * 300))
    log.set_high_watermark(log.log_end_offset)
    tiers = Tiers(log)
    tiers.copy_closed()
    bases = [segment.base_offset for segment in log.segments]
    state_at(tiers, bases[3])
    assert tiers.store.reads["log"] == 0
    state_at(tiers, bases[3] + 1)
    assert tiers.store.reads["log"] > 0


def test_epochs_that_begin_later_in_the_segment_are_not_those_of_the_follower() -> None:
    log = Rig().open(small_segments(segment_bytes=100_000))
    append(log, batch(5), leader_epoch=1)
    append(log, batch(5), leader_epoch=4)
    log.set_high_watermark(log.log_end_offset)
    log.roll(NOW_MS)
    tiers = Tiers(log)
    tiers.copy_closed()
    assert state_at(tiers, 5, epoch=1).leader_epochs == ((1, 0),)
    with pytest.raises(StoreError, match="no remote segment with offset 3 of leader epoch 4"):
        state_at(tiers, 4, epoch=4)
