"""The shipped alerts: each has a severity and a runbook, and none fires for the ledgers of the Spark sink."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ALERTS = (ROOT / "docker/prometheus/alerts.yml").read_text()
RULES = {rule.partition("\n")[0].strip(): rule for rule in ALERTS.split("- alert:")[1:]}


@pytest.mark.feature("OB-04")
@pytest.mark.parametrize("alert", RULES)
def test_an_alert_has_a_severity_and_a_section_in_the_runbook(alert: str) -> None:
    assert re.search(r"labels: \{severity: (critical|warning)\}", RULES[alert])
    assert f"runbook_url: docs/operations.md#{alert.lower()}\n" in RULES[alert]
    assert f"\n### {alert}\n" in (ROOT / "docs/operations.md").read_text()


def test_the_runbook_has_no_section_without_an_alert() -> None:
    runbook = (ROOT / "docs/operations.md").read_text().partition("\n## Runbook\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^### (\w+)$", runbook, re.MULTILINE)) == set(RULES)


@pytest.mark.feature("OB-04")
def test_ledger_groups_of_the_spark_sink_are_never_behind() -> None:
    """Their committed offsets are batch numbers."""
    prefix = re.search(r'GROUP_PREFIX = "(.*)"', (ROOT / "barnabas/pipeline/ledger.py").read_text())
    assert prefix is not None
    dashboard = (ROOT / "docker/grafana/dashboards/barnabas.json").read_text()
    for text in (RULES["GroupFarBehind"], dashboard):
        lags = re.findall(r"kafka_consumergroup_lag(?:_seconds)?(.{40})", text)
        assert lags and all(f"{prefix[1]}.*" in lag for lag in lags)
