"""`barnabas why`: what happened to a partition, a group, a transaction, a node or the quorum, and the causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.http_token import HttpTokenFile, http_token_file, read_http_token
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain, show_json, show_text
from barnabas.cli.replica_lines import replica_lines_now
from barnabas.cli.session import NoAnswer, run_until_done, with_admin
from barnabas.cli.share_delivery import Shared, groups_among, lines_now
from barnabas.cli.times import iso_time
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.runtime.http_token import HttpToken
    from barnabas.why.node_addresses import NodeAddress, NodeListener
    from barnabas.why.node_queries import Answers
    from barnabas.why.story import Event

MAX_ALIKE = 3
"""Limit of events that one step caused on other subjects; the rest are counted."""
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
"""Facts in the text output, with their labels. The others are in the sentences or in --json only."""

Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT,…",
        help="HTTP listeners of the nodes (barnabas.http.listener). Default: those of the cluster in --data; with -b, "
        "200 above the nodes' Kafka ports, or port 9292.",
    ),
]


@grouped
def why(
    subject: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT...",
            help="Partition such as flights-3, topic, group, transactional id, broker 2, controller 101, or quorum.",
        ),
    ],
    http: Http = None,
    token_file: HttpTokenFile = None,
    as_json: AsJson = False,
    *,
    shared: Shared,
    connection: Connection,
) -> None:
    """Explain what happened to a partition, group, transaction or node: all nodes' decisions, with their causes. For a
    share group also its state: with --group, why it gets records of a partition, or does not.

    For the cluster in --data the nodes' log files are read, too: decisions before a restart are only there.
    """
    text = " ".join(subject).strip()
    if not text:
        raise WrongArgument(
            "SUBJECT must be a partition such as flights-3, a topic, a group, a transactional id, a node or quorum"
        )
    delivery = shared.question(text)
    is_local = http is None and connection.is_local
    token = read_http_token(http_token_file(token_file, connection.data, is_local=is_local))
    addresses, logs = _addresses(http, connection, token)
    timeout_seconds = min(connection.timeout, 5.0)
    answers = _ask(addresses, logs, text if delivery is None else delivery.group_id, timeout_seconds)
    for name, reason in answers.silent.items():
        complain(f"{name} does not answer: {reason}")
    asked = [delivery] if delivery is not None else groups_among(answers.wanted)
    now = [line for each in asked for line in lines_now(addresses, each, timeout_seconds)]
    if delivery is None:
        now += replica_lines_now(addresses, answers.wanted or [text], timeout_seconds)
    if not answers.wanted and not now:
        _refuse_unknown(text if delivery is None else f"share group {delivery.group_id}", answers)
    from barnabas.why.story import story, subjects_of

    events = story(it for it in answers.decisions if delivery is None or text in subjects_of(it))
    if as_json:
        decisions = [event.to_json() for event in events]
        show_json(
            {
                "subject": text,
                "subjects": answers.wanted,
                "silent": answers.silent,
                "now": now,
                "decisions": decisions,
            }
        )
    else:
        for line in [*story_lines(events, answers.wanted), *(["now"] if now else []), *(f"  {it}" for it in now)]:
            show_text(_plain(line))


def _ask(addresses: Sequence[NodeAddress], logs: Mapping[str, Path], text: str, timeout_seconds: float) -> Answers:
    """Raises `NoAnswer` if no node answers."""
    from barnabas.runtime.real import real_world
    from barnabas.why.decision_log import read_log
    from barnabas.why.node_queries import ask_all

    logged = [it for name, path in logs.items() for it in read_log(path, name)]
    answers = run_until_done(lambda: ask_all(real_world().network, addresses, text, timeout_seconds, logged))
    if len(answers.silent) == len(addresses) and not answers.wanted:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in answers.silent.items())
        raise NoAnswer(f"no node answers HTTP ({reasons}); check --data or --http")
    return answers


def _refuse_unknown(text: str, answers: Answers) -> None:
    from barnabas.why.story import near

    found = near(text, answers.subjects)
    hint = f"did you mean {' or '.join(found)}?" if found else f"{len(answers.subjects)} other subjects are known"
    raise ClusterError(f"no node has decisions about {text}; {hint}")


# Addresses of the nodes


def _addresses(
    http: str | None, connection: Connection, token: HttpToken | None
) -> tuple[list[NodeAddress], dict[str, Path]]:
    """HTTP addresses of the nodes, and the log files of local nodes by name."""
    from barnabas.cluster.layout import Layout
    from barnabas.why.node_addresses import NodeAddress

    if http is not None:
        return [NodeAddress(f"{host}:{port}", host, port, token) for host, port in _parse_addresses(http)], {}
    if not connection.is_local:
        return with_admin(connection, lambda admin: _found_by_listeners(admin, token)), {}
    layout = Layout.open(connection.data)
    pages = [(it.name, it.http_port) for it in layout.nodes if it.http_port is not None]
    addresses = [NodeAddress(name, "127.0.0.1", port, token) for name, port in pages]
    return addresses, {it.name: layout.log_file(it) for it in layout.nodes}


async def _found_by_listeners(admin: Admin, token: HttpToken | None) -> list[NodeAddress]:
    from barnabas.runtime.real import real_world
    from barnabas.why.node_addresses import NodeListener, find_all

    described = await admin.describe_cluster(include_fenced_brokers=True)
    quorum = await admin.describe_metadata_quorum()
    listeners = [NodeListener("broker", it.node_id, it.host, it.port) for it in described.nodes]
    listeners += [_controller(node_id, endpoints) for node_id, endpoints in sorted(quorum.nodes.items())]
    return await find_all(real_world().network, listeners, token)


def _controller(node_id: int, endpoints: Sequence[Any]) -> NodeListener:
    from barnabas.why.node_addresses import NodeListener

    host, port = (endpoints[0].host, endpoints[0].port) if endpoints else ("", 0)
    return NodeListener("controller", node_id, host, port)


def _parse_addresses(text: str) -> list[tuple[str, int]]:
    """Raises `WrongArgument`."""
    found = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise WrongArgument(f"--http must be HOST:PORT,…; got {part!r}")
        found.append((host.strip("[]"), int(port)))
    return found


# Output


def story_lines(events: Sequence[Event], wanted: Sequence[str]) -> list[str]:
    """The story as text: time, event and node; then the cause, and the numbers. If one step changed many subjects
    other than `wanted`, the first are printed and the rest counted.
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
        second_hand = ", second-hand" if decision["facts"].get("hearsay") else ""
        lines.append(f"  {when[11:]}  {_plain(event.what)}  ({decision['node']}{second_hand})")
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
    """On one line, without control characters."""
    return "".join(it if it.isprintable() else "?" for it in text)
