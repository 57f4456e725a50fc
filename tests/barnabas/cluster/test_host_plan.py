"""The settings of the cells of a host, made from one file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.errors import WrongArgument
from barnabas.cluster.host_plan import MOST_CELLS, Machine, cells_of

pytestmark = pytest.mark.feature("OP-02")
MACHINE = Machine("west", 16 << 30)
FILE = {
    "process.roles": "broker",
    "node.id": "11",
    "listeners": "PLAINTEXT://:19092,SSL://:19093",
    "advertised.listeners": "PLAINTEXT://west:19092,SSL://west:19093",
    "barnabas.shared.listeners": "PLAINTEXT://:9092",
    "barnabas.http.listener": "127.0.0.1:8080",
    "log.dirs": "/a/,/b",
    "max.connections": "1000",
}


def test_each_cell_has_an_id_ports_and_directories_of_its_own() -> None:
    first, second, third = cells_of(FILE, 3, MACHINE, "host.properties")
    assert [each.name for each in (first, second, third)] == ["broker-11", "broker-12", "broker-13"]
    assert second.values["listeners"] == "PLAINTEXT://:19094,SSL://:19095", "two ports each"
    assert third.values["advertised.listeners"] == "PLAINTEXT://west:19096,SSL://west:19097"
    assert third.values["barnabas.http.listener"] == "127.0.0.1:8084"
    assert second.values["barnabas.shared.listeners"] == "PLAINTEXT://:9092", "the address of all of them"
    assert second.log_directories == ["/a/cell-12", "/b/cell-12"]
    assert {each.values["barnabas.host"] for each in (first, second, third)} == {"west"}


def test_limits_of_the_host_are_shared() -> None:
    cells = cells_of(FILE, 8, MACHINE, "host.properties")
    assert {each.values["max.connections"] for each in cells} == {"125"}
    assert {each.values["barnabas.memory.limit.bytes"] for each in cells} == {str(512 << 20)}
    small = cells_of(FILE, 8, Machine("small", 1 << 30), "host.properties")
    assert {each.values["barnabas.memory.limit.bytes"] for each in small} == {str(64 << 20)}, "the least that works"


@given(st.lists(st.integers(1024, 30_000), min_size=1, max_size=4, unique=True), st.integers(1, MOST_CELLS))
def test_no_two_cells_have_a_port_in_common(ports: list[int], count: int) -> None:
    names = ["A", "B", "C", "D"]
    file = FILE | {"listeners": ",".join(f"{name}://:{port}" for name, port in zip(names, ports, strict=False))}
    del file["advertised.listeners"], file["barnabas.http.listener"], file["barnabas.shared.listeners"]
    found = [
        int(port)
        for each in cells_of(file, count, MACHINE, "f")
        for port in re.findall(r":(\d+)", each.values["listeners"])
    ]
    assert len(set(found)) == len(found) == count * len(ports)


@pytest.mark.parametrize(
    ("changes", "cells", "message"),
    [
        ({}, 0, "--cells 0: 1 to 64"),
        ({"process.roles": "broker,controller"}, 2, "f: process.roles must be broker, so that cells can be added"),
        ({"node.id": ""}, 2, "f: node.id must be a number, that of the first cell; got ''"),
        ({"listeners": ""}, 2, "f: listeners must be set"),
        ({"log.dirs": ""}, 2, "f: log.dirs must be set"),
        ({"listeners": "PLAINTEXT://:0"}, 2, "PLAINTEXT://:0: the port must be a number from 1 to 65535, "),
        ({"listeners": "PLAINTEXT://:65530"}, 2, "f: 64 cells have no ports beside 65530, 8080, 9092; choose others"),
    ],
)
def test_files_that_cells_cannot_share_are_refused(changes: dict[str, str], cells: int, message: str) -> None:
    with pytest.raises(WrongArgument, match=re.escape(message)):
        cells_of(FILE | changes, cells, MACHINE, "f")
