"""A run from the command line on real processes, with every client library that is here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from clients import java_program
from clients.client import ClientSettings, WorkClient
from clients.library_missing import LibraryMissing
from operations import Place
from running.libraries import check_libraries, open_libraries
from worlds.local import LocalWorld, run_in
from worlds.world_options import WorldOptions

ROOT = Path(__file__).resolve().parents[2]
PLACE = Place("t", 0)
LEFT_BEHIND = ("history.jsonl", "views.jsonl", "verdict.json", "report.html")


def here() -> list[str]:
    found = ["barnabas"]
    for name in ("confluent", "java"):
        try:
            check_libraries([name])
        except LibraryMissing:
            continue
        found.append(name)
    return found


@pytest.mark.slow
@pytest.mark.feature("FI-01")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("name", ["barnabas", "confluent", "java"])
def test_a_member_of_a_group_that_is_then_assigned_by_hand_is_where_it_was_sent(
    name: str, protocol: str, tmp_path: Path
) -> None:
    """With KIP-848 librdkafka took nothing by hand any more, however often it was asked."""
    if name not in here():
        pytest.skip(f"{name} is not here")

    async def tale(cluster: LocalWorld) -> None:
        [library] = open_libraries([name], cluster)
        settings = ClientSettings(cluster.bootstrap_servers, "client-0", group_id="g", group_protocol=protocol)
        async with library.open(settings, "client-0") as client:
            await client.create_topic("t", 1, 3)
            for value in (b"one", b"two"):
                await client.send(PLACE, None, value)
            await client.subscribe(["t"])
            assert await values_of(client, 2) == [b"one", b"two"]
            await client.assign([PLACE], from_beginning=True)
            assert await values_of(client, 2) == [b"one", b"two"]
            await client.subscribe(["t"])
            await client.send(PLACE, None, b"three")
            assert (await values_of(client, 1))[-1] == b"three"
        async with library.open(replace(settings, group_id="h"), "client-1") as client:
            await client.assign([PLACE], from_beginning=False)
            for number in (17, 18):
                await client.seek(PLACE, number)
                assert await client.commit_offsets() == {PLACE: number}
                assert await client.committed([PLACE]) == {PLACE: number}
            await client.assign([PLACE], from_beginning=False)
            await client.seek(PLACE, 1)
            assert await values_of(client, 2) == [b"two", b"three"]
            assert await client.commit_offsets() == {PLACE: 3}

    run_in(WorldOptions("local", 1, tmp_path, faults=()), tale)


async def values_of(client: WorkClient, at_least: int) -> list[bytes]:
    """Polls at least `at_least` values, and until nothing more comes."""
    found: list[bytes] = []
    with trio.fail_after(40):
        while True:
            given = [read.value for read in await client.poll(500)]
            found += given
            if len(found) >= at_least and not given:
                return found


@pytest.mark.slow
@pytest.mark.feature("FI-01", "FI-02")
def test_a_run_with_all_clients_through_kills_and_pauses(tmp_path: Path) -> None:
    if "java" in (clients := here()):
        java_program.command()  # compiled before the run's time begins
    words = ["run", "queue", "--nemesis", "kill,pause", "--interval", "6", "--time", "25", "--quiet", "3"]
    words += ["--concurrency", "6", "--seed", "1", "--client", ",".join(clients), "--store", str(tmp_path), "--keep"]
    done = subprocess.run(
        [sys.executable, "jepsen-style", *words], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("VALID | ")

    [directory] = tmp_path.iterdir()
    for name in LEFT_BEHIND:
        assert (directory / name).stat().st_size > 0
    assert list((directory / "nodes").glob("broker-*/**/t0-0/*.log")), "for who audits them"
    run = json.loads((directory / "run.json").read_text())
    assert run["final_done"] and run["clients"] == clients and run["replay"].startswith("python jepsen-style run queue")
    lines = [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]
    for client in clients:
        assert any(line["type"] == "ok" and line.get("client") == client for line in lines)
    assert any(line["process"] == "nemesis" for line in lines)
