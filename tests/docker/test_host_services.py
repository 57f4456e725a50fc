"""The profile `cells` of docker-compose.yml without docker: three containers with several brokers each."""

from __future__ import annotations

import re

import pytest

from barnabas.cluster.host_plan import Machine, cells_of
from barnabas.cluster.layout import read_shape
from barnabas.settings.broker import load_broker_settings
from barnabas.settings.properties import render_properties
from tests.docker.compose_file import ROOT, command, profiles, section, services

HOSTS = ("host-1", "host-2", "host-3")
pytestmark = pytest.mark.feature("OP-01")


def test_hosts_come_with_their_profile_and_the_controllers() -> None:
    assert [name for name in services() if profiles(name) == ["cells"]] == list(HOSTS)
    assert "cells" in profiles("controller-101")
    assert "cells" not in profiles("broker-1")


@pytest.mark.parametrize("host", HOSTS)
def test_the_ports_of_four_cells_are_published(host: str) -> None:
    words = command(host, {"CELLS": "4"})
    assert words[:2] == ["barnabas", "host"] and "--cells=4" in words
    source = ROOT / "cluster-configs" / "compose" / words[2].removeprefix("/etc/barnabas/")
    published = re.search(r'"127\.0\.0\.1:(\d+)-(\d+):\1-\2"', section(host))
    assert published is not None
    ports = range(int(published[1]), int(published[2]) + 1)
    cells = cells_of(read_shape(source), 4, Machine(host, 8 << 30), str(source))
    for cell in cells:
        settings, _ = load_broker_settings(render_properties(dict(cell.values)), cell.name)
        assert settings.host == host
        [listening] = [each.port for each in settings.listeners if each.name == "HOST"]
        [advertised] = [each.port for each in settings.advertised_listeners if each.name == "HOST"]
        [shared] = [each.port for each in settings.shared_listeners if each.name == "HOST"]
        assert listening == advertised and {listening, shared} <= {*ports}
    assert len({cell.node_id for cell in cells}) == 4


def test_no_two_hosts_have_an_id_in_common() -> None:
    ids = [
        cell.node_id
        for host in HOSTS
        for cell in cells_of(
            read_shape(ROOT / "cluster-configs" / "compose" / "cells" / f"{host}.properties"),
            4,
            Machine(host, 8 << 30),
            host,
        )
    ]
    assert len(set(ids)) == len(ids)
