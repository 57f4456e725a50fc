"""Rights that change in a running cluster, and mistakes in those who decide about them: few seconds of the workload
`rights` find each.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from running.plan import Plan, WrongPlan
from running.seed import run_plan

SHORT = Plan("rights", seed=1, cluster="sim", time=7.0, rate=90.0, concurrency=4, quiet=1.0, crash_every=20.0)


@pytest.mark.feature("FI-11", "SE-08", "SE-04")
def test_rights_that_change_while_a_broker_is_killed_and_another_restarts() -> None:
    report = run_plan(replace(SHORT, nemesis=("kill", "stop"), interval=3.0))
    assert report.passed, report.broken
    assert report.counts["decisions about rights"] > 100
    assert report.counts["users looked up by logins"] > 10


@pytest.mark.feature("FI-11", "SE-08", "SE-04")
@pytest.mark.parametrize(
    ("plant", "anomalies"),
    [
        ("deleted-acls-apply", {"forbidden-success", "false-denial"}),
        ("rights-by-name-alone", {"forbidden-success", "false-denial"}),
        ("forwarded-as-broker", {"forbidden-success"}),
        ("denials-lose", {"forbidden-success", "broken-promise"}),
        ("passwords-are-kept", {"login-with-old-password", "refused-login"}),
    ],
)
def test_a_planted_mistake_is_found(plant: str, anomalies: set[str]) -> None:
    broken = run_plan(replace(SHORT, plant=plant)).broken
    assert anomalies & {line.partition(" ")[0] for line in broken}, broken


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clients": ("confluent",), "cluster": "local"}, "use --client barnabas"),
        ({"cluster": "local"}, "--client-config must say how a super user logs in: .*or use --cluster sim"),
    ],
)
def test_a_run_whose_clients_cannot_log_in_does_not_begin(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(WrongPlan, match=f"^rights.*{reason}"):
        replace(SHORT, **changes)  # type: ignore[arg-type]
