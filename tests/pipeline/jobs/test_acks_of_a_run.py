"""`barnabas pipeline audit --acks RUN` takes the acknowledged sends from a run's history."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from barnabas.pipeline.jobs.audit import acks_in_line
from histories.history import encode
from histories.synthetic import Story

pytestmark = pytest.mark.feature("PL-05")


def acks_of(story: Story, prefix: str = "") -> list[tuple[str, int, int, str]]:
    lines = [encode(each).decode() for each in story.operations]
    return [ack for line in lines for ack in acks_in_line(line, prefix)]


def test_sends_that_ended_well_are_acks_at_the_partition_of_their_key() -> None:
    story = Story()
    story.send(0, 0, 5, 7)
    story.send(0, 3, 6, 8)
    story.txn(1, [["send", 1, [9, 10]], ["poll", {"0": [[7, 5]]}]])
    story.poll(2, {0: [(7, 5)]})
    assert acks_of(story, "run-") == [("run-t0", 0, 7, "5"), ("run-t1", 1, 8, "6"), ("run-t0", 1, 9, "10")]


def test_sends_with_an_unknown_end_or_offset_are_no_acks() -> None:
    story = Story()
    story.send(0, 0, 5, 7, "info")
    story.send(0, 0, 6, 7, "fail")
    story.send(0, 0, 8, None)
    assert acks_of(story) == []


def test_the_torn_last_line_of_a_killed_run_is_left_out() -> None:
    assert list(acks_in_line('{"i": 3, "type": "ok", "f": "se', "")) == []
