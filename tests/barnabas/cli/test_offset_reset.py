"""Plans of `groups reset-offsets`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.offset_reset import Aim, Known, Partition, Target, one_target, plan, read_csv, write_csv
from barnabas.cluster.errors import WrongArgument

FIRST, SECOND = Partition("flights", 0), Partition("flights", 1)
KNOWN = {SECOND: Known(10, 20, None), FIRST: Known(0, 100, 40, at_time=60)}


@pytest.mark.feature("TO-05")
@pytest.mark.parametrize(
    ("target", "afters"),
    [
        (Target(Aim.EARLIEST), [0, 10]),
        (Target(Aim.LATEST), [100, 20]),
        (Target(Aim.CURRENT), [40, 20]),
        (Target(Aim.OFFSET, 15), [15, 15]),
        (Target(Aim.OFFSET, 50), [50, 20]),
        (Target(Aim.OFFSET, 5), [5, 10]),
        (Target(Aim.TIME, 1), [60, 20]),
        (Target(Aim.GIVEN, given={FIRST: 7, SECOND: 300}), [7, 20]),
    ],
)
def test_the_offset_of_each_kind_of_reset(target: Target, afters: list[int]) -> None:
    resets = plan(target, KNOWN)
    assert [reset.partition for reset in resets] == [FIRST, SECOND]
    assert [reset.before for reset in resets] == [40, None]
    assert [reset.after for reset in resets] == afters


@pytest.mark.parametrize(("by", "after"), [(5, 45), (-5, 35), (-50, 0), (70, 100)])
def test_a_shift_stays_inside_the_log(by: int, after: int) -> None:
    [reset] = plan(Target(Aim.SHIFT, by), {FIRST: KNOWN[FIRST]})
    assert (reset.after, reset.wanted) == (after, 40 + by)


def test_nothing_can_be_shifted_where_nothing_is_committed() -> None:
    with pytest.raises(WrongArgument, match=r"--shift-by: flights:1 has no committed offset"):
        plan(Target(Aim.SHIFT, 1), KNOWN)


PARTITIONS = st.builds(Partition, st.sampled_from(["a", "b.c", "d_e-f"]), st.integers(0, 99))


@given(st.dictionaries(PARTITIONS, st.integers(0, 10**12), max_size=5))
def test_an_exported_plan_can_be_read_again(given_offsets: dict[Partition, int]) -> None:
    known = {partition: Known(0, 10**12, None) for partition in given_offsets}
    lines = write_csv(plan(Target(Aim.GIVEN, given=given_offsets), known))
    if given_offsets:
        assert read_csv("\n".join(lines), "f") == given_offsets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: no line"),
        ("t,0", "f, line 1: not topic,partition,offset"),
        ("# c\n\nt,0,5\nt,x,5", "f, line 4: not topic,partition,offset"),
        ("t,0,-1", "f, line 1: not"),
        ("t,0,1\nt,0,2", "f, line 2: t:0 is there twice"),
        (",0,1", "f, line 1: not"),
    ],
)
def test_malformed_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(WrongArgument, match=message):
        read_csv(text, "f")


def test_exactly_one_target_is_allowed() -> None:
    target = Target(Aim.EARLIEST)
    assert one_target([("--a", None), ("--b", target)]) is target
    with pytest.raises(WrongArgument, match="needs one of --a, --b"):
        one_target([("--a", None), ("--b", None)])
    with pytest.raises(WrongArgument, match="--a and --b exclude each other"):
        one_target([("--a", target), ("--b", target)])
