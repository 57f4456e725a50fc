"""Clients in processes of their own: what they answer, and what becomes of those that stand still."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import asdict
from typing import Any

import pytest
import trio

from clients import program_client
from clients.client import ClientError, ClientSettings
from clients.confluent_library import classified
from clients.program_client import Program, ProgramLibrary
from operations import Place

pytestmark = pytest.mark.feature("FI-01")

SETTINGS = ClientSettings("127.0.0.1:1", "client-0")
PLACE = Place("t", 0)

TALKS = """
    import json, sys, time

    settings = json.loads(sys.stdin.readline())
    answer = {"ok": None, "rebalances": []}
    while True:
        print(json.dumps(answer), flush=True)
        call = json.loads(sys.stdin.readline())
        answer = {"ok": None, "rebalances": []}
        if call["call"] == "send":
            answer["ok"] = {"offset": 7, "timestamp_ms": 1}
        elif call["call"] == "poll":
            answer["ok"] = [["t", 0, 3, None, "eA==", 1, 2]]
            answer["rebalances"] = [{"kind": "assigned", "places": [["t", 0]], "generation": -1}]
        elif call["call"] == "seek":
            answer = {"error": "E", "text": settings["client_id"], "definite": True, "fatal": False, "rebalances": []}
        elif call["call"] in ("commit_transaction", "close"):
            time.sleep(1_000)
"""


def library(program: str, now_ns: int = 5) -> ProgramLibrary:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return ProgramLibrary(Program("other", command, asdict, classified), lambda: now_ns)


def play(story: Any, program: str = TALKS) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with library(program).open(SETTINGS, "client-0") as client:
                await story(client)

    trio.run(main)


def test_a_process_answers_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_client, "CLOSE_SECONDS", 0.1)

    async def story(client: Any) -> None:
        assert await client.send(PLACE, None, b"x") == (7, 1)
        await client.assign([PLACE], from_beginning=True)
        [read] = await client.poll(100)
        assert (read.place, read.offset, read.value, read.leader_epoch) == (PLACE, 3, b"x", 2)
        assert client.take_rebalances() == [{"kind": "assigned", "places": [["t", 0]], "generation": -1, "t_ns": 5}], (
            "stamped with the time that all share"
        )
        with pytest.raises(ClientError, match="E: client-0") as caught:
            await client.seek(PLACE, 1)
        assert (caught.value.definite, caught.value.fatal) == (True, False)
        assert await client.position(PLACE) is None

    play(story)


def test_a_library_that_stands_still_ends_with_its_process_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_client, "CALL_SECONDS", 0.3)
    processes: list[trio.Process] = []

    async def story(client: Any) -> None:
        processes.append(client._process)
        with pytest.raises(ClientError, match="no end within") as caught:
            await client.commit_transaction()
        assert (caught.value.definite, caught.value.fatal) == (False, True)
        with pytest.raises(ClientError, match="this client is gone"):
            await client.send(PLACE, None, b"x")

    play(story)
    assert processes[0].returncode is not None


def test_a_close_that_never_ends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In librdkafka 2.16 a member that closes while its partitions are revoked waits for ever."""
    monkeypatch.setattr(program_client, "CLOSE_SECONDS", 0.3)
    processes: list[trio.Process] = []

    async def story(client: Any) -> None:
        processes.append(client._process)

    play(story)
    assert processes[0].returncode is not None


@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "print('not JSON', flush=True); input(); input()"])
def test_a_program_that_does_not_start_is_an_error(program: str) -> None:
    async def story(client: Any) -> None:
        raise AssertionError("nobody should be here")

    with pytest.raises(ClientError, match="other did not come up") as caught:
        play(story, program)
    assert caught.value.definite and caught.value.fatal
