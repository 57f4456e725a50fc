"""The answers that the authorization matrix compares with ours are still those of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cluster.ports import free_base_port
from tests.compat.authorization_matrix import ANSWERS, ask_kafka, written

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("java"), pytest.mark.feature("SE-09")]


def test_the_stored_answers_are_apache_kafkas(libs: Path, tmp_path: Path) -> None:
    port = free_base_port([0, 1, 2])
    assert written(ask_kafka(libs, port, tmp_path / "node")) == ANSWERS.read_text()
