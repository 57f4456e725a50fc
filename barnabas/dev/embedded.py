"""A development node in a thread of the caller's process."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.cluster.errors import ClusterError
from barnabas.dev.node import DevNode, dev_node
from barnabas.dev.options import DevOptions, NewDevTopic
from barnabas.portal import Held, Portal


class EmbeddedServers(str):
    """The bootstrap servers of an embedded node: a string that every client takes, and what a test asks of the node."""

    __slots__ = ("_portal", "node")

    node: DevNode
    _portal: Portal

    def __new__(cls, node: DevNode, portal: Portal) -> EmbeddedServers:
        servers = super().__new__(cls, node.bootstrap_servers)
        servers.node = node
        servers._portal = portal
        return servers

    @property
    def directory(self) -> Path:
        """The directory of its data; with `secure`, files for clients are in `directory / "security"`."""
        return self.node.directory

    @property
    def registry_url(self) -> str:
        """The address of the schema registry. Raises `ClusterError` if there is none."""
        if self.node.registry is None:
            raise ClusterError("there is no registry: use embedded(registry=True)")
        return self.node.registry.url

    @property
    def registry_settings(self) -> dict[str, str]:
        """Keyword arguments of our producers and consumers for the schema registry: its address, and if it is secure
        the token and the authority. Raises `ClusterError` if there is none."""
        return self.node.registry_settings()

    @property
    def client_settings(self) -> dict[str, Any]:
        """Keyword arguments of our clients beside `bootstrap_servers`: the login of the administrator, if secure."""
        return self.node.client_settings()

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and return its name. Raises `WrongArgument`; nothing happens if it exists."""
        self._portal.call(self.node.create_topics, [NewDevTopic(name, partitions)])
        return name

    def reset(self) -> None:
        """Delete all topics, and with them all records, groups, offsets and transactions. Raises
        `ClusterError`."""
        self._portal.call(self.node.reset)

    def snapshot(self) -> Path:
        """Keep all topics, records, groups and transactions as they are now, for `restore`.

        The broker is restarted meanwhile, which clients survive as any restart. With `directory` the copy stays after
        the block, in `directory / "snapshots"`.
        """
        return self._portal.call(self.node.snapshot)

    def restore(self, snapshot: Path) -> None:
        """Go back to the state of a snapshot, as often as you like. Raises `ClusterError`."""
        self._portal.call(self.node.restore, snapshot)


@contextmanager
def embedded(
    *,
    topics: Sequence[str] | Mapping[str, int] = (),
    port: int = 0,
    directory: str | Path | None = None,
    secure: bool = False,
    registry: bool | int = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[EmbeddedServers]:
    """A cluster of one node in this process, for any client, as long as the block.

    `topics`: names, or numbers of partitions by name. `port` 0 is any free one. Without `directory` the data is in
    memory and ends with the block. With `registry` there is a schema registry at `registry_url`; a number is its port.
    `settings` have Kafka's names. Raises `barnabas.cluster.errors.ClusterError`, whose
    message is one line, if the node cannot run.
    """
    counts = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    options = DevOptions(
        port=port,
        directory=None if directory is None else Path(directory),
        is_secure=secure,
        registry_port=None if registry is False else 0 if registry is True else registry,
        topics=[NewDevTopic(name, partitions) for name, partitions in counts.items()],
        settings=settings or {},
    )
    _load_node()
    portal = Portal()
    portal.start()
    try:
        held = Held(portal, dev_node(options))
        node = held.open()
        try:
            yield EmbeddedServers(node, portal)
        finally:
            held.close()
    finally:
        portal.stop()


def _load_node() -> None:
    """Load the modules of a node, without the collector of garbage: they are none."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        import barnabas.broker.node
        import barnabas.runtime.real  # noqa: F401
    finally:
        if is_on:
            gc.enable()
