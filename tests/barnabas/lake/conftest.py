"""A lake on this machine for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.dev.embedded import EmbeddedServers
from tests.barnabas.lake.lakes import Lake


@pytest.fixture
def lake(barnabas_broker: EmbeddedServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lake:
    return Lake(tmp_path, str(barnabas_broker), capsys)
