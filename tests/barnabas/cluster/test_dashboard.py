"""The pages of a cluster in use are what they should be, and docs, dashboard and alerts speak of what is in them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from barnabas import Consumer, Producer
from barnabas.runtime.metrics import BusyClock, busy_families, process_families, render
from barnabas.runtime.real import real_world
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.cluster.scraping import asked

DOCKER = Path(__file__).resolve().parents[3] / "docker"
OF_PROMETHEUS = {"instance", "job", "role", "le"}
"""Labels that samples have when they were scraped."""


def expressions() -> list[str]:
    dashboard = json.loads((DOCKER / "grafana/dashboards/barnabas.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [variable["query"]["query"] for variable in dashboard["templating"]["list"]]
    return found + re.findall(r"^ +expr: (.*)$", (DOCKER / "prometheus/alerts.yml").read_text(), re.MULTILINE)


@cache
def pages() -> list[str]:
    """Metrics pages of all nodes of a cluster in use."""
    cluster, found = SimulatedClusterForTests(seed=1), list[str]()

    async def story() -> None:
        await cluster.create_topic("flights")
        options = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(**options, transactional_id="till") as producer, producer.transaction():
            await producer.send("flights", b"x")
        async with Consumer(**options, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["flights"])
            while not await consumer.poll(500):
                pass
            await consumer.commit()
            found.extend([await asked(cluster, node, "/metrics") for node in (*cluster.brokers, *cluster.controllers)])

    cluster.run(story)
    # Families that only a real process has.
    world = real_world()
    clock = BusyClock(world)
    clock.busy_share()
    return [
        *found,
        b"".join(text for each in (*process_families(world), *busy_families(clock)) for text in render(each)).decode(),
    ]


def families() -> Iterator[Metric]:
    for page in pages():
        yield from text_string_to_metric_families(page)


def full_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def words(lists: list[str]) -> Iterator[str]:
    for each in lists:
        yield from re.split(r"\s*,\s*", each)


@pytest.mark.feature("OB-04")
def test_every_expression_names_metrics_of_the_nodes() -> None:
    labels: dict[str, set[str]] = {}
    for family in families():
        labels.setdefault(full_name(family), set())
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    asked_for = expressions()
    assert len(asked_for) > 60
    for expression in asked_for:
        names = re.findall(r"\b(?:kafka|process|barnabas)_\w+", expression)
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


@pytest.mark.feature("OB-04")
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (of Debian's prometheus) is not here")
def test_prometheus_own_tool_reads_every_page() -> None:
    for page in pages():
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=page, text=True, capture_output=True, check=False
        )
        # 3: it has opinions on how Kafka's metrics should be called.
        assert checked.returncode in (0, 3), checked.stderr


@pytest.mark.feature("OB-04")
def test_every_metric_is_in_its_page() -> None:
    page = (DOCKER.parent / "docs" / "metrics.md").read_text()
    known = {word for row in page.splitlines() for word in full_names(re.findall(r"`([a-z0-9_…]+)`", row))}
    assert {full_name(family) for family in families()} - known == set()
    assert all(family.documentation for family in families())


def full_names(words: list[str]) -> list[str]:
    """`…bytesin_total` begins as the first name of its row does."""
    names: list[str] = []
    for word in words:
        if word.startswith("…"):
            begin = re.match(r"kafka_[a-z]+_[a-z]+_", words[0])
            assert begin is not None, words[0]
            word = begin.group() + word[1:]
        names.append(word)
    return names


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
