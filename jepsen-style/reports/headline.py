"""The head of a report: the verdict, the numbers that people ask for first, what ran, and how to run it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from barnabas.reports.markup import Child, Markup, element, plural, shorten
from checkers.availability import Availability
from reports.bands import Band
from reports.curves import lag, unseen
from reports.facts import OUTCOMES, Facts
from reports.findings import Found, counted
from reports.plots import percent
from reports.scales import duration, number

MARKS = {"true": "✓", "false": "✗", "unknown": "?"}


def section(facts: Facts, findings: Sequence[Found], faults: Sequence[Band]) -> Markup:
    valid = _valid(facts.verdict)
    replay = facts.run.get("replay")
    return element(
        "header",
        element("p", _crumbs(facts), class_="crumbs"),
        element(
            "div",
            element("span", MARKS.get(valid, "…"), class_="mark", aria_hidden="true"),
            element(
                "div", element("h1", title(facts.verdict, findings)), element("p", _summary(facts, findings, faults))
            ),
            class_="verdict",
        ),
        element(
            "div",
            element("code", replay, id="replay"),
            element("button", "Copy", type="button", data_copies="replay"),
            class_="replay",
        )
        if isinstance(replay, str) and replay
        else None,
        _tiles(facts, faults),
        class_=f"head {valid if valid in MARKS else 'unchecked'}",
    )


def title(verdict: Mapping[str, Any] | None, findings: Sequence[Found]) -> str:
    valid = _valid(verdict)
    if valid == "true":
        return "Valid"
    if valid == "false":
        wrong = counted(verdict, [each for each in findings if not each.legal])
        counts = {anomaly: count for (anomaly, _), count in wrong.items()}
        first = list(counts.items())[:3]
        kinds = ", ".join(f"{anomaly} ×{number(count)}" if count > 1 else anomaly for anomaly, count in first)
        more = f" and {len(counts) - 3} more" if len(counts) > 3 else ""
        return f"Invalid: {kinds}{more}" if kinds else "Invalid"
    return "Unknown" if valid == "unknown" else "Not checked"


def _valid(verdict: Mapping[str, Any] | None) -> str:
    return str((verdict or {}).get("valid", ""))


def _summary(facts: Facts, findings: Sequence[Found], faults: Sequence[Band]) -> str:
    verdict = facts.verdict
    calls = number(len(facts.calls.f))
    kinds = list(dict.fromkeys(band.kind for band in faults))
    under = f" under {plural(len(faults), 'fault')} ({', '.join(kinds)})" if faults else " without faults"
    ran = f"{calls} operations in {duration(facts.end_s)}{under}."
    if verdict is None:
        return f"{ran} The run was not checked: python jepsen-style check {facts.directory}"
    checkers = verdict.get("figures")
    count = len(checkers) if isinstance(checkers, Mapping) else 0
    if verdict.get("valid") == "true":
        legal = (
            f" {plural(len(findings), 'finding')} {'is' if len(findings) == 1 else 'are'} legal here."
            if findings
            else ""
        )
        return (
            f"{ran} {count} checkers found nothing wrong.{legal}" if count else f"{ran} Nothing wrong was found.{legal}"
        )
    if verdict.get("valid") == "unknown":
        return f"{ran} {shorten(verdict.get('unknown_because', '') or 'No checker gave a reason.', 600)}"
    first = next((each.description for each in findings if not each.legal), "")
    return f"{ran} {shorten(first, 300)}"


def _crumbs(facts: Facts) -> list[Child]:
    run = facts.run
    parts = [run.get("workload"), run.get("world"), f"seed {run['seed']}" if "seed" in run else None, run.get("began")]
    shown = [shorten(part, 80) for part in parts if part]
    if run.get("plant"):
        shown.append(f"planted: {shorten(run['plant'], 80)}")
    return [element("span", "Barnabas fault injection"), *(element("span", part) for part in shown)]


def _tiles(facts: Facts, faults: Sequence[Band]) -> Markup:
    calls = facts.calls
    counts = [int((calls.outcome == code).sum()) for code in range(len(OUTCOMES))]
    total = sum(counts) or 1
    shares = element(
        "div",
        (
            element("i", class_=outcome, style=f"width:{percent(count / total)}", title=f"{outcome} {count}")
            for outcome, count in zip(OUTCOMES, counts, strict=True)
        ),
        class_="shares",
    )
    tiles = [
        _tile(
            "operations",
            number(sum(counts)),
            ", ".join(f"{number(count)} {outcome}" for outcome, count in zip(OUTCOMES, counts, strict=True)),
            shares,
        )
    ]
    if len(facts.sends.call):
        acked = int((calls.outcome[facts.sends.call] == 0).sum())
        polled = len(facts.reads.call)
        tiles.append(_tile("values acknowledged", number(acked), f"{number(polled)} polled"))
    kinds = Counter(band.kind for band in faults)
    tiles.append(_tile("faults", number(len(faults)), ", ".join(f"{n} {kind}" for kind, n in kinds.most_common(4))))
    gap_s = Availability().check(facts.history).figures.get("longest gap")
    if gap_s is not None:
        tiles.append(_tile("longest without an ok write", duration(gap_s), "over the whole run"))
    behind = lag(facts)
    if behind is not None:
        worst = int(np.argmax(behind.worst_s))
        tiles.append(_tile("worst lag", duration(float(behind.worst_s[worst])), f"at {behind.t_s[worst]:.0f} s"))
    left = unseen(facts)
    if left is not None:
        tiles.append(
            _tile("unseen at the end", number(int(left.value[-1])), f"at most {number(int(left.value.max()))}")
        )
    return element("ul", tiles, class_="tiles")


def _tile(name: str, value: str, more: str, extra: Markup | None = None) -> Markup:
    return element("li", element("span", name), element("b", value), extra, element("small", more))


def what_ran(facts: Facts) -> Markup:
    run = facts.run
    rows: list[tuple[str, Child]] = [
        ("workload", run.get("workload")),
        ("world", run.get("world")),
        ("clients", _listed(run.get("clients"))),
        ("seed", run.get("seed")),
        ("length", duration(float(run["time_seconds"])) if isinstance(run.get("time_seconds"), int | float) else None),
        ("rate", f"{run['rate']} operations/s" if "rate" in run else None),
        ("processes at a time", run.get("concurrency")),
        ("faults", _listed(run.get("nemesis")) or "none"),
        ("faults that were off", _pairs(run.get("cannot"))),
        ("planted mistake", run.get("plant")),
        ("options", _pairs(run.get("options"))),
        ("settings of the nodes", _pairs(run.get("settings"))),
        ("versions", _pairs(run.get("versions"))),
        ("began", run.get("began")),
        (
            "not in this report",
            element("ul", (element("li", each) for each in facts.missing)) if facts.missing else None,
        ),
    ]
    body = (
        [element("dt", name), element("dd", value if isinstance(value, Markup) else shorten(value))]
        for name, value in rows
        if value not in (None, "", [])
    )
    return element("section", element("h2", "What ran"), element("dl", body), id="ran")


def _listed(value: Any) -> str | None:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else None


def _plain(value: Any) -> Child:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "—"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return _listed(value) or value


def _pairs(value: Any) -> Markup | None:
    if not isinstance(value, Mapping) or not value:
        return None
    items = (
        element("li", element("b", key), " ", shorten(_plain(each), 200)) for key, each in list(value.items())[:80]
    )
    return element("ul", items, class_="pairs")
