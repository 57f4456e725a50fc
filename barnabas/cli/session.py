"""Runs the requests of a command until they are done or interrupted; errors of the cluster become one line."""

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
    """No broker was reached, or the time limit passed. The same command may succeed later."""


class Terminated(BaseException):
    """SIGTERM arrived, and all clients were closed cleanly."""


def run_connected(connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
    """Runs `work` as `run_until_done` does. Raises `NoAnswer` without waiting if the command is about the local cluster
    and that does not run.
    """
    import trio

    from barnabas.cli.reachability import missing_local_cluster

    addresses = connection.bootstrap_addresses()
    missing = ""

    async def check() -> None:
        nonlocal missing
        missing = await trio.to_thread.run_sync(
            missing_local_cluster, connection.data, addresses, abandon_on_cancel=True
        )
        if missing:
            raise NoAnswer(missing)

    async def checked() -> T:
        async with trio.open_nursery() as nursery:
            if connection.is_local:
                nursery.start_soon(check)
            result = await work()
            nursery.cancel_scope.cancel()
        return result

    try:
        return run_until_done(checked)
    except NoAnswer as error:
        raise (NoAnswer(missing) if missing else error) from None


def run_until_done(work: Callable[[], Awaitable[T]]) -> T:
    """Runs `work` and returns its result. Ctrl-C and SIGTERM cancel it and clients close cleanly; a second Ctrl-C
    does not wait for them.

    Raises `ClusterError` if the cluster refuses, `NoAnswer` if it does not answer, `WrongArgument` for invalid
    settings; `KeyboardInterrupt` and `Terminated` are never wrapped in a group.
    """
    import trio

    from barnabas.client.cluster import NoBrokerAvailable
    from barnabas.protocol.errors import KafkaError

    came: list[int] = []

    async def watch(scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            came.append(await anext(signals))
        # From here on, Ctrl-C interrupts the closing of clients.
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
                    failure = error  # raised below, outside the nursery, which would wrap it in a group
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
        expected = group.split((ClusterError, KafkaError, NoBrokerAvailable, OSError))[0]
        if expected is None:
            raise
        first = _first(expected)
        raise (first if isinstance(first, OSError) else refusal(first)) from None
    except (KafkaError, NoBrokerAvailable) as error:
        raise refusal(error) from None


def with_admin(connection: Connection, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Runs `work` with an admin client. Raises as `run_connected`."""

    async def session() -> T:
        from barnabas.client.admin import Admin, AdminSettings

        known = AdminSettings.model_fields
        async with Admin(**connection.settings(known, default_api_timeout_ms=connection.timeout_ms)) as admin:
            return await work(admin)

    return run_connected(connection, session)


def with_cluster(
    bootstrap: str | None,
    data: Path,
    work: Callable[[Cluster], Awaitable[T]],
    settings: ClusterSettings | None = None,
) -> T:
    """Runs `work` with cluster metadata that several clients share. Raises as `run_until_done`."""
    addresses = bootstrap_from(bootstrap, data)

    async def session() -> T:
        import trio

        from barnabas.client.cluster import Cluster
        from barnabas.runtime.real import real_world

        async with trio.open_nursery() as nursery:
            cluster = Cluster(real_world(), nursery, addresses, client_id="barnabas-cli", settings=settings)
            result = await work(cluster)
            cluster.close()
            nursery.cancel_scope.cancel()
        return result

    return run_until_done(session)


def refusal(error: BaseException) -> ClusterError:
    """Converts an error of the client into the error of a command."""
    from barnabas.client.cluster import NoBrokerAvailable
    from barnabas.client.errors import ConfigException, NetworkException, TimeoutException

    if isinstance(error, ClusterError):
        return error
    if isinstance(error, ConfigException):
        return WrongArgument(in_one_line(error.message or error))
    kind = NoAnswer if isinstance(error, NoBrokerAvailable | NetworkException | TimeoutException) else ClusterError
    return kind(in_one_line(error))


def exit_code(error: Exception) -> int:
    """Exit code of a command that failed with `error`."""
    match refusal(error):
        case WrongArgument():
            return 2
        case NoAnswer():
            return 3
        case _:
            return 1


def in_one_line(error: object) -> str:
    """The error's text on one line."""
    return " ".join(str(error).split())


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
