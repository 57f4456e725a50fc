"""Takes docs/page.png and docs/page-dark.png: the page of a real cluster; a leader was killed and came back, and
the active controller has just been killed. Takes two minutes; needs what `make page-test` installs.

    python docs/take_screenshots.py [PATH-OF-CHROMIUM]
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PICTURES = {"light": DOCS / "page.png", "dark": DOCS / "page-dark.png"}
MOST_BYTES = 300_000
WIDTH, HEIGHT = 1440, 1000
WAIT_MS = 60_000


@contextmanager
def page_of_a_cluster() -> Iterator[str]:
    """The address of its page; the cluster goes with it."""
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "barnabas.cli.main", "page", "--data", data, "--port", "0"]
        command += ["--base-port", "29092", "--allow-faults", "--load"]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def play(page: Any) -> None:
    """State that the pictures show."""
    page.wait_for_selector(".partition")
    page.wait_for_timeout(30_000)
    victim = page.locator("[data-partition='0'] .leader").inner_text().replace("leader ", "broker-")
    press(page, f"Kill {victim}")
    page.wait_for_timeout(15_000)
    press(page, f"Start {victim}")
    page.wait_for_selector(f"[data-node={victim}][data-state=running]")
    page.wait_for_timeout(20_000)
    active = page.locator(".node[data-state=leader]").get_attribute("data-node")
    press(page, f"Kill {active}")
    page.wait_for_timeout(12_000)


def main(chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with page_of_a_cluster() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        pages = {}
        for scheme in PICTURES:
            context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            pages[scheme] = context.new_page()
            pages[scheme].set_default_timeout(WAIT_MS)
            pages[scheme].goto(address)
        play(pages["light"])
        for scheme, picture in PICTURES.items():
            pages[scheme].mouse.move(0, 0)
            pages[scheme].screenshot(path=picture, full_page=True, animations="disabled")
            size = picture.stat().st_size
            print(f"{picture.name}: {size:,} bytes")
            if size > MOST_BYTES:
                raise SystemExit(f"{picture.name} is larger than {MOST_BYTES:,} bytes")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium") or "/usr/bin/chromium")
