"""Renders a run on a terminal: nodes, partitions, acks over time, events."""

from __future__ import annotations

import io

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from barnabas.cluster.status import ClusterStatus, PartitionStatus
from barnabas.demo.ledger import BUCKET_MS, Account
from barnabas.demo.play import RECORDS_PER_SECOND, Event, Run, Summary

PICTURE_COLUMNS = 100
_STATES = {"running": "green", "paused": "yellow", "dead": "bold red", "stopped": "red"}
_BARS = "▁▂▃▄▅▆▇█"
_NOTED_SILENCE_MS = 100
_LABEL_COLUMNS = 8


def draw(run: Run, columns: int, events_count: int | None = None) -> RenderableType:
    """The view of a run, with the last `events_count` events."""
    status = run.watch.status
    events = run.events if events_count is None else run.events[-events_count:]
    faults = [event for event in run.events if event.fault]
    return Group(
        _heading(run),
        Columns([_nodes(status, "broker"), _nodes(status, "controller")], padding=(0, 4)),
        Text(),
        _partitions(run),
        Text(),
        _acks(run, columns - _LABEL_COLUMNS - 1),
        Text(),
        *(_line(event, faults) for event in events),
    )


def line_of(event: Event) -> str:
    """An event as a line of plain text."""
    return f"{event.at_ms / 1000:6.1f} s  {'!' if event.fault else ' '} {event.text}"


def draw_summary(summary: Summary) -> RenderableType:
    """The summary of a run."""
    verdict = summary.verdict
    gaps = Table("event", "longest time without an ack", box=None, pad_edge=False)
    gaps.columns[1].justify = "right"
    for window in summary.windows:
        gaps.add_row(window.name, f"{window.gap_ms} ms")
    counts = Text.assemble(
        ("acked ", "bold"), f"{verdict.acked}  ", ("read ", "bold"), f"{verdict.read}  ",
        *(part for name, count in _faults(summary) for part in _fault(name, count)),
    )  # fmt: skip
    lines: list[RenderableType] = [gaps, Text(), counts]
    if verdict.unknown or verdict.failed:
        lines.append(Text(f"not acked: {verdict.failed} refused, {verdict.unknown} of unknown fate", "dim"))
    zombie = summary.findings.get("zombie")
    if isinstance(zombie, dict):
        there = "is in the log" if zombie["read"] else "is not in the log"
        lines.append(Text(f"the write to the zombie leader got {zombie['answer']} and {there}"))
    return Group(*lines)


def picture(run: Run, summary: Summary, command: str) -> str:
    """The final view as an SVG without external resources."""
    console = Console(
        record=True, file=io.StringIO(), width=PICTURE_COLUMNS, force_terminal=True, color_system="truecolor"
    )
    console.print(draw(run, PICTURE_COLUMNS))
    console.print()
    console.print(draw_summary(summary))
    return console.export_svg(title=command, code_format=_SVG, unique_id="demo")


def _heading(run: Run) -> RenderableType:
    accounts = run.ledger.accounts
    acked, read = (sum(len(counted) for counted in each) for each in _counted(accounts))
    waiting = sum(account.undecided for account in accounts)
    gap_ms = run.ledger.windows[-1].gap_ms if run.ledger.windows else 0
    return Text.assemble(
        (f"{run.scenario.name} ", "bold"),
        (f"{run.now_ms() / 1000:.1f} s", "bold cyan"),
        f"   acked {acked}   read {read}   waiting {waiting}   last gap {gap_ms} ms\n",
    )


def _counted(accounts: list[Account]) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
    return [each.acked for each in accounts], [each.read for each in accounts]


def _nodes(status: ClusterStatus, role: str) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    active = f"controller-{status.quorum.leader}" if status.quorum else ""
    for node in status.nodes:
        if node.role == role:
            led = [str(each.partition) for each in status.partitions if f"broker-{each.leader}" == node.name]
            duty = f"leads {','.join(led)}" if led else ""
            if node.name == active and status.quorum:
                duty = f"active, epoch {status.quorum.epoch}"
            up = node.state in ("running", "paused")
            table.add_row(node.name, Text(node.state, _STATES.get(node.state, "")), Text(duty if up else "", "cyan"))
    return table


def _partitions(run: Run) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("partition")
    for heading in ("leader", "epoch", "in sync", "high wm", "acked", "read", "gap ms"):
        table.add_column(heading, justify="right")
    now_ms = run.ledger.began_ms + run.now_ms()
    for each in run.watch.status.partitions:
        if each.partition >= len(run.ledger.accounts):
            continue
        account = run.ledger.accounts[each.partition]
        table.add_row(
            f"{each.topic}-{each.partition}",
            str(each.leader) if each.leader >= 0 else Text("none", "bold red"),
            str(each.epoch),
            _in_sync(each),
            "?" if each.high_watermark is None else str(each.high_watermark),
            str(len(account.acked)),
            str(len(account.read)),
            _silence(run.ledger.silence_ms(each.partition, now_ms), account),
        )
    return table


def _in_sync(partition: PartitionStatus) -> Text:
    short = len(partition.isr) < len(partition.replicas)
    return Text(",".join(map(str, sorted(partition.isr))), "yellow" if short else "green")


def _silence(silence_ms: int, account: Account) -> Text:
    """Time since the last ack, if records are undecided."""
    if silence_ms < _NOTED_SILENCE_MS or not account.undecided:
        return Text("-", "dim")
    return Text(str(silence_ms), "bold red")


def _acks(run: Run, columns: int) -> RenderableType:
    """Acks over the whole run, a row per partition, with the times of the faults below."""
    ended_ms = run.ledger.windows[-1].ended_ms if run.ledger.windows else None
    took_ms = run.now_ms() if ended_ms is None else ended_ms - run.ledger.began_ms
    buckets = max(1, took_ms // BUCKET_MS)
    per_column = -(-buckets // max(1, columns))
    expected = RECORDS_PER_SECOND / len(run.ledger.accounts) * per_column * BUCKET_MS / 1000
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=_LABEL_COLUMNS)
    table.add_column(no_wrap=True)
    for index, account in enumerate(run.ledger.accounts):
        bars = Text()
        started = next((index for index, count in enumerate(account.acks) if count), buckets)
        for first in range(0, buckets - per_column + 1, per_column):
            share = sum(account.acks[first : first + per_column]) / expected
            bars.append(*(_bar(share) if first + per_column > started else (" ", "")))
        table.add_row(Text(f"acks {index}", "dim"), bars)
    marks = [" "] * (columns + 1)
    for index, event in enumerate(each for each in run.events if each.fault):
        marks[min(columns, event.at_ms // (BUCKET_MS * per_column))] = _mark(index)
    table.add_row("", Text("".join(marks).rstrip(), "bold yellow"))
    return table


def _bar(share: float) -> tuple[str, str]:
    """A bar for a share of the expected acks."""
    if share <= 0:
        return "·", "bold red"
    level = min(len(_BARS) - 1, int(share * (len(_BARS) - 2)))
    return _BARS[level], "green" if share > 0.5 else "yellow"


def _line(event: Event, faults: list[Event]) -> Text:
    number = _mark(faults.index(event)) if event.fault else " "
    return Text.assemble(
        (f"{event.at_ms / 1000:6.1f} s  ", "dim"),
        (f"{number} {event.text}", "bold yellow" if event.fault else ""),
        no_wrap=True,
        overflow="ellipsis",
    )


def _mark(index: int) -> str:
    """The digit that marks a fault on the time axis."""
    return str((index + 1) % 10)


def _faults(summary: Summary) -> list[tuple[str, int]]:
    verdict = summary.verdict
    counts = [("lost", verdict.lost), ("duplicated", verdict.duplicated), ("out of order", verdict.out_of_order)]
    return [*counts, ("misplaced", verdict.misplaced)] if verdict.misplaced else counts


def _fault(name: str, count: int) -> tuple[tuple[str, str], tuple[str, str]]:
    return (f"{name} ", "bold"), (f"{count}  ", "bold red" if count else "bold green")


_SVG = """\
<svg class="rich-terminal" xml:space="preserve" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 16px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Template for rich's SVG export, without its web font."""
