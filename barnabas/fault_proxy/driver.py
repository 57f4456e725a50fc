"""The handle of a proxy process. Blocks; may be used from any thread."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import code_environment
from barnabas.fault_proxy.rules import LinkState, MessageRule, Way

Pair = tuple[str, str]

END_SECONDS = 5.0


class ProxyProcess:
    """One proxy. Everything raises `ClusterError` when it has ended, or refuses."""

    def __init__(self, nodes: Mapping[str, int], for_clients: Mapping[str, int], seed: int | None = None) -> None:
        """Ports by name: `nodes` where nodes reach each other, `for_clients` where clients reach some of them."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "barnabas.fault_proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=code_environment(),
            start_new_session=True,
            text=True,
        )
        self._one_at_a_time = threading.Lock()
        self._states: dict[Pair, LinkState] = {}
        try:
            ports = self._exchange({"nodes": dict(nodes), "for_clients": dict(for_clients), "seed": seed})
        except BaseException:
            self.close()
            raise
        self.ports: dict[Pair, int] = {}
        """By (source, target); clients are `client`."""
        for pair, port in ports.items():
            source, _arrow, target = pair.partition(">")
            self.ports[source, target] = port

    def link(self, source: str, target: str) -> LinkState:
        """The state that was set."""
        return self._states.get((source, target), LinkState())

    def set_link(self, source: str, target: str, state: LinkState) -> None:
        self.set_links([(source, target, state)])

    def set_links(self, links: Iterable[tuple[str, str, LinkState]]) -> None:
        """All of them in one moment."""
        wanted = list(links)
        self._call("set_links", links=[{"source": a, "target": b, **asdict(state)} for a, b, state in wanted])
        for source, target, state in wanted:
            self._states[source, target] = state

    def add_rule(self, rule: MessageRule) -> int:
        """Gives a number for `clear_rule`."""
        number: int = self._call("add_rule", **asdict(rule))
        return number

    def clear_rule(self, number: int) -> int:
        """Removes a rule; messages that it held go on. Returns the number of messages that it met."""
        struck: int = self._call("clear_rule", number=number)
        return struck

    def asked(self) -> dict[Way, int]:
        """Number of requests from each source to each target since the beginning."""
        return {Way(api_key, source, target): count for api_key, source, target, count in self._call("asked")}

    def heal(self) -> None:
        """Takes back all faults."""
        self._call("heal")
        self._states.clear()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._call("status")
        return found

    def close(self) -> None:
        """The process ends, and all connections through it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _call(self, name: str, **arguments: Any) -> Any:
        return self._exchange({"call": name, "arguments": arguments})

    def _exchange(self, call: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._one_at_a_time:
            try:
                self._process.stdin.write(json.dumps(call) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except (BrokenPipeError, ValueError):
                line = ""
        if not line:
            raise ClusterError("the proxy between the nodes has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ClusterError(f"the proxy refuses: {answer['error']}")
        return answer["value"]
