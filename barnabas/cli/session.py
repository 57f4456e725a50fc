"""Runs what a command asks of a cluster, until it is done or somebody interrupts it; refusals become one line."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.cli.connection import Connection
from barnabas.cli.options import bootstrap_from
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.cluster import Cluster, ClusterSettings

T = TypeVar("T")


class NoAnswer(ClusterError):
    """Nobody could be reached, or what was asked was not done in time: the same command may succeed later."""


class Terminated(BaseException):
    """SIGTERM came, and everything was closed in good order."""


def run_until_done(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` gives. Ctrl-C and SIGTERM cancel it, so that clients close in good order; a second Ctrl-C does not
    wait for them.

    Raises `ClusterError` if the cluster refuses, `NoAnswer` if it does not answer, `WrongArgument` for settings that
    cannot be; `KeyboardInterrupt` and `Terminated` alone, whichever task they came upon.
    """
    import trio

    from barnabas.client.cluster import NoBrokerAvailable
    from protocol.errors import KafkaError

    came: list[int] = []

    async def watch(scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            came.append(await anext(signals))
        # From here on Ctrl-C breaks off whatever closes.
        scope.cancel()

    async def session() -> T:
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            await nursery.start(watch, scope)
            with scope:
                try:
                    result = await work()
                except Exception as error:
                    failure = error  # told as it is, and not as something of this nursery
            nursery.cancel_scope.cancel()
        if came:
            raise KeyboardInterrupt if came[0] == signal.SIGINT else Terminated
        if failure is not None:
            raise failure
        return result

    try:
        return trio.run(session)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        told = group.split((ClusterError, KafkaError, NoBrokerAvailable, OSError))[0]
        if told is None:
            raise
        first = _first(told)
        raise (first if isinstance(first, OSError) else refusal(first)) from None
    except (KafkaError, NoBrokerAvailable) as error:
        raise refusal(error) from None


def with_admin(connection: Connection, work: Callable[[Admin], Awaitable[T]]) -> T:
    """What `work` gives for an administrator of the cluster. Raises as `run_until_done`."""

    async def session() -> T:
        from barnabas.client.admin import Admin, AdminSettings

        known = AdminSettings.model_fields
        async with Admin(**connection.settings(known, default_api_timeout_ms=connection.timeout_ms)) as admin:
            return await work(admin)

    return run_until_done(session)


def with_cluster(
    bootstrap: str | None,
    data: Path,
    work: Callable[[Cluster], Awaitable[T]],
    settings: ClusterSettings | None = None,
) -> T:
    """What `work` gives for a view of the cluster that several clients share. Raises as `run_until_done`."""
    addresses = bootstrap_from(bootstrap, data)

    async def session() -> T:
        import trio

        from barnabas.client.cluster import Cluster
        from runtime.real import real_world

        async with trio.open_nursery() as nursery:
            cluster = Cluster(real_world(), nursery, addresses, client_id="barnabas-cli", settings=settings)
            result = await work(cluster)
            cluster.close()
            nursery.cancel_scope.cancel()
        return result

    return run_until_done(session)


def refusal(error: BaseException) -> ClusterError:
    """The same as what a command ends with."""
    from barnabas.client.cluster import NoBrokerAvailable
    from barnabas.client.errors import ConfigException, NetworkException, TimeoutException

    if isinstance(error, ClusterError):
        return error
    if isinstance(error, ConfigException):
        return WrongArgument(in_one_line(error.message or error))
    kind = NoAnswer if isinstance(error, NoBrokerAvailable | NetworkException | TimeoutException) else ClusterError
    return kind(in_one_line(error))


def exit_code(error: Exception) -> int:
    """What a command ends with that could not do something because of `error`."""
    match refusal(error):
        case WrongArgument():
            return 2
        case NoAnswer():
            return 3
        case _:
            return 1


def in_one_line(error: object) -> str:
    """What the cluster said, on one line."""
    return " ".join(str(error).split())


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
