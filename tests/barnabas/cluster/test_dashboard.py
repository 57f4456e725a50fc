"""The dashboard and the alerts speak of nothing that nodes do not tell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas import Admin, Consumer, Producer
from barnabas.testing.simulated import SimulatedClusterForTests
from runtime.metrics import BusyClock, busy_families, process_families, render
from runtime.real import real_world
from tests.barnabas.cluster.scraping import asked

DOCKER = Path(__file__).resolve().parents[3] / "docker"
OF_PROMETHEUS = {"instance", "job", "role", "le"}
"""Labels that samples have when they were scraped."""


def expressions() -> list[str]:
    dashboard = json.loads((DOCKER / "grafana/dashboards/barnabas.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [variable["query"]["query"] for variable in dashboard["templating"]["list"]]
    return found + re.findall(r"^ +expr: (.*)$", (DOCKER / "prometheus/alerts.yml").read_text(), re.MULTILINE)


async def told(cluster: SimulatedClusterForTests) -> dict[str, set[str]]:
    """The labels of all that a cluster in use tells, by name."""
    await cluster.create_topic("flights")
    options = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
    async with Producer(**options, transactional_id="till") as producer, producer.transaction():
        await producer.send("flights", b"x")
    async with Consumer(**options, group_id="readers", auto_offset_reset="earliest") as consumer, Admin(**options):
        consumer.subscribe(["flights"])
        while not await consumer.poll(500):
            pass
        await consumer.commit()
        pages = [await asked(cluster, node, "/metrics") for node in (*cluster.brokers, *cluster.controllers)]
    # What only a real process has.
    world = real_world()
    clock = BusyClock(world)
    clock.busy_share()
    pages += ["".join(render(family)) for family in (*process_families(world), *busy_families(clock))]
    labels: dict[str, set[str]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            labels.setdefault(f"{family.name}_total" if family.type == "counter" else family.name, set())
            for sample in family.samples:
                labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def words(lists: list[str]) -> Iterator[str]:
    for each in lists:
        yield from re.split(r"\s*,\s*", each)


@pytest.mark.feature("OB-04")
def test_every_expression_is_about_what_nodes_tell() -> None:
    cluster, labels = SimulatedClusterForTests(seed=1), dict[str, set[str]]()

    async def story() -> None:
        labels.update(await told(cluster))

    cluster.run(story)
    asked_for = expressions()
    assert len(asked_for) > 60
    for expression in asked_for:
        names = re.findall(r"\b(?:kafka|process)_\w+", expression)
        assert names or "up{" in expression, expression
        assert {name for name in names if name not in labels} == set(), expression
        known = set[str]().union(*(labels[name] for name in names)) | OF_PROMETHEUS
        used = set(words(re.findall(r"\bby \(([^)]*)\)", expression))) | set(re.findall(r"(\w+)=~?\"", expression))
        assert used <= known, expression


@pytest.mark.feature("OB-04")
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (of Debian's prometheus) is not here")
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    config = subprocess.run(["promtool", "check", "config", DOCKER / "prometheus/prometheus.yml"], check=False)
    assert config.returncode == 0
    rules = []
    for number, expression in enumerate(each for each in expressions() if not each.startswith("label_values")):
        asked_as = expression.replace("$__rate_interval", "1m").replace("$api", ".+")
        rules.append(f"  - record: panel_{number}\n    expr: {json.dumps(asked_as)}\n")
    (tmp_path / "rules.yml").write_text("groups:\n- name: dashboard\n  rules:\n" + "".join(rules))
    checked = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_panels_do_not_lie_on_each_other() -> None:
    dashboard = json.loads((DOCKER / "grafana/dashboards/barnabas.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
