"""Offsets are cut into rounds, each offset once, and a checkpoint belongs to one job."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.jobs.plan import Claim, Plan, Range, cut, merged, read_document, spans

ranges = st.lists(
    st.builds(
        lambda partition, start, length: Range(partition, start, start + length),
        st.integers(0, 3),
        st.integers(0, 60),
        st.integers(0, 40),
    ),
    max_size=8,
)


def offsets(some: list[Range]) -> set[tuple[int, int]]:
    return {(each.partition, offset) for each in some for offset in range(each.start, each.end)}


@pytest.mark.feature("PL-02")
@given(ranges, st.integers(1, 20), st.integers(1, 6))
def test_every_offset_is_in_exactly_one_piece_of_one_round(some: list[Range], size: int, width: int) -> None:
    rounds = cut(some, size, width)
    pieces = [piece for each in rounds for piece in each]
    assert offsets(pieces) == offsets(some)
    assert sum(piece.end - piece.start for piece in pieces) == len(offsets(some))
    assert all(0 < piece.end - piece.start <= size for piece in pieces)
    assert all(0 < len(each) <= width for each in rounds)


@given(ranges, st.integers(1, 20), st.integers(1, 6))
def test_a_round_is_one_range_for_each_partition_with_pieces_of_equal_size(
    some: list[Range], size: int, width: int
) -> None:
    for pieces in cut(some, size, width):
        whole = spans(pieces)
        assert offsets(pieces) == offsets([Range(partition, *span) for partition, span in whole.items()])
        for piece in pieces:
            first = whole[piece.partition][0]
            assert (piece.start - first) % size == 0
            assert piece.end == min(piece.start + size, whole[piece.partition][1])


@given(ranges)
def test_merged_ranges_have_the_same_offsets_and_do_not_touch(some: list[Range]) -> None:
    result = merged(some)
    assert offsets(result) == offsets(some)
    for before, after in itertools.pairwise(result):
        assert before.partition < after.partition or before.end < after.start


CLAIM = Claim(
    job="export",
    cluster_id="c",
    topic="flights",
    topic_id="one",
    other="/lake",
    settings={"--value-schema": "year INT"},
    query_id="q",
)


def test_a_job_resumes_from_its_own_checkpoint() -> None:
    CLAIM.require_same(CLAIM.model_copy(update={"query_id": "another try"}), "/ckpt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"job": "load"}, "the checkpoint of job 'export', not of 'load'"),
        ({"topic": "orders"}, "topic flights, not of orders"),
        ({"cluster_id": "other"}, "on cluster c"),
        ({"topic_id": "two"}, "was recreated"),
        ({"other": "/pond"}, "with /lake, not /pond"),
        ({"settings": {}}, "created with --value-schema year INT, not without --value-schema"),
        ({"settings": {"--value-schema": "year INT", "--by-key": "yes"}}, "without --by-key, not with --by-key yes"),
    ],
)
def test_the_checkpoint_of_another_job_is_an_error(change: dict[str, object], message: str) -> None:
    with pytest.raises(PipelineError) as refused:
        CLAIM.require_same(CLAIM.model_copy(update=change), "/ckpt")
    assert message in refused.value.line
    assert refused.value.line.endswith("give another --checkpoint")
    assert "\n" not in refused.value.line


@given(ranges, st.integers(0, 20))
def test_a_saved_plan_forgets_only_completed_rounds(some: list[Range], done: int) -> None:
    plan = Plan(claim=CLAIM).with_more(cut(some, 7, 2), {0: 9})
    for _ in range(min(done, len(plan.rounds))):
        plan = plan.round_done(5, 2)
    again = read_document(Plan, plan.forgetting().model_dump_json(), "plan.json")
    assert again.rounds[again.done :] == plan.rounds[plan.done :]
    assert (again.done, again.records, again.files, again.is_done) == (
        plan.done,
        plan.records,
        plan.files,
        plan.is_done,
    )


@pytest.mark.parametrize("text", ["", "{", '{"rounds": 1}', "[]", '{"claim": {"version": 2}}'])
def test_an_invalid_document_is_an_error(text: str) -> None:
    with pytest.raises(PipelineError, match=r"plan\.json: ") as refused:
        read_document(Plan, text, "plan.json")
    assert "\n" not in refused.value.line
