"""The page of a real cluster in a real browser: what people see who kill a leader by its button. One story; one cluster
for all of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.cluster.ports import free_base_port
from tests.page.browser_pages import BrowserPages

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.page

END_SECONDS = 30
SLOW_MS = 60_000
"""Time limit for a cluster on a busy machine."""
KILL_COSTS_AT_MOST_MS = 30_000


@contextmanager
def page_command(data: Path) -> Iterator[str]:
    """`barnabas page` with buttons and a load; gives the address that it prints."""
    command = [sys.executable, "-m", "barnabas.cli.main", "page", "--data", str(data), "--port", "0"]
    command += ["--base-port", str(free_base_port()), "--allow-faults", "--load"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    answer = data.parent / "stderr"
    with (
        answer.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=\S+", address), answer.read_text()
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


@pytest.fixture
def expect(playwright_api: Any) -> Iterator[Any]:
    playwright_api.expect.set_options(timeout=SLOW_MS)
    yield playwright_api.expect
    playwright_api.expect.set_options(timeout=15_000)


def number(page: Page, name: str) -> int:
    """One of the headline's numbers."""
    text = page.locator(f"[data-number={name}] strong").inner_text()
    return int(text.replace(",", ""))


def until(page: Page, holds: Callable[[], bool], what: str) -> None:
    for _ in range(SLOW_MS // 250):
        if holds():
            return
        page.wait_for_timeout(250)
    raise AssertionError(f"never: {what}")


def leader_of(page: Page, partition: int) -> str:
    text = page.locator(f"[data-partition='{partition}'] .leader").inner_text()
    return text.replace("leader ", "broker-")


@pytest.mark.feature("FI-10")
def test_kill_a_leader_and_lose_nothing(tmp_path: Path, browser_pages: BrowserPages, expect: Any) -> None:
    with page_command(tmp_path / "cluster") as address:
        page = browser_pages.open(address)
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator(".node[data-state=running]")).to_have_count(3)
        expect(page.locator(".node[data-state=leader]")).to_have_count(1)
        expect(page.locator(".partition")).to_have_count(3)
        until(page, lambda: number(page, "acked") > 500, "records are acked")

        # The leader of a partition is killed by its button: the election, the gap and the fault are seen, and why.
        victim = leader_of(page, 0)
        card = page.locator(f"[data-node={victim}]")
        elections = page.locator(".event[data-kind=election]", has_text="demo-0")
        before = elections.count()
        page.get_by_role("button", name=f"Kill {victim}").click()
        expect(card).to_have_attribute("data-state", "dead")
        until(page, lambda: elections.count() > before, "an election in the list of events")
        until(page, lambda: leader_of(page, 0) not in (victim, "no leader"), "another leader")
        expect(page.locator("#chart .mark[data-kinds~=election]")).not_to_have_count(0)
        expect(page.locator("#chart .mark[data-kinds~=fault]")).not_to_have_count(0)
        expect(page.locator("#chart .band-words")).to_contain_text(f"{victim} dead")
        expect(page.locator("[data-partition='0'] .isr")).to_have_text("2 of 3 in sync")
        moved = number(page, "acked")
        until(page, lambda: number(page, "acked") > moved + 200, "records are acked by others")
        gap_ms = int(float(_milliseconds(page.locator("[data-number=longest_gap_ms] strong").inner_text())))
        assert 0 < gap_ms < KILL_COSTS_AT_MOST_MS
        elections.first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator(".facts")).to_contain_text("leader epoch")
        expect(dialog.locator(".cause")).to_contain_text(re.compile(victim.replace("-", ".")))
        expect(dialog.locator(".story p").first).to_contain_text("topic demo is created")
        expect(dialog.locator(".story")).to_contain_text("leader of demo-0 moved")
        page.keyboard.press("Escape")

        # It is started again and catches up.
        page.get_by_role("button", name=f"Start {victim}").click()
        expect(card).to_have_attribute("data-state", "running")
        expect(page.locator("[data-partition='0'] .isr")).to_have_text("3 of 3 in sync")

        # A follower is paused and resumed, a link cut and healed.
        other = next(name for name in ("broker-1", "broker-2", "broker-3") if name not in (victim, leader_of(page, 0)))
        page.get_by_role("button", name=f"Pause {other}").click()
        expect(page.locator(f"[data-node={other}]")).to_have_attribute("data-state", "paused")
        page.get_by_role("button", name=f"Resume {other}").click()
        expect(page.locator(f"[data-node={other}]")).to_have_attribute("data-state", "running")
        link = page.get_by_role("button", name="Cut between broker-1 and broker-2")
        link.click()
        expect(link).to_have_attribute("aria-pressed", "true")
        link.click()
        expect(link).to_have_attribute("aria-pressed", "false")

        # The load ends: what was acked has been read back, all of it, once, in order.
        page.get_by_role("button", name="Stop load").click()
        expect(page.get_by_role("button", name="Start load")).to_be_visible()
        expect(page.locator("[data-number=acked] small")).to_have_text("the load is stopped")
        assert number(page, "acked") > moved
        for name in ("lost", "duplicated", "out_of_order"):
            assert number(page, name) == 0, name

        # A second page that has no token sees the same, and may do nothing.
        onlooker = browser_pages.open(address.partition("#")[0])
        expect(onlooker.locator(".node[data-state=running]")).to_have_count(3)
        until(onlooker, lambda: onlooker.locator(".event").count() > 5, "what happened before it came")
        expect(onlooker.get_by_role("button", name=f"Kill {victim}")).to_have_count(0)
        expect(onlooker.locator("#notice")).to_contain_text("Read-only")
        browser_pages.close()


def _milliseconds(text: str) -> float:
    value, unit = text.split()
    return float(value) * (1000 if unit == "s" else 1)
