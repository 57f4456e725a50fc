"""`barnabas pipeline` as it is typed, on one cluster; here, in the session of the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas import sync
from barnabas.cli.main import run
from barnabas_pytest import BarnabasCluster

ATTEMPTS = 5
BUSY = "the machine is too busy"
"""Then the line asks for the same command once more."""


class Typed:
    """The command, with the cluster that it works on."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, *words: str) -> Any:
        """Its account."""
        code, said, told = self._typed(words)
        assert code == 0, told
        return json.loads(said)

    def refused(self, *words: str) -> tuple[int, str]:
        """The code, and the one line."""
        code, _, told = self._typed(words)
        lines = told.strip().splitlines()
        assert len(lines) == 1, lines
        return code, lines[0]

    def _typed(self, words: tuple[str, ...]) -> tuple[int, str, str]:
        """The code, what was said, and what was told on standard error."""
        for _ in range(ATTEMPTS):
            code = run(["pipeline", *words, "-b", self.bootstrap, "--json"])
            said = self._capsys.readouterr()
            if BUSY not in said.err:
                break
        return code, said.out, said.err


class Pipeline(Typed):
    """On the cluster of the tests."""

    def __init__(self, cluster: BarnabasCluster, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(cluster.bootstrap_servers, capsys)
        self.cluster = cluster

    def remake(self, topic: str) -> None:
        with sync.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.delete_topics([topic])
        self.cluster.create_topic(topic, partitions=2, configs={"retention.ms": "-1"})
