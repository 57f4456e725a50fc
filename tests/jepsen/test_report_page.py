"""The report of a run: whatever the run left behind becomes one page that asks nobody for more."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from checkers.legality import ANOMALIES
from commands.report import command
from reports import headline, page
from reports.facts import ReportError
from reports.findings import Found, counted
from reports.naming import named, named_note
from tests.jepsen.report_samples import SHOWN, Sample

HOSTILE = "</script><script>alert(1)</script>\"'><img src=//evil.example/x onerror=alert(2)>\u202e\x00\ud800]]>{{7*7}}"
VOID = {"meta", "br", "hr", "input", "path", "rect", "use"}


class Reader(HTMLParser):
    """Tags with their attributes, texts, and whether every tag is closed, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def ids(self) -> list[str]:
        return [str(attrs["id"]) for _, attrs in self.tags if "id" in attrs]


def read(directory: Path) -> Reader:
    return Reader(page.write(directory).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def legal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Sample(seconds=40, rate=30).write(tmp_path_factory.mktemp("legal") / "run")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """With every anomaly that there is, and text that wants to be more than text wherever text can stand."""
    sample = Sample(seconds=30, rate=25, anomalies=(*SHOWN, *ANOMALIES), hostile=HOSTILE)
    return read(sample.write(tmp_path_factory.mktemp("broken") / "run"))


def test_a_legal_run_shows_its_verdict_its_replay_and_all_curves(legal: Path) -> None:
    report = read(legal)
    assert not report.open
    assert "Valid" in report.text
    assert "python jepsen-style run queue --cluster local --seed 7" in report.text
    for title in (
        "Latency of send",
        "Completions per second",
        "Acknowledged and not yet polled by anyone",
        "Consumer lag",
        "Leader changes and controller elections",
        "t0-0: log end and high watermark",
        "t0-0: replicas in sync",
        "t0-0: leader epoch",
        "Longest without an acknowledged write",
        "needs root",
    ):
        assert title in report.text, title
    assert "findings" not in report.ids()


def test_the_title_counts_what_was_found_and_not_what_was_kept() -> None:
    verdict = {"valid": "false", "figures": {"loss": {"lost-write": 1_234, "unseen (legal)": 9}, "odd": None}}
    kept = [Found(1, "unseen", "t0-0", (), "", False), Found(2, "lost-write", "t0-0", (), "", False)]
    assert headline.title(verdict, kept) == "Invalid: unseen, lost-write ×1\u202f234"
    assert counted(verdict, [Found(1, "unseen", "t0-0", (), "", True)]) == {("unseen", True): 9}
    assert headline.title({"valid": "false"}, kept) == "Invalid: unseen, lost-write"


@pytest.mark.feature("FI-02")
def test_the_evidence_of_the_first_finding_is_open_and_the_others_take_a_line(broken: Reader) -> None:
    evidence = [
        "open" in broken.tags[place - 1][1]
        for place, (tag, _) in enumerate(broken.tags)
        if tag == "summary" and broken.tags[place - 2][1].get("class") == "description"
    ]
    assert evidence[0] and len(evidence) > 5 and not any(evidence[1:])


@pytest.mark.feature("FI-02")
def test_each_anomaly_gets_a_section_with_its_operations_their_order_and_logs(broken: Reader) -> None:
    report = broken
    assert not report.open
    assert report.text.startswith("Invalid: ")
    headings = [anomaly for anomaly in ANOMALIES if f"{anomaly} anomaly" in report.text]
    legal_ones = [anomaly for anomaly in ANOMALIES if f"{anomaly} legal here" in report.text]
    assert {*headings, *legal_ones} >= {*ANOMALIES} - {*SHOWN}
    assert {*headings} & {*SHOWN}
    assert legal_ones == ["G0", "G0-process", "G0-realtime"]
    assert "Order of t" in report.text
    assert "Processes from" in report.text
    assert "Log lines of the nodes from" in report.text
    involved = [attrs for tag, attrs in report.tags if tag == "tr" and attrs.get("class") == "involved"]
    assert involved
    wrong = [attrs for tag, attrs in report.tags if tag == "td" and "wrong" in str(attrs.get("class"))]
    assert wrong, "an offset with two values stands out"


@pytest.mark.feature("FI-02")
def test_a_finding_says_partitions_by_their_names_and_who_led_them_then(broken: Reader) -> None:
    """Operations named partitions by the numbers of their keys, and who led was to be looked for in the timeline."""
    micros = [text for text in broken.texts if text.startswith(('[["send", ', '[["poll", '))]
    assert micros and all('["send", "t' in text or '["poll", {' in text for text in micros)
    assert not [text for text in micros if re.search(r'\["send", \d|\["poll", \{"\d', text)]
    assert re.search(r"Views of t\d+-\d at that time, with each node's high watermark and log end", broken.text)
    assert re.search(r"at leader epoch in sync broker-1 broker-2 broker-3 \d+\.\d\d s [123] \d+ 1, 2, 3 ", broken.text)


@pytest.mark.feature("FI-02")
def test_the_partition_of_the_first_finding_is_open_in_the_timeline(tmp_path: Path) -> None:
    """A legal finding came first if its partition had more elections."""
    run = Sample(seconds=30, rate=25, anomalies=("lost-write",)).write(tmp_path / "run")
    verdict = json.loads((run / "verdict.json").read_text())
    opened = {}
    for where, other in (("t0-1", "t1-0"), ("t1-0", "t0-1")):
        verdict["findings"] = [
            {"anomaly": "G0", "where": other, "operations": [1], "told": "", "legal": True},
            {"anomaly": "lost-write", "where": where, "operations": [1], "told": "", "legal": False},
        ]
        (run / "verdict.json").write_text(json.dumps(verdict))
        tags = read(run).tags
        [place] = [
            n
            for n, (tag, attrs) in enumerate(tags)
            if tag == "details" and "open" in attrs and tags[n + 3][1].get("class") == "name"
        ]
        opened[where] = tags[place + 3][1]["title"]
    assert opened == {"t0-1": "t0-1", "t1-0": "t1-0"}


def test_notes_and_lists_of_keys_are_named_too() -> None:
    assert named("assign", [0, 3]) == ["t0-0", "t1-1"]
    assert named("txn", [["send", 3, [620, 464]], ["poll"]]) == [["send", "t1-1", [620, 464]], ["poll"]]
    assert named("poll", [["poll", {"3": [[621, 462]]}]]) == [["poll", {"t1-1": [[621, 462]]}]]
    assert named("feed", {"value": 3}) == {"value": 3}
    assert named_note("read_epochs", [[3, 621, 622, 1]]) == [["t1-1", 621, 622, 1]]
    assert named_note("committed", {"6": 245, "orders-1": 7}) == {"t3-0": 245, "orders-1": 7}
    assert named_note("generation", 16) == 16


def test_the_report_of_a_foreign_cluster_names_the_missing_facts(tmp_path: Path) -> None:
    run = Sample(seconds=5, rate=20, faults_every_s=0).write(tmp_path / "run")
    (run / "views.jsonl").unlink()
    run_json = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(run_json | {"world": "bootstrap"}))
    assert "the nodes' own views, which are not read here: in-sync replicas" in read(run).text


def test_findings_that_are_legal_only_for_subscribers_say_so(tmp_path: Path) -> None:
    """`yes` stood beside a finding that was not legal: its consumer had its partitions by hand."""
    run = Sample(seconds=5, rate=20).write(tmp_path / "run")
    run_json = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(run_json | {"options": {"subscribe": True}}))
    text = read(run).text
    assert "of consumers that subscribe: rebalances move positions" in text
    assert "with ww edges: with ww edges" not in text


def test_text_of_a_history_stays_text(broken: Reader) -> None:
    report = broken
    assert [tag for tag, _ in report.tags if tag in ("script", "style")] == ["style", "script"]
    assert not [attrs for _, attrs in report.tags if any(name.startswith("on") for name in attrs)]
    assert "<script>alert(1)</script>" in report.text
    assert "\u202e" not in report.text
    assert "\x00" not in report.text


def test_no_request_leaves_the_page(broken: Reader) -> None:
    for tag, attrs in broken.tags:
        assert tag not in ("img", "link", "iframe", "object", "embed", "base", "image", "audio", "video"), tag
        assert "src" not in attrs
        assert str(attrs.get("href", "#")).startswith("#")
    style = (Path(page.__file__).parent / "page.css").read_text()
    assert "url(" not in style
    assert "@import" not in style


def test_only_the_pages_own_script_may_run(legal: Path) -> None:
    text = page.write(legal).read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script is not None
    contents = [attrs["content"] for tag, attrs in Reader(text).tags if attrs.get("http-equiv")]
    assert contents == [page.policy(script[1])]
    assert "default-src 'none'" in str(contents[0])


def test_the_same_run_gives_the_same_page(legal: Path) -> None:
    assert page.write(legal).read_bytes() == page.write(legal).read_bytes()


def test_a_run_in_which_nothing_happened_has_a_page(tmp_path: Path) -> None:
    report = read(Sample(seconds=0, rate=0, faults_every_s=0).write(tmp_path / "run"))
    assert "Nothing happened in this run." in report.text
    assert "0 operations" in report.text


def test_a_run_that_was_cut_off_shows_what_it_has(tmp_path: Path) -> None:
    run = Sample(seconds=20, rate=30, checked=False).write(tmp_path / "run")
    lines = (run / "history.jsonl").read_bytes().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines[:500]) if json.loads(line)["type"] == "invoke")
    (run / "history.jsonl").write_bytes(b"".join(lines[: last + 1]) + lines[last + 1][:40])
    (run / "views.jsonl").unlink()
    report = read(run)
    assert "Not checked" in report.text
    assert "there is no verdict.json" in report.text
    assert "never completed" in report.text
    assert "no views of the nodes were recorded" in report.text
    assert "Latency of send" in report.text


@pytest.mark.parametrize("verdict", ["[]", "{", '{"valid": 3, "findings": [1, {"operations": "no"}], "figures": [2]}'])
def test_a_verdict_of_another_shape_does_not_stop_the_report(tmp_path: Path, verdict: str) -> None:
    run = Sample(seconds=5, rate=20).write(tmp_path / "run")
    (run / "verdict.json").write_text(verdict)
    assert "Timeline" in read(run).text


def test_operations_that_a_history_does_not_have_are_left_out(tmp_path: Path) -> None:
    run = Sample(seconds=5, rate=20).write(tmp_path / "run")
    finding = {"anomaly": "unheard-of", "where": "nowhere", "operations": [-1, 10**9], "told": "?", "legal": False}
    (run / "verdict.json").write_text(json.dumps({"valid": "false", "findings": [finding]}))
    assert "It names no operations of this history." in read(run).text


def test_ten_thousand_findings_make_no_huge_page(tmp_path: Path) -> None:
    run = Sample(seconds=20, rate=30).write(tmp_path / "run")
    lines = len((run / "history.jsonl").read_bytes().splitlines())
    findings = [
        {
            "anomaly": f"kind-{n % 9}",
            "where": "t0-0",
            "operations": [(n * 37 + step * 11) % lines for step in range(40)],
            "told": "It goes wrong. " * 100,
            "legal": n % 9 > 5,
        }
        for n in range(10_000)
    ]
    (run / "verdict.json").write_text(json.dumps({"valid": "false", "findings": findings, "figures": {}}))
    report = read(run)
    assert (run / "report.html").stat().st_size < 5_000_000
    assert "more, in verdict.json" in report.text
    assert "24 more operations show it." in report.text


def test_cells_that_never_happened_are_marked(tmp_path: Path) -> None:
    run = Sample(seconds=5, rate=20).write(tmp_path / "run")
    assert "coverage" not in read(run).ids()
    table = {"states": ["leads", "loads a snapshot"], "faults": ["kill", "power"], "counts": [[3, 0], [1]]}
    (run / "coverage.json").write_text(json.dumps(table))
    report = read(run)
    assert "2 of 4 cells never happened" in report.text
    titles = [attrs["title"] for _, attrs in report.tags if attrs.get("class") == "never"]
    assert titles == ["power never met leads", "power never met loads a snapshot"]


def test_faults_that_a_run_did_not_have_are_no_cells_that_never_happened(tmp_path: Path) -> None:
    run = Sample(seconds=5, rate=20).write(tmp_path / "run")
    cells = {"leads": {"kill": 2, "power": 0}, "follows": {"kill": 0, "power": 0}}
    struck = {"kill": 3, "power": 0}
    points = {"disk.renamed.quorum-state": 5}
    table = {"faults": ["kill", "power"], "cells": cells, "struck": struck, "points": points, "never": []}
    (run / "coverage.json").write_text(json.dumps(table))
    text = read(run).text
    assert "1 of 2 cells never happened. Not in this run at all: power." in text
    assert "disk.renamed.quorum-state 5" in text


def test_a_directory_that_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="is no run"):
        page.write(tmp_path)


def test_the_command_prints_the_path_of_the_page_or_the_error(legal: Path, tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, [str(legal)])
    assert (done.exit_code, done.output.strip().endswith("report.html")) == (0, True)
    refused = CliRunner().invoke(app, [str(tmp_path / "nothing")])
    assert refused.exit_code == 2
    assert len(refused.output.strip().splitlines()) == 1
