"""The curves of a report say what the history says, and thinning keeps what can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from histories.recorder import Recorder
from operations import NEMESIS, Completion, Moment
from reports import curves, facts, node_logs, order, scales, thinning
from reports.bands import bands
from reports.findings import AROUND_S, windows
from reports.lanes import apart, stretches
from tests.examples import examples

Step = tuple[int | str, str, str, Any, float]
"""Process, type, f, value, seconds."""


def recorded(directory: Path, steps: Sequence[Step], run: Mapping[str, Any] | None = None) -> facts.Facts:
    with Recorder(directory, run or {"workload": "queue"}) as recorder:
        for process, type_, f, value, t_s in steps:
            at = Moment(int(t_s * 1e9), int(t_s * 1e3))
            recorder.write(at, process, type_, f, Completion("info", value))  # type: ignore[arg-type]
    return facts.read(directory)


def sent(process: int, key: int, value: int, offset: int, start_s: float, end_s: float) -> list[Step]:
    return [
        (process, "invoke", "send", [["send", key, value]], start_s),
        (process, "ok", "send", [["send", key, [offset, value]]], end_s),
    ]


def polled(process: int, found: Mapping[str, list[list[int]]], start_s: float, end_s: float) -> list[Step]:
    return [(process, "invoke", "poll", [["poll"]], start_s), (process, "ok", "poll", [["poll", found]], end_s)]


def test_a_value_is_unseen_from_its_acknowledgement_to_its_first_poll(tmp_path: Path) -> None:
    run = recorded(
        tmp_path / "run",
        [
            *sent(0, 3, 1, 0, 0.5, 1.0),
            *sent(0, 3, 2, 1, 1.5, 2.0),
            *polled(1, {"3": [[0, 1]]}, 2.5, 3.0),
            *polled(1, {"3": [[0, 1]]}, 3.5, 4.0),
        ],
    )
    curve = curves.unseen(run)
    assert curve is not None
    assert list(zip(curve.t_s.tolist(), curve.value.tolist(), strict=True)) == [
        (0.0, 0.0),
        (1.0, 1.0),
        (2.0, 2.0),
        (3.0, 1.0),
        (4.0, 1.0),
    ]


def test_a_record_polled_before_its_acknowledgement_was_never_unseen(tmp_path: Path) -> None:
    steps = [*sent(0, 0, 1, 0, 0.5, 3.0), *polled(1, {"0": [[0, 1]]}, 1.0, 2.0)]
    curve = curves.unseen(recorded(tmp_path / "run", sorted(steps, key=lambda step: step[4])))
    assert curve is not None
    assert not curve.value.any()


def test_lag_counts_from_when_something_newer_was_known_once_the_consumer_had_caught_up(tmp_path: Path) -> None:
    steps = [
        *sent(0, 0, 1, 0, 0.0, 1.0),
        *sent(0, 0, 2, 1, 1.0, 2.0),
        # It is behind, but has only just begun to read.
        *polled(1, {"0": [[0, 1]]}, 3.0, 3.1),
        *polled(1, {"0": [[1, 2]]}, 3.2, 3.3),
        *sent(0, 0, 3, 2, 3.5, 4.0),
        *sent(0, 0, 4, 3, 4.0, 5.0),
        # Offset 3 has been known for three seconds.
        *polled(1, {"0": [[2, 3]]}, 8.0, 8.1),
        *sent(0, 0, 5, 4, 9.0, 9.5),
    ]
    lag = curves.lag(recorded(tmp_path / "run", steps))
    assert lag is not None
    assert float(lag.worst_s.max()) == pytest.approx(3.0)
    assert lag.t_s[np.argmax(lag.worst_s)] == pytest.approx(8.0, abs=0.2)


def test_values_of_workloads_with_words_of_their_own_are_seen_too(tmp_path: Path) -> None:
    leg = ["bank", 3, [1, "x", -1]]
    added = {"element": 7, "place": ["set", 0]}
    parts = [["bank", 3, 0, 5, [[4, [1, "x", -1]]]], ["set", 0, 0, 1, [[0, 7]]], "torn", ["set", 0]]
    run = recorded(
        tmp_path / "run",
        [
            (0, "invoke", "transfer", {"id": 1, "legs": [leg]}, 1.0),
            (0, "ok", "transfer", None, 2.0),
            (1, "invoke", "add", added, 2.5),
            (1, "ok", "add", {**added, "offset": 0}, 3.0),
            (2, "invoke", "append", {"id": 1, "records": [["bank", 3, "undecided"]]}, 3.0),
            (2, "ok", "append", {"id": 1, "records": [["bank", 3, "undecided"]]}, 3.1),
            (3, "invoke", "read", {"final": True}, 4.0),
            (3, "ok", "read", {"parts": parts}, 5.0),
        ],
    )
    assert [run.names.place(key) for key in run.sends.key.tolist()] == ["bank-3", "set-0", "bank-3"]
    assert [run.names.value(value) for value in run.reads.value.tolist()] == ['[1,"x",-1]', "7"]
    curve = curves.unseen(run)
    assert curve is not None
    assert (curve.value.max(), curve.value[-1]) == (2, 0)
    shown = order.view(run, "bank-3", [0])
    assert shown is not None
    assert "Order of bank-3" in shown
    assert 'class="sent"' in shown, "it stands where its value was read"


def test_throughput_adds_up_to_all_completions(tmp_path: Path) -> None:
    steps = [step for n in range(50) for step in sent(0, 0, n, n, n * 0.4, n * 0.4 + 0.1)]
    steps += [(1, "invoke", "poll", [["poll"]], 20.0), (1, "info", "poll", [["poll"]], 21.0)]
    steps += [(2, "invoke", "poll", [["poll"]], 22.0)]
    run = recorded(tmp_path / "run", steps)
    by_outcome = curves.throughput(run.calls, run.end_s)
    width = curves.bucket_s(run.end_s)
    totals = {outcome: round(float(curve.value.sum()) * width) for outcome, curve in by_outcome.items()}
    assert totals == {"ok": 50, "fail": 0, "info": 1}, "what was never completed is no completion"


def test_a_fault_lasts_from_its_beginning_until_its_end_has_acted(tmp_path: Path) -> None:
    def value(number: int, *targets: Any) -> dict[str, Any]:
        return {"number": number, "targets": list(targets)}

    run = recorded(
        tmp_path / "run",
        [
            (NEMESIS, "invoke", "kill", value(1, "broker-2"), 1.0),
            (NEMESIS, "info", "kill", value(1, "broker-2"), 1.2),
            (NEMESIS, "invoke", "partition", value(2, ["broker-1", "broker-3"]), 2.0),
            (NEMESIS, "info", "partition", value(2, ["broker-1", "broker-3"]), 2.1),
            (NEMESIS, "invoke", "start", value(1, "broker-2"), 4.0),
            (NEMESIS, "info", "start", value(1, "broker-2"), 5.0),
            (0, "invoke", "poll", [["poll"]], 9.0),
        ],
    )
    kill, partition = bands(run.history, run.end_s)
    assert (kill.kind, kill.start_s, kill.end_s, kill.ended) == ("kill", 1.0, 5.0, True)
    assert (partition.start_s, partition.end_s, partition.ended) == (2.0, 9.0, False)
    assert len(apart([kill, partition], 4)) == 2
    assert len(apart([kill, partition], 1)) == 1


points = st.lists(st.tuples(st.integers(0, scales.WIDTH), st.integers(0, scales.HEIGHT)), min_size=1, max_size=400)


def columns(drawn: list[tuple[int, int]]) -> tuple[scales.Integers, scales.Integers]:
    x, y = zip(*sorted(drawn), strict=True)
    return np.array(x, np.int64), np.array(y, np.int64)


@settings(max_examples=examples(40))
@given(points, st.integers(1, 300))
def test_thinned_points_are_some_of_the_points_and_few(drawn: list[tuple[int, int]], most: int) -> None:
    x, y = thinning.thin_points(*columns(drawn), most)
    assert 0 < len(x) <= most
    assert set(zip(x.tolist(), y.tolist(), strict=True)) <= set(drawn)


@settings(max_examples=examples(40))
@given(points)
def test_a_thinned_line_keeps_its_ends_and_its_extremes(drawn: list[tuple[int, int]]) -> None:
    x, y = columns(drawn)
    thin_x, thin_y = thinning.thin_line(x, y, 40)
    assert (thin_x[0], thin_x[-1]) == (x[0], x[-1])
    assert (thin_y.min(), thin_y.max()) == (y.min(), y.max())


@settings(max_examples=examples(40))
@given(points)
def test_corners_draw_the_same_steps(drawn: list[tuple[int, int]]) -> None:
    x, y = columns(drawn)
    kept_x, kept_y = thinning.corners(x, y)

    def at(xs: scales.Integers, ys: scales.Integers, place: int) -> int:
        return int(ys[np.searchsorted(xs, place, side="right") - 1])

    assert all(at(x, y, place) == at(kept_x, kept_y, place) for place in x.tolist())


def test_a_million_points_become_as_many_as_paper_has_room_for() -> None:
    x = np.arange(1_000_000, dtype=np.int64) * scales.WIDTH // 1_000_000
    kept, _ = thinning.thin_points(x, x * 7919 % scales.HEIGHT, 9_000)
    assert len(kept) <= 9_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (3.2e-3, "3.2 ms"), (12e-6, "12 µs"), (59.6, "60 s"), (125, "2 min 5 s"), (7_260, "2 h 1 min")],
)
def test_durations_have_the_digits_that_matter(seconds: float, text: str) -> None:
    assert scales.duration(seconds) == text


@settings(max_examples=examples(40))
@given(st.floats(0.01, 1e6))
def test_a_time_axis_has_a_handful_of_ticks_in_their_order(end_s: float) -> None:
    ticks = scales.TimeAxis(end_s).ticks()
    assert 1 <= len(ticks) <= 14
    assert [tick.fraction for tick in ticks] == sorted({tick.fraction for tick in ticks})


@settings(max_examples=examples(40))
@given(st.lists(st.floats(0, 1e9), max_size=20))
def test_an_axis_from_zero_covers_everything(values: list[float]) -> None:
    scale = scales.from_zero(values)
    assert scale.high >= max(values, default=0) * (1 - 1e-9)
    assert 1 <= len(scale.ticks()) <= 7


def test_neighbours_that_are_equal_become_one_stretch() -> None:
    assert stretches([0, 1, 2, 3], ["up", "up", "down", "up"], 9) == [("up", 0, 2), ("down", 2, 3), ("up", 3, 9)]


def test_moments_that_touch_share_a_window_and_a_long_operation_has_one_at_each_end() -> None:
    near = windows([(10.0, 10.5), (12.0, 12.1)], 100.0)
    assert [(window.start_s, window.end_s) for window in near] == [(10.0 - AROUND_S, 12.1 + AROUND_S)]
    long = windows([(10.0, 90.0)], 100.0)
    assert [(window.start_s, window.end_s) for window in long] == [(8.0, 12.0), (88.0, 92.0)]


def test_lines_without_a_time_belong_to_the_line_above(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    path.write_bytes(
        b"2026-03-01T12:00:00.500Z INFO    broker: before\n"
        b"broker-1  | 2026-03-01T12:00:02.250Z ERROR   broker: it fell\n"
        b"Traceback (most recent call last):\n  \xff\xfe\n"
        b"2026-99-01T12:00:02.300Z is no time\n"
        b"2026-03-01T12:00:09.000Z INFO    broker: after\n"
    )
    wall_ms_at_start = 1_772_366_400_000.0
    found = list(node_logs.lines(path, "broker-1", wall_ms_at_start, 2.0, 3.0))
    assert [line.t_s for line in found] == [pytest.approx(2.25)] * 4
    assert found[0].text == "ERROR   broker: it fell"
    assert found[1].text.startswith("Traceback")


def test_repeated_log_lines_are_shown_once(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [(0, "invoke", "poll", [["poll"]], 0.0), (0, "ok", "poll", [["poll"]], 5.0)])
    (tmp_path / "run" / "logs").mkdir()
    said = "".join(f"1970-01-01T00:00:0{n}.000Z INFO    broker: refused\n" for n in range(1, 4))
    (tmp_path / "run" / "logs" / "broker-1.log").write_text(said + "1970-01-01T00:00:02.500Z WARNING broker: <b>\n")
    table = node_logs.table(facts.read(tmp_path / "run", run.history), 0.0, 9.0)
    assert table is not None
    assert table.count("refused") == 1
    assert "×3" in table
    assert 'class="warning"' in table
    assert "&lt;b&gt;" in table
