"""Faults of real packets, by iptables inside of the receivers' network namespaces. Needs root.

Knows nodes by name, and how to enter their namespaces, from `netns.py` and `compose.py`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from barnabas.cluster.errors import ClusterError
from worlds.cluster import LinkFault

CLIENT = "client"
_STEP_SECONDS = 20.0

Enter = Callable[[str], list[str] | None]
"""The beginning of a command that runs in a node's namespace; None: it has none now, nor rules in it."""


class Packets:
    """Rules of iptables that drop packets between nodes."""

    def __init__(self, enter: Enter, address_of: Callable[[str], str]) -> None:
        """`address_of` knows `client`, too."""
        self._enter = enter
        self._address_of = address_of
        self._rules: dict[tuple[str, str, str], list[str]] = {}
        """Arguments of iptables, from the chain on, by (source, target, kind)."""

    def cut(self, source: str, target: str, *, is_cut: bool) -> None:
        self._set(source, target, "cut", ["-j", "DROP"] if is_cut else None)

    def set_link(self, source: str, target: str, fault: LinkFault) -> None:
        """Loss, and half-open: whatever carries data is dropped, while connections come about."""
        lossy = ["-m", "statistic", "--mode", "random", "--probability", f"{fault.loss:.4f}", "-j", "DROP"]
        self._set(source, target, "loss", lossy if fault.loss else None)
        half_open = ["--tcp-flags", "PSH", "PSH", "-j", "DROP"]
        self._set(source, target, "half-open", half_open if fault.half_open else None)

    def heal(self) -> None:
        for way in list(self._rules):
            self._set(*way, None)

    def renew(self, node: str) -> None:
        """Its namespace is a new one, and has no rules yet."""
        for (source, target, _kind), rule in self._rules.items():
            if _holder(source, target) == node:
                self._run(node, "-A", rule)

    def _set(self, source: str, target: str, kind: str, what: Sequence[str] | None) -> None:
        """`what` iptables does with packets on this way; None: nothing. One rule of each kind at a time."""
        holder = _holder(source, target)
        old = self._rules.pop((source, target, kind), None)
        if old is not None:
            self._run(holder, "-D", old)
        if what is not None:
            if target == CLIENT:
                rule = ["OUTPUT", "-d", self._address_of(CLIENT), "-p", "tcp", *what]
            else:
                rule = ["INPUT", "-s", self._address_of(source), "-p", "tcp", *what]
            self._run(holder, "-A", rule)
            self._rules[source, target, kind] = rule

    def _run(self, node: str, action: str, rule: Sequence[str]) -> None:
        inside = self._enter(node)
        if inside is None:
            return
        try:
            run(*inside, "iptables", "-w", action, *rule)
        except ClusterError:
            # Its namespace may have gone meanwhile.
            if self._enter(node) is not None:
                raise


def _holder(source: str, target: str) -> str:
    """The node whose rules drop packets on this link: the receiver, or the node for packets to clients."""
    return source if target == CLIENT else target


def run(*command: str, timeout_seconds: float = _STEP_SECONDS) -> str:
    """The output of a command. Raises ClusterError, in one line, if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ClusterError(f"{' '.join(command)}: {lines[-1] if lines else done.returncode}")
    return done.stdout
