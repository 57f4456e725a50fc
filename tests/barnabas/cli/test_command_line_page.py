"""The commands of docs/command-line.md, run in order on a cluster of six nodes."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.app import command
from barnabas.cli.main import run
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.delenv("BARNABAS_CLIENT_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    cluster = LocalCluster(Path(".cluster"), free_base_port(), {"group.initial.rebalance.delay.ms": "0"})
    cluster.up()
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.down()


@pytest.mark.feature("TO-02", "TO-05", "TO-06", "TO-08", "OB-07")
def test_the_commands_of_the_page_work(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {}
    for line in commands():
        piped = b""
        for part in line.split(" | "):
            words = shlex.split(part)
            if words[0] == "printf":
                piped = words[1].replace("\\n", "\n").encode()
                continue
            assert words[0] == "barnabas"
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped)))
            code = run(words[1:])
            captured = capsys.readouterr()
            assert code == 0, f"{part}: {captured.err}"
            piped = captured.out.encode()
        outputs[line] = piped.decode()

    assert outputs["barnabas consume flights --from-beginning --exit -k ' '"] == "UA1545 departed\nUA1545 landed\n"
    assert re.fullmatch(
        r"flights (\d) 0 UA1545=departed\nflights \1 1 UA1545=landed\n",
        outputs["barnabas consume flights -p 0 -p 1 -p 2 -o beginning -e -f '%t %p %o %k=%s\\n'"],
    )
    (shared,) = map(json.loads, outputs["barnabas consume flights --share-group loaders -n 1 --json"].splitlines())
    assert (shared["topic"], shared["delivery_count"]) == ("flights", 1)
    rejected = outputs["barnabas consume flights --share-group loaders --idle 3 --reject"].splitlines()
    assert sorted([shared["value"], *rejected]) == ["1", "2", "UA1545:departed"[7:], "landed"]
    assert "import-1" in outputs["barnabas transactions list"]
    assert "topic flights is created with 3 partitions of 3 replicas" in outputs["barnabas why flights-0"]
    assert "group etl is deleted" in outputs["barnabas why etl"]
    assert "transaction import-1 is committed" in outputs["barnabas why import-1"]
    assert "broker 1 is unfenced" in outputs["barnabas why broker 1"]
    assert "leads the quorum in epoch" in outputs["barnabas why quorum --json"]
    assert "compact,delete" in outputs["barnabas configs describe topic flights"]
    assert "producer_byte_rate" in outputs["barnabas configs quotas describe"]


@pytest.mark.feature("OP-10")
def test_every_command_of_the_client_is_on_the_page() -> None:
    page = PAGE.read_text()
    groups = command().commands
    for group in ("topics", "groups", "configs", "transactions", "perf"):
        for name in groups[group].commands:
            assert re.search(rf"`?\b{group} {name}\b|`{name}\b", page), f"{group} {name}"
