"""The report page of a run: the verdict, a timeline, each finding with its story, and all events; without scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.check.journal import Event, Journal, What
from barnabas.check.records import Output
from barnabas.check.story import clock, story
from barnabas.check.verdict import Verdict
from barnabas.reports.markup import Markup, element, shorten

NAME = "report.html"
STORIES = 10
"""Findings of each kind whose story is on the page."""
MOST_EVENTS = 2000
_STYLE = Path(__file__).with_name("report.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
_WIDTH, _LEFT, _LANE, _PLOT = 1000, 90, 22, 80
Axis = Callable[[float], float]
"""The place of a time on the page."""


def write_report(
    out: Path, verdict: Verdict, journal: Journal, outputs: Sequence[Output], command: Sequence[str]
) -> Path:
    """Writes the page into the directory of the run."""
    path = out / NAME
    path.write_text(render(verdict, journal, outputs, command), encoding="utf-8")
    return path


def render(verdict: Verdict, journal: Journal, outputs: Sequence[Output], command: Sequence[str]) -> str:
    mood = "holds" if verdict.holds else "broken"
    words = " ".join(command)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{verdict.promise} {mood} · {shorten(words, 80)}"),
        element("style", Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", shorten(verdict.line), class_=mood),
            element("p", element("code", shorten(words))),
            [element("p", shorten(note)) for note in verdict.notes],
            [element("p", f"Allowed by the promise: {count} {kind}") for kind, count in verdict.legal_counts.items()],
        ),
        element("main", _timeline(journal, outputs), _findings(verdict, journal), _events(journal.events)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _findings(verdict: Verdict, journal: Journal) -> Markup | None:
    if verdict.holds:
        return None
    articles = []
    for finding in verdict.chosen(STORIES):
        lines = story(finding, journal.events)
        articles.append(
            element("article", element("h3", f"{finding.kind}: {finding.text}"), element("pre", "\n".join(lines)))
        )
    left = len(verdict.broken) - len(articles)
    rest = element("p", f"{left} more findings of these kinds are in check.json.") if left else None
    return element("section", element("h2", "Broken promises"), articles, rest)


def _events(events: Sequence[Event]) -> Markup:
    shown = [it for it in events if it.what is not What.COMMITTED][:MOST_EVENTS]
    rows = [
        element("tr", element("td", clock(it.at_s)), element("td", it.what), element("td", it.text)) for it in shown
    ]
    return element("section", element("h2", "Events"), element("table", element("tbody", rows)))


# ---- the timeline


def _timeline(journal: Journal, outputs: Sequence[Output]) -> Markup | None:
    times = [*(it.at_s for it in journal.events), *(it.at_s for it in outputs)]
    if not times:
        return None
    start = min(times)
    end = max(*times, start + 1.0)

    def x(at_s: float) -> float:
        return round(_LEFT + (at_s - start) / (end - start) * (_WIDTH - _LEFT), 1)

    names = sorted({it.instance for it in journal.events if it.what is What.INSTANCE and it.instance})
    height = _PLOT + 20 + _LANE * len(names)
    faults = [
        element("rect", class_="fault", x=x(a), y=0, width=max(1.5, round(x(b) - x(a), 1)), height=height)
        for a, b in journal.fault_spans(end)
    ]
    lanes = [_lane(name, place, journal.events, x) for place, name in enumerate(names)]
    rate = _rate(outputs, start, end, x)
    axis = [
        element("text", f"{second} s", x=x(start + second), y=height + 14)
        for second in range(0, int(end - start) + 1, max(1, int(end - start) // 10))
    ]
    svg = element(
        "svg",
        faults,
        element("text", "outputs/s", x=0, y=14),
        rate,
        lanes,
        axis,
        viewBox=f"0 0 {_WIDTH} {height + 20}",
        role="img",
        aria_label="Outputs per second, instances and faults over time",
    )
    return element(
        "section", element("h2", "Timeline"), element("figure", svg, element("p", "Shaded: times with a fault."))
    )


def _rate(outputs: Sequence[Output], start: float, end: float, x: Axis) -> Markup:
    counts = Counter(int(it.at_s - start) for it in outputs)
    most = max(counts.values(), default=1)
    points = " ".join(
        f"{x(start + second)},{round(_PLOT - counts[second] / most * (_PLOT - 6), 1)}"
        for second in range(int(end - start) + 1)
    )
    return element("g", element("polyline", class_="rate", points=points), element("text", f"most {most}", x=0, y=30))


def _lane(name: str, place: int, events: Sequence[Event], x: Axis) -> Markup:
    """Marks where the instance started, and where it ended by itself."""
    y = _PLOT + 16 + _LANE * place
    marks = [
        element(
            "rect", class_="end" if "ends by itself" in it.text else "start", x=x(it.at_s), y=y - 8, width=2, height=10
        )
        for it in events
        if it.what is What.INSTANCE and it.instance == name
    ]
    return element("g", element("text", name, x=0, y=y), marks)
