"""Exit of commands that talk to a cluster: signals, errors, exit codes."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import trio

from barnabas.cli.session import NoAnswer, Terminated, run_until_done, with_cluster
from barnabas.client import errors
from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.protocol.errors import ErrorCode


def test_an_interrupt_is_not_wrapped_whichever_task_it_hits(tmp_path: Path) -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def work(cluster: Cluster) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupted)

    with pytest.raises(KeyboardInterrupt):
        with_cluster("127.0.0.1:1", tmp_path, work)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_lets_clients_close_in_good_order(number: signal.Signals, raised: type[BaseException]) -> None:
    closed = []

    async def work() -> None:
        try:
            signal.raise_signal(number)
            await trio.sleep_forever()
        finally:
            closed.append(True)

    with pytest.raises(raised):
        run_until_done(work)
    assert closed == [True]


def test_a_second_interrupt_does_not_wait() -> None:
    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()
        finally:
            signal.raise_signal(signal.SIGINT)
            with trio.CancelScope(shield=True):
                await trio.sleep(60)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_until_done(work)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.TimeoutException(ErrorCode.REQUEST_TIMED_OUT, "so\nlate"), NoAnswer("REQUEST_TIMED_OUT: so late")),
        (NoBrokerAvailable("nobody"), NoAnswer("nobody")),
        (errors.ConfigException("acks: 7: all, 1 or 0"), WrongArgument("acks: 7: all, 1 or 0")),
        (
            errors.UnknownTopicOrPartitionException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t"),
            ClusterError("UNKNOWN_TOPIC_OR_PARTITION: t"),
        ),
        (WrongArgument("as it is"), WrongArgument("as it is")),
    ],
)
@pytest.mark.parametrize("in_a_group", [False, True])
def test_errors_of_the_cluster_become_one_line(error: Exception, message: ClusterError, in_a_group: bool) -> None:
    async def work() -> None:
        if in_a_group:
            raise ExceptionGroup("several", [ExceptionGroup("tasks", [error])])
        raise error

    with pytest.raises(type(message)) as caught:
        run_until_done(work)
    assert (type(caught.value), str(caught.value)) == (type(message), str(message))


def test_bugs_are_not_hidden() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_until_done(work)


@pytest.mark.parametrize("in_a_group", [False, True])
def test_the_reader_of_standard_output_may_close_it(in_a_group: bool) -> None:
    async def work() -> None:
        raise ExceptionGroup("tasks", [BrokenPipeError()]) if in_a_group else BrokenPipeError()

    with pytest.raises(BrokenPipeError):
        run_until_done(work)
