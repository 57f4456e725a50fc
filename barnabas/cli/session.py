"""Runs what a command asks of a cluster, and turns refusals into one line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.cli.options import bootstrap_from
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster, ClusterSettings

T = TypeVar("T")

PATIENCE_MS = 15_000
"""How long a cluster that does not answer, or has no leader, is asked again."""


def with_cluster(
    bootstrap: str | None,
    data: Path,
    work: Callable[[Cluster], Awaitable[T]],
    settings: ClusterSettings | None = None,
) -> T:
    """What `work` gives. Raises `ClusterError` if the cluster refuses or does not answer, and KeyboardInterrupt alone,
    whichever task it came upon.
    """
    import trio

    addresses = bootstrap_from(bootstrap, data)

    async def session() -> T:
        from barnabas.client.cluster import Cluster
        from runtime.real import real_world

        async with trio.open_nursery() as nursery:
            cluster = Cluster(real_world(), nursery, addresses, client_id="barnabas-cli", settings=settings)
            result = await work(cluster)
            cluster.close()
            nursery.cancel_scope.cancel()
        return result

    from barnabas.client.cluster import NoBrokerAvailable
    from protocol.errors import KafkaError

    try:
        return trio.run(session)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        refusals = group.split((ClusterError, KafkaError, NoBrokerAvailable))[0]
        if refusals is None:
            raise
        refusal = _first(refusals)
        raise refusal if isinstance(refusal, ClusterError) else ClusterError(in_one_line(refusal)) from None


async def partitions_of(cluster: Cluster, topic: str) -> int:
    """How many partitions the topic has. Raises `ClusterError` at once if there is no such topic."""
    from barnabas.client.admin import Admin
    from protocol.errors import ErrorCode, KafkaError

    try:
        found = (await Admin.over(cluster, PATIENCE_MS).describe_topics(topic))[topic]
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ClusterError(f"there is no topic {topic}; `barnabas topics create {topic}` makes it") from None
        raise
    return len(found.partitions)


def in_one_line(error: BaseException) -> str:
    """What the cluster said, on one line."""
    return " ".join(str(error).split())


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
