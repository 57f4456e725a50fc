"""The nodes' views of each partition: in-sync replicas, high watermark, log end, leaders and their epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from barnabas.reports.markup import Markup, element, join, plural
from histories.views import Views
from operations import Place
from reports.lanes import grouped
from reports.plots import Key, blocks, canvas, dots, keys, line, plot, spikes, steps
from reports.scales import HEIGHT, Floats, Integers, LinearScale, TimeAxis, from_zero
from reports.thinning import corners, thin_line

MOST_DRAWN = 40
"""Partitions with plots of their own; of more, those with findings and with most leaders."""

MOST_LISTED = 120

POINTS_OF_A_LINE = 240

HEALTH = {"full": "all in sync", "few": "fewer", "one": "one", "none": "none"}

LEADER_INKS = 6
"""Nodes have colours by their number, which come again."""


class Log(NamedTuple):
    """The log of a partition on one node."""

    t_s: Floats
    high_watermark: Integers
    log_end_offset: Integers


@dataclass(frozen=True, slots=True)
class Seen:
    """One partition over time, as seen by the node with the highest leader epoch."""

    place: Place
    t_s: Floats
    in_sync: Integers
    members: Sequence[tuple[int, ...]]
    """In-sync replicas."""
    leader: Integers
    """-1 if there is no leader."""
    leader_epoch: Integers
    logs: Mapping[str, Log]
    """By node."""

    @property
    def elections(self) -> list[tuple[float, int, int]]:
        """First sights of later epochs: time, epoch, leader."""
        found: list[tuple[float, int, int]] = []
        columns = (self.t_s.tolist(), self.leader_epoch.tolist(), self.leader.tolist())
        for t_s, epoch, leader in zip(*columns, strict=True):
            if not found or epoch > found[-1][1]:
                found.append((t_s, epoch, leader))
        return found[1:]


def seen(views: Views) -> list[Seen]:
    """Every partition that a node reported, in order."""
    found = {}
    in_sync = np.array([len(isr) for isr in views.isrs], np.int64)
    numbers = np.array([_number(node) for node in views.nodes], np.int64)
    by_place = np.lexsort((views.look, views.place))
    edges = np.flatnonzero(np.diff(views.place[by_place], prepend=-1)) if len(views) else np.zeros(0, np.int64)
    for rows in np.split(by_place, edges[1:]) if len(views) else ():
        # A node with the newest epoch knows the leader; among those the leader itself knows the most.
        leads = numbers[views.node[rows]] == views.leader[rows]
        newest = rows[np.lexsort((leads, views.leader_epoch[rows], views.look[rows]))]
        known = newest[np.flatnonzero(np.diff(views.look[newest], append=-1))]
        place = views.places[int(views.place[rows[0]])]
        found[place] = Seen(
            place,
            views.t_ns[known] / 1e9,
            in_sync[views.isr[known]],
            [views.isrs[isr] for isr in views.isr[known].tolist()],
            views.leader[known],
            views.leader_epoch[known],
            {
                views.nodes[node]: Log(views.t_ns[own] / 1e9, views.high_watermark[own], views.log_end_offset[own])
                for node in np.unique(views.node[rows]).tolist()
                for own in (rows[views.node[rows] == node],)
            },
        )
    return [found[place] for place in sorted(found)]


def section(found: Sequence[Seen], suspects: Sequence[str], axis: TimeAxis) -> Markup | None:
    """A strip for each partition that opens into its plots. `suspects` are in findings."""
    if not found:
        return None
    ranked = sorted(found, key=lambda each: (str(each.place) not in suspects, -len(each.elections), each.place))
    drawn = {each.place for each in ranked[:MOST_DRAWN]}
    listed = {each.place for each in ranked[:MOST_LISTED]}
    opened = next((each.place for each in ranked if len(each.t_s) > 1), None)
    changes = sum(len(each.elections) for each in found)
    left_out = len(found) - len(listed)
    title = f"Partitions; {plural(changes, 'leader change')}" + (
        f" ({left_out} quiet ones left out)" if left_out > 0 else ""
    )
    legend = [Key(f"sync {health}", label) for health, label in HEALTH.items()]
    return element(
        "section",
        element(
            "header",
            element("h3", title),
            keys(legend),
            class_="stay",
        ),
        (_partition(each, axis, each.place in drawn, each.place == opened) for each in found if each.place in listed),
        class_="lanes partitions",
    )


def leader_changes(found: Sequence[Seen]) -> Floats:
    return np.array(sorted(t_s for each in found for t_s, _, _ in each.elections), np.float64)


def _partition(partition: Seen, axis: TimeAxis, drawn: bool, opened: bool) -> Markup:
    all_of_them = int(partition.in_sync.max())
    health = [_health(count, all_of_them) for count in partition.in_sync.tolist()]
    shapes = [blocks(spans, each, axis) for each, spans in grouped(partition.t_s.tolist(), health, axis.end_s).items()]
    elected = axis.places(np.array([t_s for t_s, _, _ in partition.elections], np.float64))
    shapes.append(spikes(elected, np.zeros(len(elected), np.int64), "elected"))
    strip = element(
        "div",
        element(
            "div", element("span", element("bdi", str(partition.place))), class_="name", title=str(partition.place)
        ),
        element("div", canvas(shapes, axis), class_="lane"),
        class_="of",
    )
    if not drawn:
        return strip
    return element("details", element("summary", strip), _plots(partition, axis), open=opened)


def _plots(partition: Seen, axis: TimeAxis) -> list[Markup]:
    return [_offsets(partition, axis), _in_sync(partition, axis), _epochs(partition, axis)]


def _offsets(partition: Seen, axis: TimeAxis) -> Markup:
    highest = max((int(log.log_end_offset.max()) for log in partition.logs.values()), default=0)
    scale = from_zero([highest])
    layers, legend = [], []
    silence_s = 2.5 * float(np.median(np.diff(partition.t_s))) if len(partition.t_s) > 1 else 0.0
    for node, log in sorted(partition.logs.items()):
        x = axis.places(log.t_s)
        breaks = np.flatnonzero(np.diff(log.t_s) > silence_s) + 1
        ink = f"node-{_number(node) % LEADER_INKS}"
        ends = scale.places(log.log_end_offset.astype(np.float64))
        marks = scale.places(log.high_watermark.astype(np.float64))
        layers.append(_pieces(x, ends, breaks, f"log-end {ink}"))
        layers.append(_pieces(x, marks, breaks, f"high-watermark {ink}"))
        legend.append(Key(f"stroke {ink}", node))
    legend += [Key("stroke whole", "log end"), Key("stroke dashed", "high watermark")]
    return plot(f"{partition.place}: log end and high watermark", layers, scale, axis, legend)


def _pieces(x: Integers, y: Integers, breaks: Integers, ink: str) -> Markup:
    """A line with gaps where its node reports nothing."""
    most = max(POINTS_OF_A_LINE // (len(breaks) + 1), 8)
    parts = zip(np.split(x, breaks), np.split(y, breaks), strict=True)
    return join(line(*thin_line(*part, most), ink) for part in parts)


def _in_sync(partition: Seen, axis: TimeAxis) -> Markup:
    scale = LinearScale(0, max(int(partition.in_sync.max()), 1))
    x, y = corners(axis.places(partition.t_s), scale.places(partition.in_sync.astype(np.float64)))
    return plot(f"{partition.place}: replicas in sync", [steps(x, y, "in-sync")], scale, axis, tall="low")


def _epochs(partition: Seen, axis: TimeAxis) -> Markup:
    epochs = partition.leader_epoch.astype(np.float64)
    scale = LinearScale(min(float(epochs.min()), float(epochs.max()) - 1), max(float(epochs.max()), 1.0))
    x, y = axis.places(partition.t_s), scale.places(epochs)
    layers, legend = [steps(*corners(x, y), "epoch")], []
    for leader in np.unique(partition.leader).tolist():
        of_it = np.flatnonzero(partition.leader == leader)
        changed = of_it[np.isin(of_it, np.flatnonzero(np.diff(epochs, prepend=-1)))]
        if leader >= 0 and len(changed):
            ink = f"node-{leader % LEADER_INKS}"
            layers.append(dots(x[changed], np.minimum(y[changed], HEIGHT), f"leader {ink}"))
            legend.append(Key(f"dot {ink}", f"{leader} leads"))
    return plot(f"{partition.place}: leader epoch", layers, scale, axis, legend, tall="low")


def _health(count: int, all_of_them: int) -> str:
    if count >= all_of_them and count:
        return "full"
    return "none" if count == 0 else "one" if count == 1 else "few"


def _number(node: str) -> int:
    """Kafka's number of a node, from our name for it."""
    tail = node.rpartition("-")[2]
    return int(tail) if tail.isdecimal() and len(tail) < 9 else sum(node.encode())
