"""One self-contained HTML file with a whole report.

The policy in its head allows only this page's own script, by its hash: scripts in a history do not run, and no request
leaves the page.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from barnabas.reports.markup import Markup, element, shorten
from histories.history import History
from histories.whole import write_whole
from reports import bands, facts, findings, headline, partitions, tables, timeline

NAME = "report.html"

NAMES = {
    "findings": "Findings",
    "timeline": "Timeline",
    "availability": "Availability",
    "coverage": "Coverage",
    "legal": "Legal findings",
    "ran": "What ran",
    "checkers": "Checkers",
    "legality": "What is legal",
}
"""Parts by the id of their section."""

_HERE = Path(__file__).resolve().parent


def write(directory: Path, history: History | None = None) -> Path:
    """Write the report of a run's directory and return its path. Raises ReportError in one line. Loading the history
    takes most of the time, so callers that have it pass it."""
    page = render(facts.read(directory, history))
    path = directory / NAME
    try:
        write_whole(path, page)
    except OSError as error:
        raise facts.ReportError(f"{path} cannot be written: {error.strerror}") from error
    return path


def render(run: facts.Facts) -> str:
    style, script = (Markup((_HERE / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))
    found = findings.found(run.verdict)
    wrong = [each for each in found if not each.legal]
    faults = bands.bands(run.history, run.end_s)
    seen = partitions.seen(run.history.views)
    around = findings.Around(faults, seen)
    parts = {
        "findings": findings.section(run, found, around),
        "timeline": timeline.section(run, faults, seen, [each.where for each in wrong or found]),
        "availability": tables.availability_table(run, faults),
        "coverage": tables.coverage_table(run.coverage),
        "legal": findings.legal_section(run, found, around),
        "ran": headline.what_ran(run),
        "checkers": tables.checkers_table(run.verdict),
        "legality": tables.legality_table(run, found),
    }
    name = shorten(run.run.get("name") or run.directory.name, 120)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{headline.title(run.verdict, found)} · {name}"),
        element("style", style),
    )
    body = element(
        "body",
        headline.section(run, found, faults),
        _contents(parts),
        element("main", parts.values()),
        element("footer", element("p", name, " · python jepsen-style report ", str(run.directory))),
        element("script", script),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def policy(script: str) -> str:
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"


def _contents(parts: Mapping[str, Markup | None]) -> Markup:
    links = (element("a", NAMES[part], href=f"#{part}") for part, content in parts.items() if content is not None)
    return element("nav", links, aria_label="Contents")
