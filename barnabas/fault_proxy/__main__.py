"""`python -P -m barnabas.fault_proxy`: one proxy, controlled by lines of JSON.

The first line is `{"nodes": {NAME: PORT}, "for_clients": {NAME: PORT}, "seed": NUMBER}`; the answer has our ports,
`{"value": {"SOURCE>TARGET": PORT}}`. Each later line is `{"call": NAME, "arguments": {...}}` and is answered by
`{"value": ...}` or `{"error": TEXT}`, in order. When the input ends, for whatever reason, so does the proxy.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import trio

from barnabas.fault_proxy.rules import Faults, LinkState, MessageRule
from barnabas.fault_proxy.server import Proxy
from barnabas.runtime.process import allow_many_files, name_process

_MOST_LINE_BYTES = 1 << 20


def calls_of(proxy: Proxy) -> dict[str, Callable[..., Any]]:
    """The calls by name."""
    faults = proxy.faults

    def set_link(source: str, target: str, **state: Any) -> None:
        _known(proxy, source, target)
        faults.set_link(source, target, LinkState(**state))

    def set_links(links: list[Mapping[str, Any]]) -> None:
        for link in links:
            set_link(**link)

    def add_rule(**rule: Any) -> int:
        return faults.add_rule(MessageRule(**rule))

    return {
        "set_link": set_link,
        "set_links": set_links,
        "add_rule": add_rule,
        "clear_rule": faults.clear_rule,
        "heal": faults.heal,
        "asked": lambda: [[*way, count] for way, count in faults.asked.items()],
        "status": lambda: _status(proxy, faults),
    }


def _status(proxy: Proxy, faults: Faults) -> dict[str, Any]:
    return {"connections": proxy.connections, "struck": {str(rule): count for rule, count in faults.struck.items()}}


def _known(proxy: Proxy, source: str, target: str) -> None:
    if (source, target) not in proxy.ports and (target, source) not in proxy.ports:
        raise ValueError(f"nothing goes from {source} to {target}")


async def main() -> None:
    async with trio.lowlevel.FdStream(os.dup(0)) as commands:
        lines = _Lines(commands)
        first = await lines.next()
        if first is None:
            return
        try:
            proxy = Proxy(first["nodes"], first["for_clients"], first.get("seed"))
        except OSError as error:
            _say({"error": str(error)})
            return
        _say({"value": {f"{source}>{target}": port for (source, target), port in proxy.ports.items()}})
        calls = calls_of(proxy)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proxy.run)
            while (asked := await lines.next()) is not None:
                _say(_answer(calls, asked))
            nursery.cancel_scope.cancel()


class _Lines:
    """Lines of JSON, one after the other."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def next(self) -> Any:
        """None at the end."""
        while (end := self._buffer.find(b"\n")) < 0:
            data = await self._stream.receive_some()
            if not data or len(self._buffer) > _MOST_LINE_BYTES:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return json.loads(line)


def _answer(calls: Mapping[str, Callable[..., Any]], asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"value": calls[asked["call"]](**asked["arguments"])}
    except (KeyError, TypeError, ValueError) as error:
        return {"error": f"{asked.get('call')}: {error}"}


def _say(answer: Mapping[str, Any]) -> None:
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        # The parent is gone: the input ends, too.
        return


if __name__ == "__main__":
    # Ctrl-C is for the parent; the end of the input ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_process("proxy")
    allow_many_files()
    trio.run(main)
    sys.exit(0)
