"""Runs `barnabas pipeline` commands in this process, on one cluster and in the Spark session of the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas import sync
from barnabas.cli.main import run
from barnabas.pytest_plugin import BarnabasCluster

ATTEMPTS = 5
BUSY = "the machine is too busy"
"""If this is in the error, the command is run once more."""


class Typed:
    """Runs commands on a cluster."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, *words: str) -> Any:
        """The account of a successful command."""
        code, output, errors = self._typed(words)
        assert code == 0, errors
        return json.loads(output)

    def refused(self, *words: str) -> tuple[int, str]:
        """(exit code, the line on standard error)"""
        code, _, errors = self._typed(words)
        lines = errors.strip().splitlines()
        assert len(lines) == 1, lines
        return code, lines[0]

    def _typed(self, words: tuple[str, ...]) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""
        for _ in range(ATTEMPTS):
            code = run(["pipeline", *words, "-b", self.bootstrap, "--json"])
            captured = self._capsys.readouterr()
            if BUSY not in captured.err:
                break
        return code, captured.out, captured.err


class Pipeline(Typed):
    """Runs commands on the cluster of the tests."""

    def __init__(self, cluster: BarnabasCluster, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(cluster.bootstrap_servers, capsys)
        self.cluster = cluster

    def remake(self, topic: str) -> None:
        with sync.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.delete_topics([topic])
        self.cluster.create_topic(topic, partitions=2, configs={"retention.ms": "-1"})
