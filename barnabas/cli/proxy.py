"""`barnabas proxy`: a proxy before any Kafka cluster that injects faults, records and replays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.http_token import OwnTokenFile, read_http_token
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain, show_text
from barnabas.cli.session import run_until_done
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.runtime.error_groups import only_error

if TYPE_CHECKING:
    import trio

    from barnabas.fault_proxy.listeners import ClusterProxy
    from barnabas.fault_proxy.rules_file import Faults
    from barnabas.fault_proxy.setup import ProxySetup
    from barnabas.runtime.http_token import HttpToken

app = typer.Typer(
    help="Run a proxy before any Kafka cluster that injects faults, until Ctrl-C.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

To = Annotated[str | None, typer.Option("--to", metavar="HOST:PORT,…", help="Bootstrap servers of the cluster.")]
ToConfig = Annotated[
    Path | None,
    typer.Option(
        "--to-config",
        metavar="FILE",
        help="Properties file with client settings for TLS and SASL towards the cluster, e.g. security.protocol.",
    ),
]


@dataclass(frozen=True)
class Target:
    """The cluster."""

    to: To = None
    to_config: ToConfig = None

    def setup(self, listen: str, advertise: str | None = None, seed: int | None = None) -> ProxySetup:
        """Raises `WrongArgument`."""
        from barnabas.fault_proxy.setup import ProxySetup

        if self.to is None:
            raise WrongArgument("--to HOST:PORT is needed: the bootstrap servers of the cluster")
        return ProxySetup(self.to, listen, advertise, self.to_config, seed)


@dataclass(frozen=True)
class Listening:
    """Where clients come in."""

    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="[HOST:]PORT",
            help="First port; further brokers get the ports after it. 0: any free ones. 0.0.0.0:PORT serves others.",
        ),
    ] = "9093"
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST", help="Host given to clients; default: the one they came in by."),
    ] = None


@dataclass(frozen=True)
class Injected:
    """Faults from the start."""

    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail",
            metavar="RULE",
            help="Fault of requests, e.g. 'Produce topic=orders error=NOT_LEADER_OR_FOLLOWER times=2'; repeatable.",
        ),
    ] = None
    link: Annotated[
        list[str] | None,
        typer.Option(
            "--link", metavar="FAULT", help="Fault of links, e.g. 'broker=1 bytes_per_second=10000'; repeatable."
        ),
    ] = None
    rules: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE", help="YAML file with lists of rules and links.")
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed for the chance in rules and links.")
    ] = None

    def read(self) -> Faults:
        """Raises `WrongArgument`."""
        from barnabas.fault_proxy.fault_rule import parse_rule
        from barnabas.fault_proxy.link_rule import parse_link
        from barnabas.fault_proxy.rules_file import Faults, read_rules_file

        found = Faults() if self.rules is None else read_rules_file(self.rules)
        found.rules.extend(map(parse_rule, self.fail or ()))
        found.links.extend(map(parse_link, self.link or ()))
        return found


@dataclass(frozen=True)
class Views:
    """Ways to see what passes."""

    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port", metavar="N", min=0, max=65535, help="Serve rules, links and a live page on this port."
        ),
    ] = None
    token_file: OwnTokenFile = None
    watch: Annotated[bool, typer.Option("--watch", help="Print a line for each message.")] = False
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Record all messages in a new file: JSONL, or a capture for Wireshark if it is NAME.pcapng.",
        ),
    ] = None
    trace_bytes: Annotated[
        int,
        typer.Option(
            "--trace-bytes",
            metavar="N",
            min=0,
            help="Longest request that the trace keeps for a replay; a capture has so much of each message.",
        ),
    ] = 1 << 20


@app.callback()
@grouped
def proxy(
    context: typer.Context,
    *,
    target: Target,
    listening: Listening,
    injected: Injected,
    views: Views,
) -> None:
    """Run a proxy before any Kafka cluster that injects faults, until Ctrl-C."""
    if context.invoked_subcommand is not None:
        return
    setup = target.setup(listening.listen, listening.advertise, injected.seed)
    setup.check()
    if views.token_file is not None and views.http_port is None:
        raise WrongArgument("--http-token-file needs --http-port")
    _run(setup, injected.read(), views)


@app.command("replay")
@grouped
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Trace that `barnabas proxy --trace` wrote.")],
    *,
    target: Target,
) -> None:
    """Send the requests of a trace to a cluster again."""
    from barnabas.fault_proxy import replay as replaying

    setup = target.setup("0")
    setup.check()
    trace = replaying.read_trace(file)
    done = run_until_done(lambda: replaying.replay(trace, setup))
    show_text(f"{done.sent} requests sent on {done.connections} connections, {done.answered} answered")
    for name, count in sorted(done.errors.items()):
        show_text(f"{count} times {name}")
    if trace.without_bytes:
        complain(f"{trace.without_bytes} requests were not sent: the trace has no bytes of them")
    if done.lost:
        raise ClusterError("\n".join(done.lost))


def _run(setup: ProxySetup, faults: Faults, views: Views) -> None:
    """Run the proxy until a signal. Raises `ClusterError`."""
    import logging

    import trio

    from barnabas.fault_proxy.setup import running_proxy
    from barnabas.runtime.process import prepare_process, run_until_signal, start_logging

    if views.http_port is not None:
        _require_packages()
    token = read_http_token(views.token_file)
    start_logging(None)
    logging.getLogger().setLevel(logging.WARNING)
    prepare_process("barnabas-proxy")

    async def run(stop: trio.Event, *, task_status: trio.TaskStatus[list[str]]) -> None:
        async with running_proxy(setup) as running:
            await _serve(running, faults, views, token, stop, task_status)

    try:
        trio.run(run_until_signal, run, _show)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


async def _serve(
    running: ClusterProxy,
    faults: Faults,
    views: Views,
    token: HttpToken | None,
    stop: trio.Event,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    import trio

    from barnabas.fault_proxy.recorder import Recorder

    async with trio.open_nursery() as nursery:
        for rule in faults.rules:
            running.common.rules.add(rule)
        for link in faults.links:
            running.set_link(link.state, link.broker, link.direction)
        recorder = Recorder(running)
        lines = _lines(running)
        if views.watch:
            recorder.watch(show_text)
        if views.trace is not None:
            recorder.record(views.trace, views.trace_bytes)
        if views.http_port is not None:
            from barnabas.fault_proxy.http_page import HttpPage

            page = HttpPage(running, recorder, "127.0.0.1", views.http_port, token)
            await nursery.start(page.serve)
            lines.append(f"rules and messages on {page.address.url}")
        task_status.started(lines)
        try:
            await stop.wait()
        finally:
            recorder.close()
            for line in running.common.rules.never_struck():
                complain(line)
        nursery.cancel_scope.cancel()


def _lines(running: ClusterProxy) -> list[str]:
    brokers = [f"{each['broker']} on port {each['port']}" for each in running.brokers()]
    return [f"{running.bootstrap_servers} is ready; Ctrl-C ends it", *brokers]


def _show(lines: list[str]) -> None:
    show_text("\n".join(lines))


def _require_packages() -> None:
    try:
        import hypercorn
        import quart_trio
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"--http-port needs the package {error.name}: install the extra `proxy`, in a checkout "
            "`pip install '.[proxy]'`"
        ) from None
    del hypercorn, quart_trio

