"""The buttons: nodes are killed, paused, resumed and started, links cut and healed; each is a mark on the page.

One thing at a time; what blocks is done in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import trio

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.page.feed import Feed
from barnabas.page.links import Links
from barnabas.page.local_side import LocalSide
from runtime.world import Clock

Json = Mapping[str, Any]
Do = Callable[[str, Json], Awaitable[None]]

FAULT = "fault"
NO_LINKS = "the links of this cluster cannot be cut: it was started without a page"


class NotNow(ClusterError):
    """What was asked for cannot be done in the present state."""


class Starts(Protocol):
    """What a button starts and stops."""

    def start(self) -> None:
        """Raises `NotNow`."""

    def stop(self) -> None:
        """Raises `NotNow`."""


class Faults:
    """What is done to the cluster, by whomever."""

    def __init__(self, side: LocalSide, feed: Feed, wall_clock: Clock) -> None:
        self.side = side
        self._feed = feed
        self._wall_clock = wall_clock
        self._one_at_a_time = trio.Lock()

    async def kill(self, name: str) -> None:
        await self._node(name, f"{name} is killed (SIGKILL)", self.side.cluster.kill)

    async def pause(self, name: str) -> None:
        await self._node(name, f"{name} is paused (SIGSTOP)", self.side.cluster.pause)

    async def resume(self, name: str) -> None:
        await self._node(name, f"{name} goes on (SIGCONT)", self.side.cluster.resume)

    async def start(self, name: str) -> None:
        await self._node(name, f"{name} is started", self.side.cluster.start)

    async def cut(self, one: str, other: str, *, cut: bool) -> None:
        links = self.side.links
        if links is None:
            raise NotNow(NO_LINKS)
        first, second = links.pair(one, other)
        told = f"the link between {first} and {second} is {'cut' if cut else 'healed'}"
        await self._do(subject_of(first), told, partial(_set_cut, links, first, second, cut))

    async def _node(self, name: str, told: str, work: Callable[[str], object]) -> None:
        """Raises `ClusterError` if there is no such node, or it cannot be done to it."""
        self.side.cluster.layout.node(name)
        await self._do(subject_of(name), told, partial(work, name))

    async def _do(self, subject: str, told: str, work: Callable[[], object]) -> None:
        async with self._one_at_a_time:
            at_ms = self._wall_clock.now_ms()
            await trio.to_thread.run_sync(work)
            self._feed.mark(FAULT, subject, told, at_ms=at_ms)


def subject_of(name: str) -> str:
    """As decisions call a node: `broker 1`."""
    return name.replace("-", " ")


def _set_cut(links: Links, first: str, second: str, cut: bool) -> None:
    links.set_cut(first, second, cut=cut)


def buttons(faults: Faults, starts: Mapping[str, Starts], busy: Callable[[], str]) -> dict[str, Do]:
    """By the first word of the path. `starts`: what the paths `NAME/start` and `NAME/stop` are for. `busy`: why nothing
    may be done now, or nothing."""

    def refuse_if_busy() -> None:
        if why := busy():
            raise NotNow(why)

    def about_node(do: Callable[[str], Awaitable[None]]) -> Do:
        async def act(about: str, body: Json) -> None:
            refuse_if_busy()
            await do(about)

        return act

    def about_link(*, cut: bool) -> Do:
        async def act(about: str, body: Json) -> None:
            refuse_if_busy()
            between = body.get("between")
            match between:
                case [str(one), str(other)] if not about:
                    await faults.cut(one, other, cut=cut)
                case _:
                    raise WrongArgument('needs {"between": ["broker-1", "broker-2"]}')

        return act

    def about_start(name: str, what: Starts) -> Do:
        async def act(about: str, body: Json) -> None:
            if about not in ("start", "stop"):
                raise WrongArgument(f"{name}/start or {name}/stop")
            (what.start if about == "start" else what.stop)()

        return act

    return {
        "kill": about_node(faults.kill),
        "pause": about_node(faults.pause),
        "resume": about_node(faults.resume),
        "start": about_node(faults.start),
        "cut": about_link(cut=True),
        "heal": about_link(cut=False),
        **{name: about_start(name, what) for name, what in starts.items()},
    }
