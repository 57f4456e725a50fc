"""Calls of a broker to itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.broker.own_channel import OwnChannel
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import CallTimedOut

REQUEST, RESPONSE = WriteTxnMarkersRequest(), WriteTxnMarkersResponse()
Answer = Callable[[Message], None]


async def test_an_answer_may_come_at_once(autojump_clock: trio.abc.Clock) -> None:
    asked: list[Any] = []

    def serve(request: Any, answer: Answer) -> None:
        asked.append(request)
        answer(RESPONSE)

    assert await OwnChannel(serve).call(REQUEST, timeout_ms=10) is RESPONSE
    assert asked == [REQUEST]


async def test_an_answer_may_come_later_and_too_late(autojump_clock: trio.abc.Clock) -> None:
    waiting: list[Answer] = []
    channel = OwnChannel(lambda _, answer: waiting.append(answer))

    async def answer_after(delay_s: float) -> None:
        await trio.sleep(delay_s)
        waiting.pop()(RESPONSE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_after, 0.009)
        assert await channel.call(REQUEST, timeout_ms=10) is RESPONSE
        nursery.start_soon(answer_after, 0.011)
        with pytest.raises(CallTimedOut):
            await channel.call(REQUEST, timeout_ms=10)
