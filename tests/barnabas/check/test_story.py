"""The story of a finding, and the page."""

from __future__ import annotations

from barnabas.check.journal import Event, Journal, What, calm_spans
from barnabas.check.judge import Finding
from barnabas.check.promises import Kind, Promise
from barnabas.check.records import Input, Output
from barnabas.check.report import render
from barnabas.check.story import story
from barnabas.check.verdict import Verdict

RECORD = Input("17", "k3", 2, 40, 100.0, ("17",))
EVENTS = [
    Event(50.0, What.ASSIGNED, "partition 2 goes from nobody to instance-0", "instance-0", 2),
    Event(51.0, What.ASSIGNED, "partition 1 goes from nobody to instance-1", "instance-1", 1),
    Event(60.0, What.FAULT, "kill -9 of instance-2", "instance-2", fault=0),
    Event(61.0, What.REPAIR, "instance-2 runs again", "instance-2", fault=0),
    Event(99.0, What.COMMITTED, "committed offset of partition 2 is 38", None, 2, 38),
    Event(100.5, What.COMMITTED, "committed offset of partition 1 is 77", None, 1, 77),
    Event(101.0, What.COMMITTED, "committed offset of partition 2 is 45", None, 2, 45),
    Event(101.2, What.FAULT, "kill -9 of instance-0", "instance-0", fault=1),
    Event(103.0, What.REPAIR, "instance-0 runs again", "instance-0", fault=1),
    Event(104.0, What.ASSIGNED, "partition 2 goes from instance-0 to instance-1", "instance-1", 2),
    Event(300.0, What.FAULT, "kill -9 of instance-1", "instance-1", fault=2),
]


def test_the_story_has_the_owner_the_commits_and_the_faults_near() -> None:
    lines = [line.split("  ", 1)[1] for line in story(Finding(Kind.LOST, "lost", RECORD), EVENTS)]
    assert lines == [
        "partition 2 goes from nobody to instance-0",
        "committed offset of partition 2 is 38",
        "produced to partition 2 at offset 40, key k3",
        "committed offset of partition 2 is 45: past 40",
        "kill -9 of instance-0",
        "instance-0 runs again",
        "partition 2 goes from instance-0 to instance-1",
    ]


def test_a_doubled_record_has_both_outputs_in_its_story() -> None:
    outputs = (Output("17", "output-0", 5, 100.4), Output("17", "output-0", 9, 104.5))
    lines = story(Finding(Kind.DOUBLED, "doubled", RECORD, outputs), EVENTS)
    assert [line for line in lines if "seen in" in line] == [
        "00:01:40.400  output 17 seen in output-0@5",
        "00:01:44.500  output 17 seen in output-0@9",
    ]


def test_a_finding_without_a_record_has_no_story() -> None:
    assert story(Finding(Kind.ENDED, "instances ended"), EVENTS) == []


def test_calm_is_the_time_between_faults() -> None:
    spans = Journal(EVENTS).fault_spans(400.0)
    assert spans == [(60.0, 61.0), (101.2, 103.0), (300.0, 400.0)]
    assert calm_spans(spans, 50.0, 400.0) == [(50.0, 60.0), (61.0, 101.2), (103.0, 300.0)]
    assert calm_spans([], 1.0, 2.0) == [(1.0, 2.0)]
    assert calm_spans([(0.0, 9.0), (1.0, 2.0)], 0.0, 10.0) == [(9.0, 10.0)]


def test_the_page_escapes_what_the_application_wrote() -> None:
    evil = "<script>alert(1)</script>"
    finding = Finding(Kind.LOST, f"input {evil}", RECORD)
    verdict = Verdict(Promise(), 3, [finding], {"inputs": 5}, [evil])
    events = [*EVENTS, Event(105.0, What.INSTANCE, f"instance-1 ends by itself, {evil}", "instance-1")]
    page = render(verdict, Journal(events), [Output("17", "output-0", 5, 100.4)], ["python", evil])
    assert evil not in page
    assert "at-least-once is broken: 1 lost (5 inputs; seed 3)" in page
    assert "default-src &#x27;none&#x27;" in page
    assert "committed offset of partition 2 is 45: past 40" in page
