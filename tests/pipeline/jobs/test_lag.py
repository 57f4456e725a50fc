"""The next offsets of a job come from Spark's checkpoint or from the plan of a batch job."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.files import LocalFiles
from barnabas.pipeline.jobs.lag import Lag, positions_in_offset_log, positions_of_checkpoint, total
from barnabas.pipeline.jobs.plan import Claim, Plan, Range, cut
from barnabas.pipeline.jobs.rounds import Rounds

LOG = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"flights":{"0":100000,"1":7}}\n'
CLAIM = Claim(job="export", cluster_id="c", topic="t", topic_id="i", other="lake", query_id="q")


def test_the_offset_log_of_spark() -> None:
    assert positions_in_offset_log(LOG, "c") == {("flights", 0): 100_000, ("flights", 1): 7}
    assert positions_in_offset_log(LOG + "-\n", "c") == positions_in_offset_log(LOG, "c")


@pytest.mark.parametrize(
    "text", ["", "v1\n{}\n", 'v1\n{}\n{"logOffset":3}\n', "v1\n{}\nnonsense", 'v1\n{}\n{"a":{"b":"c"}}']
)
def test_an_offset_log_without_topics(text: str) -> None:
    with pytest.raises(PipelineError, match="reads no topic"):
        positions_in_offset_log(text, "c")


def test_the_last_batch_that_was_committed_counts_and_not_the_last_that_began(tmp_path: Path) -> None:
    for number, offset in enumerate((5, 9, 12)):
        for folder in ("offsets", "commits"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(number)).write_text(LOG.replace("100000", str(offset)))
    for number in (0, 1):
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
        (tmp_path / "commits" / f".{number}.crc").write_text("")
    assert positions_of_checkpoint(LocalFiles(), str(tmp_path))["flights", 0] == 9


def test_a_batch_job_is_where_its_first_round_begins_that_is_not_done(tmp_path: Path) -> None:
    rounds = Rounds(LocalFiles(), str(tmp_path / "_barnabas"))
    plan = Plan(claim=CLAIM).with_more(cut([Range(0, 10, 40), Range(1, 0, 5)], 10, 2), {0: 40, 1: 5})
    rounds.save(plan.round_done(15, 2))
    assert positions_of_checkpoint(LocalFiles(), str(tmp_path)) == {("t", 0): 20, ("t", 1): 5}


def test_a_directory_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is no checkpoint"):
        positions_of_checkpoint(LocalFiles(), str(tmp_path))


def test_lag_counts_existing_offsets() -> None:
    behind = Lag("group a", "t", 0, 3, 10, 25)
    nothing_read = Lag("group a", "t", 1, None, 2, 5)
    ahead = Lag("b", "t", 0, 30, 10, 25)
    assert [each.lag for each in (behind, nothing_read, ahead)] == [15, 3, 0]
    assert total([behind, nothing_read, ahead]) == {"group a": 18, "b": 0}
