"""The commands of docs/pipeline.md, run in their order on a cluster of six nodes, on small data."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.pytest_plugin import BarnabasCluster

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.spark
@pytest.mark.feature("PL-01", "PL-02", "PL-03", "PL-05")
def test_the_documented_commands_work(
    spark: Any,
    barnabas_cluster: BarnabasCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", barnabas_cluster.bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    accounts: list[Any] = []
    for line in commands():
        words = shlex.split(line)
        assert words[0] == "barnabas"
        code = run([*words[1:], "--json"])
        captured = capsys.readouterr()
        assert code == 0, f"{line}: {captured.err}"
        accounts.append(json.loads(captured.out))
    generated, loaded, again, exported, nothing, streamed, lag, into, minutes, snapshot = accounts
    assert generated["files"] == 4
    assert (loaded["records"], loaded["transactions"], loaded["topic made"]) == (30_000, 2, True)
    assert (again["records"], again["topic made"]) == (0, False)
    assert (exported["records"], nothing["records"], streamed["records"]) == (30_000, 0, 30_000)
    assert streamed["batches"] >= 3
    assert set(lag["lag"].values()) == {0} and len(lag["partitions"]) == 9
    assert into["records"] == 600
    assert minutes["records"] == 6_000
    assert snapshot["keys"] == 1_000

    lake = spark.read.parquet(str(tmp_path / "lake/orders"))
    assert lake.count() == lake.select("value.number").distinct().count() == 30_000
    stream = spark.read.parquet(str(tmp_path / "lake/stream"))
    pairs = ("partition", "offset")
    assert lake.select(*pairs).exceptAll(stream.select(*pairs)).count() == 0
    assert stream.select("partition", "offset").distinct().count() == 30_000
