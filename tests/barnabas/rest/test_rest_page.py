"""The commands of docs/rest.md, with the page and the broker as a user starts them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.dev.embedded import EmbeddedServers

DOCUMENT = (Path(__file__).parents[3] / "docs" / "rest.md").read_text("utf-8")
COMMAND = (str(Path(sys.executable).with_name("barnabas")),)


@pytest.mark.feature("OP-10")
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_page_do_what_they_say(barnabas_broker: EmbeddedServers) -> None:
    [program] = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    words = ("page", "--rest", "--allow-writes", "--bootstrap", str(barnabas_broker), "--port", "0")
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as page:
        try:
            assert page.stdout is not None
            url, _, token = page.stdout.readline().strip().partition("/#token=")
            environment = os.environ | {"PAGE": url, "TOKEN": token}
            shell = ["bash", "-euo", "pipefail", "-c", program]
            done = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=60, check=False)
        finally:
            page.terminate()
    assert done.returncode == 0, done.stderr
    assert '"value": {"type": "JSON", "data": {"gate": 7}}' in done.stdout
    assert 'id: 0:2\ndata: {"topic_name": "gates", "partition_id": 0, "offset": 1' in done.stdout


def test_writes_need_the_interface_and_foreign_addresses_a_token() -> None:
    for words, message in (
        (("--allow-writes",), "--allow-writes needs --rest"),
        (("--rest", "--host", "0.0.0.0", "--bootstrap", "127.0.0.1:1", "--port", "0"), "needs --http-token-file"),
    ):
        done = subprocess.run([*COMMAND, "page", *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0 and done.stderr.count("\n") == 1 and message in done.stderr
