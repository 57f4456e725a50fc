"""`barnabas why`: what happened to a partition, a group, a transaction, a node or the quorum, and the causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain, show_json, show_text
from barnabas.cli.session import NoAnswer, run_until_done, with_admin
from barnabas.cli.times import iso_time
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.why.asking import Answers, Place
    from barnabas.why.story import Event

HTTP_PORT_ABOVE = 200
"""Nodes tell of themselves so far above the port of their listener, as `make up` and the containers have it."""
MAX_ALIKE = 3
"""So many partitions that a broker's fate moved in one step are told one by one."""
_SHOWN = {
    "leader_epoch": "leader epoch",
    "partition_epoch": "partition epoch",
    "isr": "ISR",
    "elr": "ELR",
    "offset": "offset",
    "high_watermark": "high watermark",
    "epoch": "epoch",
    "log_end_offset": "log end",
    "broker_epoch": "broker epoch",
    "generation": "generation",
    "group_epoch": "group epoch",
    "protocol": "protocol",
    "producer_id": "producer",
    "producer_epoch": "producer epoch",
    "partitions": "partitions",
    "metadata_offset": "metadata offset",
}
"""Facts that people are shown; the others are in the sentences, or for programs."""

Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT,…",
        help="Where nodes tell of themselves (barnabas.http.listener). Without it: as the cluster in --data has it, or "
        "200 above the ports of the nodes of --bootstrap-server.",
    ),
]


@grouped
def why(
    subject: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT...",
            help="flights-3, a topic, a group, a transactional id, broker 2, controller 101, or quorum.",
        ),
    ],
    http: Http = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Tell what was decided about something, when and why, as all nodes together know it. Of the cluster in --data the
    logs are read, too: what a node told before it was started anew is only there.
    """
    text = " ".join(subject).strip()
    if not text:
        raise WrongArgument("why: of what? flights-3, a group, a transactional id, broker 2, or quorum")
    places, logs = _places(http, connection)
    answers = _ask(places, logs, text, min(connection.timeout, 5.0))
    for name, reason in answers.silent.items():
        complain(f"{name} does not answer: {reason}")
    if not answers.wanted:
        _nothing_known(text, answers)
    from barnabas.why.story import story

    events = story(answers.decisions)
    if as_json:
        decisions = [event.to_json() for event in events]
        show_json({"subject": text, "subjects": answers.wanted, "silent": answers.silent, "decisions": decisions})
    else:
        for line in told(events, answers.wanted):
            show_text(line)


def _ask(places: Sequence[Place], logs: Mapping[str, Path], text: str, timeout_seconds: float) -> Answers:
    """Raises `NoAnswer` if nobody answers."""
    from barnabas.why.asking import ask_all
    from barnabas.why.written import read_log
    from runtime.real import real_world

    written = [it for name, path in logs.items() for it in read_log(path, name)]
    answers = run_until_done(lambda: ask_all(real_world().network, places, text, timeout_seconds, written))
    if len(answers.silent) == len(places) and not answers.wanted:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in answers.silent.items())
        raise NoAnswer(f"no node tells of itself ({reasons}); is --data or --http right?")
    return answers


def _nothing_known(text: str, answers: Answers) -> None:
    from barnabas.why.story import near

    found = near(text, answers.subjects)
    told = f"did you mean {' or '.join(found)}?" if found else f"{len(answers.subjects)} other subjects are known"
    raise ClusterError(f"no node knows anything of {text}; {told}")


# Where the nodes are


def _places(http: str | None, connection: Connection) -> tuple[list[Place], dict[str, Path]]:
    """Where nodes tell of themselves; and the logs of those of this machine, by name, for what they told in earlier
    lives."""
    from barnabas.cluster.layout import Layout
    from barnabas.why.asking import Place

    if http is not None:
        return [Place(f"{host}:{port}", host, port) for host, port in _addresses(http)], {}
    if connection.bootstrap is not None:
        return with_admin(connection, _places_of), {}
    layout = Layout.open(connection.data)
    places = [Place(it.name, "127.0.0.1", it.http_port) for it in layout.nodes if it.http_port is not None]
    return places, {it.name: layout.log_file(it) for it in layout.nodes}


async def _places_of(admin: Admin) -> list[Place]:
    """By the cluster's own account of its nodes."""
    from barnabas.why.asking import Place

    described = await admin.describe_cluster(include_fenced_brokers=True)
    quorum = await admin.describe_metadata_quorum()
    places = [Place(f"broker-{it.node_id}", it.host, it.port + HTTP_PORT_ABOVE) for it in described.nodes]
    for node_id, endpoints in sorted(quorum.nodes.items()):
        if endpoints:
            places.append(Place(f"controller-{node_id}", endpoints[0].host, endpoints[0].port + HTTP_PORT_ABOVE))
    return places


def _addresses(text: str) -> list[tuple[str, int]]:
    """Raises `WrongArgument`."""
    found = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise WrongArgument(f"--http {part}: not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found


# Telling it


def told(events: Sequence[Event], wanted: Sequence[str]) -> list[str]:
    """Lines for people: when, what and by whom; then why, and the numbers. Of many other things that `wanted` brought
    about with one step only the first are told.
    """
    lines: list[str] = []
    day, step, others = "", None, 0
    for event in events:
        decision = event.decision
        this_step = (decision["kind"], decision["node"], decision["facts"].get("metadata_offset"))
        aside = this_step[2] is not None and decision["subject"] not in wanted
        if others > MAX_ALIKE and not (aside and this_step == step):
            lines.append(f"      … and {others - MAX_ALIKE} more in the same step")
        others = others + 1 if aside and this_step == step else int(aside)
        step = this_step
        if others > MAX_ALIKE:
            continue
        when = iso_time(int(decision["at_ms"]))
        if when[:10] != day:
            day = when[:10]
            lines.append(day)
        heard = ", as it heard" if decision["facts"].get("hearsay") else ""
        lines.append(f"  {when[11:]}  {_plain(event.what)}  ({decision['node']}{heard})")
        if event.cause:
            lines.append(f"      because {_plain(event.cause)}")
        numbers = _numbers(decision["facts"])
        if numbers:
            lines.append(f"      {numbers}")
        for other in event.seen_by:
            what = str(other["told"]).removesuffix(str(other["cause"])).removesuffix(": ")
            if what != event.what:
                lines.append(f"      {iso_time(int(other['at_ms']))[11:]}  {_plain(what)}  ({other['node']})")
    if others > MAX_ALIKE:
        lines.append(f"      … and {others - MAX_ALIKE} more in the same step")
    return lines


def _numbers(facts: dict[str, Any]) -> str:
    shown = [f"{word} {facts[name]}" for name, word in _SHOWN.items() if facts.get(name) is not None]
    return _plain(", ".join(shown))


def _plain(text: str) -> str:
    """On one line, and without what would move the cursor of a terminal."""
    return "".join(it if it.isprintable() else "?" for it in text)
