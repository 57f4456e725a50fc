"""Runs what a command asks of a cluster, and turns refusals into one line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.cli.options import bootstrap_from
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

T = TypeVar("T")


def with_cluster(bootstrap: str | None, data: Path, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """What `work` gives. Raises `ClusterError` if the cluster refuses or does not answer."""
    import trio

    addresses = bootstrap_from(bootstrap, data)

    async def session() -> T:
        from barnabas.client.cluster import Cluster
        from runtime.real import real_world

        async with trio.open_nursery() as nursery:
            cluster = Cluster(real_world(), nursery, addresses, client_id="barnabas-cli")
            result = await work(cluster)
            cluster.close()
            nursery.cancel_scope.cancel()
        return result

    from barnabas.client.cluster import NoBrokerAvailable
    from protocol.errors import KafkaError

    try:
        return trio.run(session)
    except (KafkaError, NoBrokerAvailable) as error:
        raise ClusterError(in_one_line(error)) from None
    except BaseExceptionGroup as group:
        refusals = group.split((KafkaError, NoBrokerAvailable))[0]
        if refusals is None:
            raise
        raise ClusterError(in_one_line(_first(refusals))) from None


def in_one_line(error: BaseException) -> str:
    """What the cluster said, on one line."""
    return " ".join(str(error).split())


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
