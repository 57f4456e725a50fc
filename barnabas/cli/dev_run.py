"""Runs the node of `barnabas dev` in the foreground, and prints how it is reached."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.output import show_text
from barnabas.runtime.error_groups import only_error

if TYPE_CHECKING:
    from barnabas.dev.node import DevNode
    from barnabas.dev.options import DevOptions


def run_in_foreground(options: DevOptions) -> None:
    """Run the node until a signal. Raises `ClusterError`."""
    import gc
    import logging

    began = time.monotonic()
    gc.disable()  # modules are no garbage; `run_until_signal` switches it on when the node serves
    import trio

    from barnabas.dev.node import run_dev_node
    from barnabas.runtime.process import prepare_process, run_until_signal, start_logging

    start_logging(None)
    logging.getLogger().setLevel(logging.WARNING)
    prepare_process("barnabas-dev")

    async def run(stop: trio.Event, *, task_status: trio.TaskStatus[DevNode]) -> None:
        await run_dev_node(options, stop, task_status=task_status)

    def served(node: DevNode) -> None:
        show_text(_welcome(node, time.monotonic() - began))

    try:
        trio.run(run_until_signal, run, served)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


def _welcome(node: DevNode, seconds: float) -> str:
    lines = [f"{node.bootstrap_servers} is ready after {seconds:.2f} s; Ctrl-C ends it"]
    if node.client_file is not None:
        from barnabas.cli.options import program

        lines.append(f"SASL_SSL; {program()} --client-config {node.client_file} is the administrator")
    if node.registry is not None:
        lines.append(f"{node.registry.url} is its schema registry")
    return "\n".join(lines)
